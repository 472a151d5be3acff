"""``evenbeat completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = {
    "bash": 'eval "$(evenbeat completion bash)"   in ~/.bashrc',
    "zsh": 'eval "$(evenbeat completion zsh)"    in ~/.zshrc',
    "fish": "evenbeat completion fish | source    in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_SHELLS.values()))
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands.

    The shell then completes commands, options, and the names of schedules from the store.
    """
    complete = get_completion_class(shell)
    assert complete is not None
    root = ctx.find_root().command
    click.echo(complete(root, {}, "evenbeat", "_EVENBEAT_COMPLETE").source())
