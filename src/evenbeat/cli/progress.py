"""The progress of a long command: a line on stderr that changes, where stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from evenbeat.core.results import BulkResult
from evenbeat.observe.phrases import count

wait_option = click.option(
    "--wait", "--follow", "wait", is_flag=True, help="Show its progress until it is over."
)

_WIDTH = 30
# Seconds between two looks, and between two lines if stderr is not a terminal.
_LOOK_EVERY = 0.5
_LINE_EVERY = 10.0
_Item = TypeVar("_Item")


def bar(done: int, total: int, width: int = _WIDTH) -> str:
    """Return how far it is, as a bar of ASCII."""
    filled = width if total == 0 else min(done, total) * width // total
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def followed(
    item: _Item,
    again: Callable[[_Item], _Item],
    line_of: Callable[[_Item], str],
    is_over: Callable[[_Item], bool],
) -> _Item:
    """Show the progress on stderr until it is over, and return the end: one line that changes, or, if stderr
    is not a terminal, a line now and then. ``again`` reads the item anew."""
    is_terminal = sys.stderr.isatty()
    said, said_at = "", -_LINE_EVERY
    while True:
        line, ends = line_of(item), is_over(item)
        if is_terminal:
            click.echo(f"\r{line}\x1b[K", nl=False, err=True)
        elif line != said and (ends or time.monotonic() - said_at >= _LINE_EVERY):
            click.echo(line, err=True)
            said, said_at = line, time.monotonic()
        if ends:
            if is_terminal:
                click.echo("", err=True)
            return item
        time.sleep(_LOOK_EVERY)
        item = again(item)


@contextmanager
def changing_line() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that replaces the line; None if stderr is not a terminal. The line is cleared at the
    end."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        yield lambda text: click.echo(f"\r{text}\x1b[K", nl=False, err=True)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


@contextmanager
def bulk_progress(noun: str, total: int | None = None) -> Iterator[Callable[[BulkResult[Any]], None] | None]:
    """Yield the ``progress`` of a bulk change of runs or schedules: a bar if their number is known, else
    their number so far."""
    with changing_line() as show:
        yield None if show is None else lambda result: show(_words(result, noun, total))


def _words(result: BulkResult[Any], noun: str, total: int | None) -> str:
    if total is None:
        return f"{count(result.matched, noun)} so far"
    return f"{bar(result.matched, total)} {result.matched:,} of {count(total, noun)}"
