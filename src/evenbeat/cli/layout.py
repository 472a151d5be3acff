"""Pieces of text for people that several commands share. rich is imported when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from evenbeat.cli.phrases import sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

Cell: TypeAlias = str | tuple[str, str]
"""A text, or a text and its style."""

_GAP = 2


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


def labelled(label: str, lines: Iterable[RenderableType]) -> list[tuple[str, RenderableType]]:
    """Rows for ``listed``: the label stands beside the first line."""
    return [(label if index == 0 else "", line) for index, line in enumerate(lines)]


def ruled(*, ascii_only: bool) -> Table:
    """A table with a line under its heading and no others."""
    from rich.box import SIMPLE_HEAD, Box
    from rich.table import Table

    box = Box(str(SIMPLE_HEAD).replace("─", "-"), ascii=True) if ascii_only else SIMPLE_HEAD
    return Table(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


class Column(NamedTuple):
    title: str
    cells: list[Cell]
    drop: int = 0
    """Where the line is too short, the column with the highest number goes first; 0: never."""
    wraps: int = 0
    """It may wrap, and asks for no more than this width where others need theirs."""
    justify: Literal["left", "right"] = "left"
    alone: str | None = None
    """Its title where the column before it was dropped."""

    def widest(self) -> int:
        from rich.cells import cell_len

        return max(cell_len(cell if isinstance(cell, str) else cell[0]) for cell in [self.title, *self.cells])

    def width(self) -> int:
        """What it asks for."""
        return min(self.widest(), self.wraps) if self.wraps else self.widest()


class Fitted(NamedTuple):
    """A table that gives up columns, then wraps, until it fits the line. For rich."""

    columns: list[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        # A column in which nobody has anything to say is left out.
        columns = [column for column in self.columns if any(column.cells)]
        while (left := options.max_width - sum(column.width() + _GAP for column in columns) + _GAP) < 0:
            droppable = [column for column in columns if column.drop]
            if not droppable:
                break
            place = columns.index(max(droppable, key=lambda column: column.drop))
            del columns[place]
            if place < len(columns) and (alone := columns[place].alone) is not None:
                columns[place] = columns[place]._replace(title=alone)
        table = ruled(ascii_only=options.ascii_only)
        for column in columns:
            width = column.width()
            if left >= 0:
                # What is left goes to the columns that wrap, the first ones first.
                more = min(left, column.widest() - width)
                width, left = width + more, left - more
            # Where nothing helps, names are folded, not cut: they are for copying.
            fits = left >= 0
            table.add_column(
                column.title,
                justify=column.justify,
                no_wrap=fits and not column.wraps,
                max_width=width if fits and column.wraps else None,
                overflow="fold",
            )
        for cells in zip(*(column.cells for column in columns), strict=True):
            table.add_row(*map(styled, cells))
        yield table


def styled(cell: Cell) -> Text:
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else Text(cell[0], style=cell[1])
