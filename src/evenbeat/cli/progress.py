"""The progress of a long command: a line on stderr that changes, where stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from evenbeat.core.results import BulkResult
from evenbeat.observe.phrases import count

_WIDTH = 30


def bar(done: int, total: int, width: int = _WIDTH) -> str:
    """Return how far it is, as a bar of ASCII."""
    filled = width if total == 0 else min(done, total) * width // total
    return f"[{'#' * filled}{'.' * (width - filled)}]"


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
