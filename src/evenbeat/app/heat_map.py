"""The heat map of a schedule: reads the records of its ticks, and sorts them into hours or days."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import get_args

from evenbeat.app.figures import FigureReader, Scope
from evenbeat.app.session import AppSession
from evenbeat.app.tick_records import TickRecords, runs_since
from evenbeat.core.cells import CellLength, HeatCell, HeatMap
from evenbeat.core.checks import check_one_of
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant, Moment, from_ms, read_moment
from evenbeat.core.records import RunRecord, RunState, ScheduleRecord, Skipped
from evenbeat.errors import DamagedSchedule, InvalidTrigger, InvalidValue, shown
from evenbeat.node.pruner import purged_before
from evenbeat.rules.accounts import counted_period, is_of_trigger, is_tick, outcomes_of, trigger_since
from evenbeat.rules.cells import ahead_counts, cell_edges, evenly, place_of
from evenbeat.rules.rollups import HOUR, KEPT
from evenbeat.rules.ticks import own_trigger, trigger_of
from evenbeat.stores.base import Store
from evenbeat.triggers import Trigger
from evenbeat.triggers.zones import Zone, read_zone

MOST_TICKS = 20_000
"""So many ticks or runs are counted one by one; of more, the figures of the nodes are shown. A week of a
schedule with a run each minute (10,080) takes 0.23 s on SQLite in a table of 1,000,000 runs, and a day 43 ms.
A week of figures of three nodes takes 0.1 s."""
_DAY = 24 * HOUR
# How far a map may reach back and ahead, in milliseconds: 1,704 hours, or 766 days.
_BACK: dict[CellLength, int] = {"hour": 40 * _DAY, "day": 400 * _DAY}
_AHEAD: dict[CellLength, int] = {"hour": 31 * _DAY, "day": 366 * _DAY}

_COLUMNS: dict[RunState, str] = {
    "queued": "running",
    "running": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}


class _TooMany(Exception):
    """The records are too many to count each."""


def heat_map_of(
    session: AppSession,
    row: ScheduleRecord,
    since: Moment,
    until: Moment,
    *,
    by: CellLength = "hour",
    tz: str | None = None,
) -> HeatMap:
    """Return the heat map of a schedule, as ``Schedules.cells`` does. ``row`` was read before the records."""
    trigger = _trigger(row)
    check_one_of("by", by, get_args(CellLength))
    zone = read_zone(trigger.tzinfo if tz is None else tz)
    store = session.store()
    now = store.now()
    start, end = _range(since, until, by, zone, now)
    counts = _Counts(cell_edges(zone, by, start, end))
    counted_from = max(counts.edges[0], purged_before(store, row.tenant) or 0)
    is_exact = True
    try:
        if counts.edges[0] < now:
            is_exact = _Reader(store, row, counts).read(now)
    except _TooMany:
        is_exact = False
        counts = _Counts(cell_edges(read_zone("UTC") if by == "hour" else zone, by, start, end))
        counted_from = _add_figures(session, row, counts, now)
    for at, (planned, paused) in enumerate(zip(*ahead_counts(counts.edges, row), strict=True)):
        counts.add(at, "planned", planned)
        counts.add(at, "paused", paused)
    return HeatMap(
        tenant=row.tenant,
        schedule=row.name,
        zone=zone.key,
        by=by,
        since=from_ms(counts.edges[0], zone.info),
        until=from_ms(counts.edges[-1], zone.info),
        now=from_ms(now, zone.info),
        counted_from=from_ms(counted_from, zone.info),
        is_exact=is_exact,
        cells=tuple(counts.cells(zone)),
    )


def _trigger(row: ScheduleRecord) -> Trigger:
    if row.damage:
        raise DamagedSchedule(row.tenant, row.name, row.damage)
    try:
        return trigger_of(row)
    except InvalidTrigger as error:
        raise DamagedSchedule(row.tenant, row.name, str(error)) from None


def _range(since: Moment, until: Moment, by: CellLength, zone: Zone, now: Instant) -> tuple[Instant, Instant]:
    start = read_moment(since, "since", now, zone.info, ago=True)
    end = read_moment(until, "until", now, zone.info)
    if end <= start:
        raise InvalidValue(
            f"until {shown(str(until))} is not after the start {shown(str(since))}",
            field="until",
            value=until,
            hint="give a later end, such as 2d, which counts from now on",
        )
    if now - start > _BACK[by]:
        raise InvalidValue(
            f"since {shown(str(since))} is more than {write_duration(_BACK[by])} ago",
            field="since",
            value=since,
            hint='give a later time, or by="day"' if by == "hour" else "give a later time",
        )
    if end - now > _AHEAD[by]:
        raise InvalidValue(
            f"until {shown(str(until))} is more than {write_duration(_AHEAD[by])} ahead",
            field="until",
            value=until,
            hint='give an earlier time, or by="day"' if by == "hour" else "give an earlier time",
        )
    return start, end


class _Counts:
    """The counts of each cell, by the names of the fields of a cell."""

    def __init__(self, edges: Sequence[Instant]) -> None:
        self.edges = edges
        names = [name for name in HeatCell.__struct_fields__ if name not in ("at", "end")]
        self._cells = [dict.fromkeys(names, 0) for _ in edges[1:]]

    def add(self, place: int, name: str, number: int = 1) -> None:
        self._cells[place][name] += number

    def add_at(self, instant: Instant, name: str, number: int = 1) -> None:
        """Add to the cell that contains an instant, if there is one."""
        place = place_of(self.edges, instant)
        if place is not None:
            self._cells[place][name] += number

    def cells(self, zone: Zone) -> Iterator[HeatCell]:
        moments = [from_ms(edge, zone.info) for edge in self.edges]
        for at, end, counts in zip(moments, moments[1:], self._cells, strict=False):
            yield HeatCell(at=at, end=end, **counts)


class _Reader:
    """Reads the runs and the ledger of a schedule, and counts each tick."""

    def __init__(self, store: Store, row: ScheduleRecord, counts: _Counts) -> None:
        self._store = store
        self._row = row
        self._counts = counts
        self._start, self._end = counts.edges[0], counts.edges[-1]

    def read(self, now: Instant) -> bool:
        """Count the ticks and runs until now; return whether the cell of each is known. ``_TooMany`` if there
        are more than MOST_TICKS."""
        row, trigger = self._row, own_trigger(self._row)
        ledger = TickRecords(self._store, row).ledger(self._start, self._end)
        # A user who moves a tick to a later time passes over those before it: their rows lie in the future.
        until = max((now, *(each.last for each in ledger))) + 1
        period = counted_period(row, self._start, min(self._end, until), None)
        if trigger.count_ms(period.start, period.end) > MOST_TICKS:
            raise _TooMany
        runs: dict[Instant, list[RunRecord]] = {}
        for run in self._runs():
            self._counts.add_at(_time_of(run), _COLUMNS[run.state])
            if run.cause == "tick" and run.tick is not None:
                runs.setdefault(run.tick, []).append(run)
                self._counts.add_at(run.tick, "fired")
        ticks = list(trigger.between_ms(period.start, period.end))
        for tick, record, _, _ in outcomes_of(row, ticks, runs, ledger):
            if isinstance(record, str):
                self._counts.add_at(tick, _column(record))
        return self._add_others(ledger, period.start)

    def _runs(self) -> Iterator[RunRecord]:
        found = runs_since(self._store, self._row, self._start)
        yield from islice(found, MOST_TICKS)
        if next(found, None) is not None:
            raise _TooMany

    def _add_others(self, ledger: Iterable[Skipped], begin: Instant) -> bool:
        """Count the skipped ticks that are not ticks of the present trigger: those of an earlier one, and
        moved ones. Return whether the cell of each is known."""
        trigger = own_trigger(self._row)
        is_known = True
        for row in ledger:
            if is_of_trigger(row, self._row) and row.last >= begin:
                own = trigger.count_ms(max(row.first, trigger_since(self._row) + 1), row.last + 1)
                if own == row.count or is_tick(trigger, row.first):
                    # A moved tick that lies in the row with the tick that it replaces is counted there.
                    continue
                if own:
                    self._counts.add_at(row.first, _column(row.reason))
                    continue
                # A row of an earlier trigger may have the present generation.
            if row.count == 1:
                self._counts.add_at(row.first, _column(row.reason))
                continue
            for at, number in evenly(self._counts.edges, row.first, row.last, row.count):
                self._counts.add(at, _column(row.reason), number)
            is_known = is_known and place_of(self._counts.edges, row.first) == place_of(
                self._counts.edges, row.last
            )
        return is_known


def _time_of(run: RunRecord) -> Instant:
    return run.scheduled_at if run.cause == "backfill" or run.tick is None else run.tick


def _column(reason: str) -> str:
    return "coalesced" if reason == "coalesced" else "skipped"


def _add_figures(session: AppSession, row: ScheduleRecord, counts: _Counts, now: Instant) -> Instant:
    """Count by the figures that nodes write for each hour of UTC; return from when on there are any."""
    start = max(counts.edges[0], now - KEPT["hour"])
    end = min(now, counts.edges[-1])
    scope = Scope(row.tenant, row.name, None)
    series = FigureReader(session).statistics(from_ms(start), from_ms(end), "hour", scope, 0)
    for point in series.points:
        at = round(point.at.timestamp()) * 1000
        figures = point.figures
        for name in ("fired", "succeeded", "failed", "cancelled"):
            counts.add_at(at, name, getattr(figures, name))
        for reason, number in figures.skipped.items():
            if reason == "calendar":
                continue
            counts.add_at(at, _column(reason), number)
    return start
