"""Groups of commands that are imported only when they are called.

A group has a table of its commands: the name, the section of the help, the one-line help and the module. So
``--help`` of twenty commands imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import click

from evenbeat.cli.failures import naming_flags
from evenbeat.cli.help import Help
from evenbeat.errors import InvalidTrigger, InvalidValue


class Lazy(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Its ``command`` is the click command."""
    help: str
    """The first sentence of the command's own help."""


class CommandContext(click.Context):
    """The context of every command: formats its help, and names its flags where the library refuses a
    value."""

    formatter_class = Help

    def invoke(self, callback: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().invoke(callback, *args, **kwargs)
        except InvalidTrigger:
            raise
        except InvalidValue as error:
            raise naming_flags(error, self) from error


class LazyGroup(click.Group):
    """A group with a table of commands; its help lists them in sections."""

    context_class = CommandContext

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Lazy]], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.sections = sections
        self.lazy = {name: lazy for section in sections.values() for name, lazy in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self.lazy.get(cmd_name)
        if lazy is None:
            return None
        command = import_module(lazy.module).command
        assert isinstance(command, click.Command)
        command.context_class = CommandContext
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.lazy and not ctx.resilient_parsing:
            raise click.UsageError(f"no such command {name!r}{did_you_mean(name, self.lazy)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, lazy.help) for name, lazy in commands.items()], col_spacing=3)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The commands come before the options: readers of a group's help look for a command.
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)


def did_you_mean(word: str, known: Mapping[str, object]) -> str:
    """Return ``: did you mean next?``, or an empty text without a similar word."""
    near = get_close_matches(word, known, n=3, cutoff=0.55)
    return f": did you mean {' or '.join(near)}?" if near else ""


def lazy_group(name: str, words: str, commands: Mapping[str, Lazy]) -> LazyGroup:
    """Return a group inside another one; called without a command, it prints its help."""

    @click.group(
        name,
        cls=LazyGroup,
        sections={"Commands": commands},
        invoke_without_command=True,
        subcommand_metavar="COMMAND [ARGS]...",
        options_metavar="",
        help=words,
    )
    @click.pass_context
    def group(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help(), color=ctx.color)

    assert isinstance(group, LazyGroup)
    return group
