"""The timeline of many schedules in characters: a line for each, with the present marked above."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from evenbeat.cli.local import LocalZone
from evenbeat.cli.states import STYLES
from evenbeat.core.cells import ScheduleTimeline, TimelineCell, TimelineLane
from evenbeat.core.instants import to_ms

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_MARKS = {"failed": "x", "waiting": ">", "skipped": "s", "fired": "|", "paused": "p", "planned": "."}
_STYLES = {
    "failed": "failed",
    "waiting": "running",
    "skipped": "paused",
    "fired": "succeeded",
    "paused": "paused",
    "planned": "queued",
}
_LONGEST_NAME = 40
_MOST_COLUMNS = 120
_FEWEST_COLUMNS = 20
_LABEL = len("09:00  ")

LEGEND = "| fired, x failed, > not ended, s skipped, p paused, . planned, v now"


class LaneChart(NamedTuple):
    """A timeline for rich. A character stands for as many columns as the width of the line asks for."""

    found: ScheduleTimeline
    zone: LocalZone
    show_tenants: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        names = [self._name(lane)[:_LONGEST_NAME] for lane in self.found.lanes]
        width = max(map(len, names)) + 2
        room = min(_MOST_COLUMNS, max(_FEWEST_COLUMNS, options.max_width - width))
        step = self.found.step
        columns = (self.found.until - self.found.since) // step
        joined = -(-columns // room)
        size = -(-columns // joined)
        now = (self.found.now - self.found.since) // step // joined
        yield Text(" " * width + self._axis(size, joined), style="dim", no_wrap=True)
        if 0 <= now < size:
            yield Text(" " * (width + now) + "v", style="bold", no_wrap=True)
        for name, lane in zip(names, self.found.lanes, strict=True):
            line = Text(name.ljust(width), no_wrap=True, style="" if lane.state == "active" else "dim")
            for cells in self._joined(lane, size, joined):
                line.append(*_mark(cells))
            yield line

    def _name(self, lane: TimelineLane) -> str:
        name = f"{lane.tenant}/{lane.schedule}" if self.show_tenants else lane.schedule
        return name if lane.is_exact else f"{name} ~"

    def _joined(self, lane: TimelineLane, size: int, joined: int) -> list[list[TimelineCell]]:
        columns: list[list[TimelineCell]] = [[] for _ in range(size)]
        for cell in lane.cells:
            first = (cell.at - self.found.since) // self.found.step // joined
            end = (cell.end - self.found.since) // self.found.step
            for column in columns[first : -(-end // joined)]:
                column.append(cell)
        return columns

    def _axis(self, size: int, joined: int) -> str:
        """Return the local times above the columns: as many as have room."""
        length = self.found.until - self.found.since
        line = ""
        for column in range(0, max(1, size - _LABEL + 2), max(_LABEL + 3, size // 6)):
            moment = self.zone.show(to_ms(self.found.since + column * joined * self.found.step))
            line = line.ljust(column) + (f"{moment:%m-%d}" if length.days >= 2 else f"{moment:%H:%M}")
        return line


def _mark(cells: Sequence[TimelineCell]) -> tuple[str, str]:
    """Return the character of some columns and its style; a failure is visible beside other runs."""
    for name, mark in _MARKS.items():
        if any(getattr(cell, name) for cell in cells):
            return mark, STYLES[_STYLES[name]]
    return " ", ""
