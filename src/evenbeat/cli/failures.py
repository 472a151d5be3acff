"""Failures of commands: a line on stderr and an exit code, never a traceback for a mistake of the user."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import click

from evenbeat.cli.phrases import printable
from evenbeat.errors import EvenbeatError, InvalidTrigger, InvalidValue, shown

# The characters that are shown of a long expression around its error.
_WINDOW = 70
# A full or failing disk, which print reports without the name of a file.
_OUTPUT_LOST = (errno.ENOSPC, errno.EIO)


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    """The command failed, or it found a problem."""
    REFUSED = 2
    """The command or a value was not valid; nothing was done."""
    CHANGES = 3
    """``plan``: there is something to apply, or a conflict. Not 2, which a wrong value has."""
    INTERRUPTED = 130
    """Ctrl-C interrupted it. As shells report it: 128 + the number of the signal."""
    PIPE_CLOSED = 141
    """The reader of the output closed the pipe, as ``head`` does."""


class ExpressionRefused(EvenbeatError):
    """An expression on the command line was refused; ``refusal`` is the error of the library."""

    def __init__(self, text: str, refusal: InvalidValue, hint: str | None = None) -> None:
        super().__init__(str(refusal))
        self.text = text
        self.refusal = refusal
        self.hint = refusal.hint if hint is None else hint


class Failed(EvenbeatError):
    """A valid command could not be done; ``hint`` says what to do about it."""

    def __init__(self, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.hint = hint


class Reporting(click.Group):
    """A group that reports the failures of all commands below it, and exits with their codes.

    A command may return an exit code; None is success.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        # Without this, click replaces * by file names on Windows.
        extra = {"windows_expand_args": False, "color": _color(), **extra}
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except (click.ClickException, EvenbeatError) as error:
            code = report(error)
        except click.Abort:
            click.echo("aborted", err=True)
            code = ExitCode.FAILED
        sys.exit(code or ExitCode.OK)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _watched():  # --help and --version answer from here
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _watched():
            return super().invoke(ctx)


@contextmanager
def _watched() -> Iterator[None]:
    """Turn interruptions and lost output, which may happen to any command, into exit codes."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)  # closes the line of the terminal's ^C
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        _drop_output()
        raise click.exceptions.Exit(ExitCode.PIPE_CLOSED) from None
    except OSError as error:
        if error.errno not in _OUTPUT_LOST or error.filename is not None:
            raise
        _drop_output()
        raise click.ClickException(f"the output could not be written: {error.strerror}") from error


def report(error: click.ClickException | EvenbeatError) -> int:
    """Print the error on stderr; return the exit code."""
    for line in describe(error):
        label, colon, rest = line.partition(": ")
        if colon and label in _LABELS:
            line = click.style(f"{label}: ", **_LABELS[label]) + rest
        elif line.strip(" ^") == "":
            line = click.style(line, fg="red", bold=True)
        click.echo(line, err=True, color=_color())
    if isinstance(error, click.ClickException):
        return error.exit_code
    # Values that are not valid; all other errors are of valid commands that could not be done.
    refused = isinstance(error, (InvalidValue, ExpressionRefused))
    return ExitCode.REFUSED if refused else ExitCode.FAILED


def warn(message: str) -> None:
    """Print a warning on stderr; the command goes on."""
    click.echo(click.style("warning: ", fg="yellow", bold=True) + message, err=True, color=_color())


_LABELS: dict[str, dict[str, Any]] = {"error": {"fg": "red", "bold": True}, "hint": {"fg": "cyan"}}


def describe(error: click.ClickException | EvenbeatError) -> list[str]:
    """Return the lines of an error: one, and for an expression the place in it."""
    if isinstance(error, ExpressionRefused):
        return list(_describe_expression(error))
    if isinstance(error, Failed):
        hint = [] if error.hint is None else [f"hint: {error.hint}"]
        return [f"error: {error}", *hint]
    if isinstance(error, EvenbeatError):
        return [f"error: {error}"]
    message = _click_message(error)
    if isinstance(error, click.UsageError) and error.ctx is not None and "did you mean" not in message:
        return [f"error: {message}", f"hint: '{error.ctx.command_path} --help' shows how it is called"]
    return [f"error: {message}"]


def _click_message(error: click.ClickException) -> str:
    """Return click's message in our form: lower case, no full stop, and the nearest name after a colon."""
    if isinstance(error, click.NoSuchOption):
        near = error.possibilities or []
        return f"no such option {error.option_name!r}" + (
            f": did you mean {' or '.join(near)}?" if near else ""
        )
    message = error.format_message().removesuffix(".")
    return message[:1].lower() + message[1:]


def _describe_expression(error: ExpressionRefused) -> Iterator[str]:
    yield f"error: {_as_text(error.refusal.problem)}"
    text, place = _locate(error.text, error.refusal)
    if place is not None:
        yield from _pointed(text, *place)
    if error.hint is not None:
        yield f"hint: {_as_text(error.hint)}"


def _as_text(words: str) -> str:
    """Return advice of the library as one writes it here: every("10m") as every 10m, gap="skip" as
    gap=skip."""
    words = re.sub(r'\b(every|at)\("([^"]*)"\)', r"\1 \2", words)
    return re.sub(r'\b(gap|repeat)="(\w+)"', r"\1=\2", words)


def naming_flags(error: InvalidValue, context: click.Context) -> InvalidValue:
    """Return a refusal in the words of a command: with its flags in place of the library's options.

    Translates the options that the problem begins with ("keep and most are both missing"), options with a
    value in Python's form anywhere (``most=10_000`` becomes ``--most 10000``, ``days=["12-25"]`` becomes
    ``--day 12-25``), and shows the refused value as it was given. The words of other commands, and of a
    user's Python code, stay as they are.
    """
    options = {
        each.name: each for each in context.command.params if isinstance(each, click.Option) and each.name
    }
    for option in [*options.values()]:
        # An argument may have taken the name: ``--name PATTERN`` beside ``NAME``.
        options.setdefault(option.opts[0].lstrip("-").replace("-", "_"), option)
    if not options:
        return error
    problem, names = error.problem, "|".join(options)
    named = options.get(error.field)
    given = None if named is None or named.name is None else context.params.get(named.name)
    listed = re.match(rf"(?:{names})(?:(?:, | and | or )(?:{names}))*(?= )", problem)
    if listed is not None and error.field in options and (given is not None or error.value is None):
        words = problem[listed.end() :]
        if isinstance(given, str) and not isinstance(error.value, str):
            # The command has converted it. A text that differs from the given one has a masked password.
            words = words.replace(shown(str(error.value)), shown(given), 1)
        problem = re.sub(rf"\b(?:{names})\b", lambda found: options[found[0]].opts[0], listed[0]) + words

    def as_flag(found: re.Match[str]) -> str:
        flag, value = options[found[1]].opts[0], found[2]
        if value == "True":
            return flag
        if value[0] == "[":
            return f"{flag} {shlex.quote(value[2:-2])}"
        return f"{flag} {value[1:-1]}" if value[0] == '"' else f"{flag} {value.replace('_', '')}"

    python = re.compile(rf'\b({names})=("[^"]*"|\["[^"]*"\]|\d[\d_]*\b|True\b)')
    problem = python.sub(as_flag, problem)
    hint = None if error.hint is None else python.sub(as_flag, error.hint)
    return InvalidValue(problem, field=error.field, value=error.value, hint=hint)


def _locate(text: str, error: InvalidValue) -> tuple[str, tuple[int, int] | None]:
    """Return the text to show, and (start, length) of the refused part if it can be found."""
    value = error.value if isinstance(error.value, str) else ""
    if isinstance(error, InvalidTrigger):
        # The library may have seen only the rule, without the options.
        begin = text.find(error.text)
        if begin < 0:
            text, begin = error.text, 0
        start = begin + error.position
        if value and text[start : start + len(value)].lower() == value.lower():
            return text, (start, len(value))
        if text.startswith(f"{error.field}=", start):
            return text, (start, len(error.field))
        if error.position:
            return text, (start, 1)
    return text, _find(text, error.field, value)


def _find(text: str, field: str, value: str) -> tuple[int, int] | None:
    """Return (start, length) of the value, or of ``field=value``, if it occurs only once."""
    padded = f" {text} "
    if not value and (option := re.search(rf"(?<= {re.escape(field)}=)\S+", padded)):
        return option.start() - 1, len(option[0])
    for prefix in (f" {field}=", " "):
        wanted = f"{prefix}{value} "
        if value and padded.count(wanted) == 1:
            return padded.index(wanted) + len(prefix) - 1, len(value)
    return None


def _pointed(text: str, start: int, length: int) -> Iterator[str]:
    """Yield the text, cut to a window if it is long, and a line of carets under the place."""
    cut = max(0, min(start - _WINDOW // 2, len(text) - _WINDOW))
    end = min(start + length, cut + _WINDOW)
    before, marked, after = (
        printable(part, keep="") for part in (text[cut:start], text[start:end], text[end : cut + _WINDOW])
    )
    before = f"…{before}" if cut else before
    dots = "…" if cut + _WINDOW < len(text) else ""
    yield f"    {before}{marked}{after}{dots}"
    yield f"    {' ' * _cells(before)}{'^' * max(1, _cells(marked))}"


def _cells(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _color() -> bool | None:
    """Return False where no colour is wanted; None uses colours in a terminal only."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def _drop_output() -> None:
    """Discard the buffered output: the interpreter would fail to flush it at exit."""
    try:
        stdout = sys.stdout.fileno()
    except (OSError, ValueError):  # not a real file: nothing is left to flush
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stdout)
    os.close(nowhere)
