"""The heat map of a schedule in characters: a line for each day or week."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

from evenbeat.cli.states import STYLES
from evenbeat.core.cells import HeatCell, HeatMap

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_SHADES, _ASCII_SHADES = "░▒▓█", "-=+#"
_PLANNED, _ASCII_PLANNED = "·", "."
_HOURS = "00    03    06    09    12    15    18    21"
_DAYS = "M T W T F S S"
_WIDTH = 2


class HeatMapChart(NamedTuple):
    """A heat map for rich: a line of 24 hours for each day, or a line of 7 days for each week."""

    found: HeatMap

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        lines = self._lines()
        most = max((cell.fired for cell in self.found.cells), default=0)
        label = len("Mon 03-02  ")
        yield Text(" " * label + (_HOURS if self.found.by == "hour" else _DAYS), style="dim", no_wrap=True)
        for day, cells in lines.items():
            line = Text(f"{day:%a %m-%d}  ", style="dim", no_wrap=True)
            for column in range(max(cells) + 1):
                mark, style = _mark(cells.get(column, ()), most, ascii_only=options.ascii_only)
                line.append(mark.ljust(_WIDTH), style=style)
            yield line

    def legend(self, *, ascii_only: bool) -> str:
        """Return what the characters mean: only of those that the map has."""
        most = max((cell.fired for cell in self.found.cells), default=0)
        shades, planned = (_ASCII_SHADES, _ASCII_PLANNED) if ascii_only else (_SHADES, _PLANNED)
        words = {
            "x": "failed",
            ">": "not ended",
            "s": "skipped",
            "c": "coalesced",
            "~": "cancelled",
            "p": "paused",
            planned: "planned",
        }
        marks = {
            _mark(cells, most, ascii_only=ascii_only)[0]
            for line in self._lines().values()
            for cells in line.values()
        }
        found = [f"{mark} {word}" for mark, word in words.items() if mark in marks]
        if marks & set(shades):
            found.insert(0, f"{shades} 1 to {most:,} runs" if most > 1 else f"{shades[-1]} a run")
        return ", ".join(found) or "no ticks"

    def _lines(self) -> dict[date, dict[int, list[HeatCell]]]:
        """Return the cells by day and hour, or by week and weekday. An hour that the clock repeats is two."""
        lines: dict[date, dict[int, list[HeatCell]]] = {}
        for cell in self.found.cells:
            day, column = cell.at.date(), cell.at.hour
            if self.found.by == "day":
                column = day.weekday()
                day -= timedelta(days=column)
            lines.setdefault(day, {}).setdefault(column, []).append(cell)
        return lines


def _mark(cells: Iterable[HeatCell], most: int, *, ascii_only: bool) -> tuple[str, str]:
    """Return the character of some cells and its style; failures are visible, however many runs succeeded."""
    shown = list(cells)

    def total(name: str) -> int:
        return sum(getattr(cell, name) for cell in shown)

    if total("failed"):
        return "x", STYLES["failed"]
    if total("running"):
        return ">", STYLES["running"]
    if ran := total("succeeded"):
        shades = _ASCII_SHADES if ascii_only else _SHADES
        return shades[min(3, (ran * 4 - 1) // max(1, most))], STYLES["succeeded"]
    if total("skipped"):
        return "s", STYLES["paused"]
    if total("coalesced"):
        return "c", "dim"
    if total("cancelled"):
        return "~", STYLES["cancelled"]
    if total("paused"):
        return "p", STYLES["paused"]
    if total("planned"):
        return _ASCII_PLANNED if ascii_only else _PLANNED, STYLES["queued"]
    return " ", ""
