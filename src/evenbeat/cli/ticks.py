"""The coming ticks of a trigger, as a JSON document and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from evenbeat.cli.layout import ruled
from evenbeat.cli.local import LocalZone
from evenbeat.cli.phrases import rfc3339
from evenbeat.core.forecasts import TriggerExplanation
from evenbeat.core.instants import MILLISECOND, Instant, from_ms, to_ms, write_instant
from evenbeat.observe.phrases import date_time, span, timespec
from evenbeat.triggers.zones import Zone, read_zone

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

_ANY_WIDTH = 10_000
_DAY = 86_400_000


class Tick(NamedTuple):
    instant: Instant
    away: int
    """Milliseconds from ``--from``, or from now."""
    note: str | None
    """The effect of a clock change on this tick."""


def shown_ticks(explanation: TriggerExplanation) -> list[Tick]:
    """Return the ticks of an explanation."""
    return [Tick(to_ms(tick.at), tick.away // MILLISECOND, tick.note) for tick in explanation.ticks]


def explanation_document(found: TriggerExplanation, mine: LocalZone) -> dict[str, Any]:
    """Return an explanation as a document, without its clock changes."""
    zone = read_zone(found.zone)
    return {
        "trigger": found.trigger,
        "explain": found.words,
        "tz": found.zone,
        "my_tz": mine.name,
        "from": write_instant(to_ms(found.since)),
        "ticks": [_tick_document(tick, zone, mine) for tick in shown_ticks(found)],
        "notes": list(found.notes),
    }


def _tick_document(tick: Tick, zone: Zone, mine: LocalZone) -> dict[str, Any]:
    """Return a tick as a document with RFC 3339 texts, so that no reader needs a calendar."""
    whole, ms = divmod(tick.away, 1000)
    return {
        "at": write_instant(tick.instant),
        "local": rfc3339(from_ms(tick.instant, zone.info)),
        "mine": rfc3339(mine.show(tick.instant)),
        "in_seconds": tick.away / 1000 if ms else whole,
        "note": tick.note,
    }


class _Footnote(NamedTuple):
    """A note on the rows ``first`` to ``last``."""

    first: int
    last: int
    first_time: str
    last_time: str
    words: str

    def rows(self) -> str:
        return f"{self.first}*" if self.first == self.last else f"{self.first}-{self.last}*"

    def text(self) -> str:
        if self.first == self.last:
            return f"{self.first_time} {self.words}"
        return f"{self.first_time} to {self.last_time} {self.words.replace('comes', 'come', 1)}"


def clock_notes(ticks: list[Tick]) -> list[tuple[str, str]]:
    """Return the notes as (rows, text). Adjacent ticks of a day with the same note share one."""
    notes: list[_Footnote] = []
    for number, tick in enumerate(ticks, 1):
        if tick.note is None:
            continue
        time, _, words = tick.note.partition(" ")
        note = _Footnote(number, number, time, time, words)
        if notes and notes[-1].last == number - 1 and notes[-1].words == words:
            if tick.instant - ticks[number - 2].instant < _DAY:
                note = notes.pop()._replace(last=number, last_time=time)
        notes.append(note)
    return [(note.rows(), note.text()) for note in notes]


class TickTable(NamedTuple):
    """A table for rich: number, date in the trigger's zone, date in the local zone if that differs, distance.

    If the line is too short, the weekdays are dropped first, then the local zone: a date is never broken.
    """

    ticks: list[Tick]
    zone: Zone
    mine: LocalZone

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.measure import Measurement

        both = self.mine.differs_from(self.zone)
        unbounded = options.update(width=_ANY_WIDTH)
        for weekday, two_zones in ((True, both), (False, both), (True, False), (False, False)):
            table = self._table(weekday=weekday, two_zones=two_zones, ascii_only=options.ascii_only)
            if Measurement.get(console, unbounded, table).maximum <= options.max_width:
                break
        yield table

    def _table(self, *, weekday: bool, two_zones: bool, ascii_only: bool) -> Table:
        precision = timespec([tick.instant for tick in self.ticks])
        noted = any(tick.note for tick in self.ticks)
        table = ruled(ascii_only=ascii_only)
        table.add_column("#", justify="right", no_wrap=True)
        table.add_column(self.zone.key, no_wrap=True)
        if two_zones:
            table.add_column(self.mine.name, no_wrap=True, style="dim")
        table.add_column("in", justify="right", no_wrap=True, style="cyan")
        for number, tick in enumerate(self.ticks, 1):
            mark = ("*" if tick.note else " ") if noted else ""
            here = from_ms(tick.instant, self.zone.info)
            cells = [f"{number}{mark}", date_time(here, precision, weekday=weekday), _away(tick)]
            if two_zones:
                mine = self.mine.show(tick.instant)
                cells.insert(2, date_time(mine, precision, weekday=weekday))
            table.add_row(*cells, style="yellow" if tick.note else None)
        return table


def _away(tick: Tick) -> str:
    """Return the distance of a tick. One that is past and not fired yet is due."""
    return span(tick.away) if tick.away >= 0 else "due"
