"""Bar charts of counts over time, in block characters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from evenbeat.cli.local import LocalZone
from evenbeat.core.instants import Instant

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_MINUTE = 60_000
_DAY = 1440
_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 6
_MOST_BARS = 100
_LABEL = 5
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 240, 360, 720, _DAY)


class Bar(NamedTuple):
    start: Instant
    runs: int


def bars(counts: list[int], start: Instant, minutes: int, zone: LocalZone) -> list[Bar]:
    """Return the counts per minute from ``start`` on, summed over ``minutes``; bars begin at even local
    times."""
    moment = zone.show(start)
    since_midnight = moment.hour * 60 + moment.minute
    lead = since_midnight % minutes if _DAY % minutes == 0 else 0
    padded = [0] * lead + counts
    begin = start - lead * _MINUTE
    return [
        Bar(begin + at * _MINUTE, sum(padded[at : at + minutes])) for at in range(0, len(padded), minutes)
    ]


class BarChart(NamedTuple):
    """A chart for rich. ``minutes`` is the length of a bar; None: the shortest for which the line has
    room."""

    counts: list[int]
    start: Instant
    minutes: int | None
    zone: LocalZone

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = min(options.max_width, _MOST_BARS + 10)
        minutes = self.minutes or fitting(self.counts, self.start, width, self.zone)
        all_bars = bars(self.counts, self.start, minutes, self.zone)
        top = max((bar.runs for bar in all_bars), default=0)
        room = max(10, width - len(f"{top:,}") - 1)
        for first in range(0, len(all_bars), room):
            if first:
                yield _text("")
            yield from self._panel(all_bars[first : first + room], top, minutes, options)

    def _panel(self, shown: list[Bar], top: int, minutes: int, options: ConsoleOptions) -> Iterator[Text]:
        labels = len(f"{top:,}")
        for row in reversed(range(_HEIGHT)):
            label = f"{top:,}" if row == _HEIGHT - 1 else "0" if row == 0 else ""
            cells = "".join(_cell(bar.runs, top, row, options.ascii_only) for bar in shown)
            yield _text(f"{label:>{labels}} ", "dim", cells.rstrip(), "cyan")
        yield _text(
            f"{'':{labels}} {_axis(shown, minutes, self.zone, options.max_width - labels - 1)}", "dim"
        )


def fitting(counts: list[int], start: Instant, width: int, zone: LocalZone) -> int:
    """Return the shortest length of a bar, in minutes, with which the chart is at most ``width`` wide."""
    for step in _STEPS:
        found = bars(counts, start, step, zone)
        top = max((bar.runs for bar in found), default=0)
        if len(found) <= min(_MOST_BARS, width - len(f"{top:,}") - 1):
            return step
    return _STEPS[-1]


def _cell(count: int, top: int, row: int, ascii_only: bool) -> str:
    """Return the character of a bar in one row; a bar of 1 or more is always visible."""
    if count == 0:
        return " "
    eighths = max(1, round(count * _HEIGHT * 8 / top)) - row * 8
    if ascii_only:
        return "#" if eighths > 0 else " "
    return _BLOCKS[min(max(eighths, 0), 8)]


def _axis(shown: list[Bar], minutes: int, zone: LocalZone, room: int) -> str:
    """Return the times of day under the bars: as many as have room, at even hours."""
    every = next((hours for hours in (1, 2, 3, 6, 12) if hours * 60 // minutes > _LABEL), 24)
    line = ""
    for column, bar in enumerate(shown):
        moment = zone.show(bar.start)
        crowded = bool(line) and len(line) >= column
        if moment.minute or moment.hour % every or crowded or column + _LABEL > room:
            continue
        label = f"{moment:%a}" if moment.hour == 0 else f"{moment:%H:%M}"
        line = line.ljust(column) + label
    return line or f"{zone.show(shown[0].start):%H:%M}"


def _text(*parts: str) -> Text:
    """Return a line of the texts; each text is followed by its style."""
    from rich.text import Text

    line = Text(no_wrap=True)
    for text, style in zip(parts[::2], (*parts[1::2], ""), strict=False):
        line.append(text, style=style)
    return line
