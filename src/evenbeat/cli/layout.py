"""Pieces of text for people that several commands share. rich is imported when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from evenbeat.cli.phrases import sentence

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def headed(words: str) -> Iterator[RenderableType]:
    """A trigger in words: what it does as the heading, what the clock's changes do to it below."""
    from rich.text import Text

    heading, _, detail = words.partition("; ")
    yield Text(sentence(heading), style="bold")
    if detail:
        yield Text(sentence(detail), style="dim")


def listed(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Labels and what they stand for; long texts wrap beside their label, not under it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for label, text in rows:
        table.add_row(label, text)
    return table
