"""Layouts that several commands share. rich is imported when one is made."""

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
    """Yield a trigger in words: its rule as the heading, the effect of clock changes below."""
    from rich.text import Text

    heading, _, detail = words.partition("; ")
    yield Text(sentence(heading), style="bold")
    if detail:
        yield Text(sentence(detail), style="dim")


def listed(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Return a table of labels and texts; long texts wrap beside their label, not under it."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for label, text in rows:
        table.add_row(label, text)
    return table


def indented(text: str) -> RenderableType:
    """Return a text below a heading; its further lines are indented, too."""
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text), (0, 0, 0, 2))


def labelled(label: str, lines: Iterable[RenderableType]) -> list[tuple[str, RenderableType]]:
    """Return rows for ``listed``, with the label beside the first line."""
    return [(label if index == 0 else "", line) for index, line in enumerate(lines)]


def ruled(*, ascii_only: bool) -> Table:
    """Return a table with a line under its heading and no other lines."""
    from rich.box import SIMPLE_HEAD, Box
    from rich.table import Table

    box = Box(str(SIMPLE_HEAD).replace("─", "-"), ascii=True) if ascii_only else SIMPLE_HEAD
    return Table(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


class Column(NamedTuple):
    title: str
    cells: list[Cell]
    drop: int = 0
    """If the line is too short, the column with the highest number is dropped first; 0: never."""
    wraps: int = 0
    """The width to which the column may wrap if others need the room; 0: it never wraps."""
    lines: int = 0
    """The most lines of a cell that wraps; the rest is left out, with an ellipsis. 0: as many as it needs."""
    justify: Literal["left", "right"] = "left"
    alone: str | None = None
    """Its title if the column before it was dropped."""

    def widest(self) -> int:
        from rich.cells import cell_len

        return max(cell_len(cell if isinstance(cell, str) else cell[0]) for cell in [self.title, *self.cells])

    def width(self) -> int:
        """Return the width that the column needs."""
        return min(self.widest(), self.wraps) if self.wraps else self.widest()


class Fitted(NamedTuple):
    """A table for rich that drops columns, then wraps, until it fits the line."""

    columns: list[Column]

    def least_width(self) -> int:
        """Return the width of a line that is long enough without the columns that may be dropped."""
        widths = [column.width() for column in self.columns if any(column.cells) and not column.drop]
        return sum(widths) + _GAP * (len(widths) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        # A column without any text is left out.
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
        # If all of that is not enough, names are folded, not cut: people copy them.
        fits = left >= 0
        widths = _shared(columns, left)
        for column, width in zip(columns, widths, strict=True):
            table.add_column(
                column.title,
                justify=column.justify,
                no_wrap=fits and not column.wraps,
                max_width=width if fits and column.wraps else None,
                overflow="fold",
            )
        for cells in zip(*(column.cells for column in columns), strict=True):
            texts = map(styled, cells)
            table.add_row(
                *(
                    _cut(text, width, column.lines, console) if column.lines else text
                    for text, width, column in zip(texts, widths, columns, strict=True)
                )
            )
        yield table


def _shared(columns: list[Column], left: int) -> list[int]:
    """Return the widths of the columns: those that wrap share the remaining width, a character at a time."""
    widths = [column.width() for column in columns]
    wants = [column.widest() for column in columns]
    while left > 0 and widths != wants:
        for place, wanted in enumerate(wants):
            if left > 0 and widths[place] < wanted:
                widths[place] += 1
                left -= 1
    return widths


def _cut(text: Text, width: int, most: int, console: Console) -> Text:
    """Return the first lines of a text that is wrapped to a width."""
    from rich.text import Text

    lines = text.wrap(console, width, overflow="fold")
    if len(lines) <= most:
        return text
    ellipsis = "..." if console.options.ascii_only else "…"
    last = lines[most - 1]
    last.rstrip()
    last.truncate(width - len(ellipsis))
    last.append(ellipsis)
    return Text("\n").join(lines[:most])


def styled(cell: Cell) -> Text:
    from rich.text import Text

    return Text(cell) if isinstance(cell, str) else Text(cell[0], style=cell[1])
