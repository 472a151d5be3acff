"""The account of a schedule: reads the records of its ticks, and adds them up."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from evenbeat.app.tick_records import TickRecords, covered, runs_since
from evenbeat.core.explanations import Account
from evenbeat.core.instants import Instant, Moment, read_period
from evenbeat.core.records import RunRecord, RunState, ScheduleRecord, Skipped
from evenbeat.errors import DamagedSchedule, InvalidValue, shown
from evenbeat.node.pruner import purged_before
from evenbeat.observe.accounts import account_view
from evenbeat.rules.accounts import (
    MOST_TICKS,
    Outcome,
    Period,
    TickTally,
    counted_period,
    expected_ticks,
    is_of_trigger,
    tally,
    ticks_run_twice,
    trigger_since,
)
from evenbeat.rules.calendars import bare_row, bare_since
from evenbeat.rules.dependencies import PENDING, is_after_success, is_on_success, pending_keys
from evenbeat.rules.firing import CLOCKS_APART
from evenbeat.rules.ticks import own_trigger
from evenbeat.stores.base import Store
from evenbeat.triggers import Calendared
from evenbeat.triggers.calendar_moves import REACH
from evenbeat.triggers.calendared import Removed

# Milliseconds that an account may reach ahead: counting the ticks of millennia takes seconds.
_FARTHEST = 366 * 86_400_000
# So many ticks without a record are searched for in the runs of moved ticks; more have other reasons.
_MOST_SEARCHED = 100
# So many of the newest runs are searched for ticks that ran twice.
_MOST_RUNS = 2 * MOST_TICKS


def account_of(
    store: Store, row: ScheduleRecord, since: Moment | None = None, until: Moment | None = None
) -> Account:
    """Return the account of a schedule's ticks from ``since`` to before ``until``.

    ``row`` was read before the records: all ticks before its watermark have one by then.
    """
    if row.damage:
        raise DamagedSchedule(row.tenant, row.name, row.damage)
    bare = bare_row(row)
    period = counted_period(bare, *_asked(row, since, until, store.now()), purged_before(store, row.tenant))
    if is_on_success(row):
        return _successes(store, row, period)
    # A row does not keep all earlier contents of its calendars. The ledger has the ticks that they removed.
    edge = period.start
    if row.calendars:
        edge = min(period.end, max(period.start, trigger_since(row) + 1))
    parts = [_present(store, row, period._replace(start=edge))]
    if period.start < edge:
        parts.insert(0, _earlier(store, row, period._replace(end=edge)))
    # Read again: a node records a purge before it deletes anything, so no record is taken for missing.
    purged = purged_before(store, row.tenant)
    if purged is not None and purged > period.start:
        period = Period(purged, max(purged, period.end), "purged")
        parts = [part.since(purged) for part in parts]
    outcomes: Counter[Outcome] = Counter()
    states: Counter[RunState] = Counter()
    doubled: list[Instant] = []
    missing: list[Instant] = []
    moved = 0
    standing: set[str] = set()
    for part in parts:
        counted = tally(part.row, part.ticks, part.runs, part.ledger)
        found = _moved(store.now(), counted.unexplained, part)
        standing |= {record.id for record in found.values() if isinstance(record, RunRecord)}
        missing += [tick for tick in counted.unexplained if tick not in found]
        moved += len(found)
        outcomes += counted.outcomes
        outcomes["calendar"] += part.removed_count()
        states += counted.states
        doubled += counted.doubled
    expected = sum(len(part.ticks) + part.removed_count() for part in parts)
    doubled = sorted({*doubled, *_run_twice(store, row, period, standing)})
    total = TickTally(outcomes, states, (), tuple(doubled))
    return account_view(row, period, expected, total, moved=moved, missing=missing)


def _run_twice(store: Store, row: ScheduleRecord, period: Period, standing: set[str]) -> list[Instant]:
    """Return the ticks of the period that have several runs, of whichever generations; the records of a tick
    are read of its newest generation alone. The runs ``standing`` for other ticks, which a user moved, do not
    count."""
    found = islice(runs_since(store, row, period.start - CLOCKS_APART), _MOST_RUNS)
    return ticks_run_twice((run for run in found if run.id not in standing), period)


class _Part(NamedTuple):
    """A part of the period, the ticks that are expected in it, and their records."""

    row: ScheduleRecord
    period: Period
    ticks: list[Instant]
    runs: dict[Instant, list[RunRecord]]
    ledger: list[Skipped]
    records: TickRecords
    removed: Sequence[Removed]
    """The ticks of the bare trigger that calendars removed or moved."""

    def since(self, start: Instant) -> _Part:
        """Return the part without what is before an instant."""
        if start <= self.period.start:
            return self
        bare = own_trigger(bare_row(self.row))
        removed = []
        for gone in self.removed:
            first = bare.next_ms(max(start, gone.first) - 1)
            if first is not None and first <= gone.last:
                removed.append(Removed(first, gone.last, bare.count_ms(first, gone.last + 1)))
        period = self.period._replace(start=start, end=max(start, self.period.end))
        ticks = [tick for tick in self.ticks if tick >= start]
        return self._replace(period=period, ticks=ticks, removed=removed)

    def removed_count(self) -> int:
        return sum(gone.count for gone in self.removed)


def _present(store: Store, row: ScheduleRecord, period: Period) -> _Part:
    """Read the part for which the present trigger has the ticks."""
    trigger = own_trigger(row)
    removed = trigger.removed_ms(period.start, period.end) if isinstance(trigger, Calendared) else ()
    return _read(row, period, expected_ticks(row, period), TickRecords(store, row), removed)


def _earlier(store: Store, row: ScheduleRecord, period: Period) -> _Part:
    """Read the part before the calendars last changed."""
    bare = bare_row(row)
    every = expected_ticks(bare, period)
    records = TickRecords(store, bare, removed=True)
    rows = [
        each
        for each in records.ledger(period.start, period.end)
        if each.reason == "calendar" and is_of_trigger(each, bare)
    ]
    trigger = own_trigger(row)
    assert isinstance(trigger, Calendared)
    # Ticks that wait for a free day have no row yet.
    coming = trigger.settled_ms(period.end, period.end + 2 * REACH, bare_since(row))
    gone = covered(every, rows).keys() | {
        tick for each in coming for tick in every if each.first <= tick <= each.last
    }
    named = {int(each.run.rpartition("/")[2]) for each in rows if each.run is not None}
    inside = {tick for tick in named if period.start <= tick < period.end}
    ticks = sorted(inside | (set(every) - gone))
    removed = [Removed(tick, tick, 1) for tick in sorted(gone)]
    return _read(bare, period, ticks, records, removed)


def _read(
    row: ScheduleRecord,
    period: Period,
    ticks: list[Instant],
    records: TickRecords,
    removed: Sequence[Removed],
) -> _Part:
    ledger = [each for each in records.ledger(period.start, period.end) if each.reason != "calendar"]
    present = (each for each in ledger if is_of_trigger(each, row))
    runs = records.runs_of(ticks, covered(ticks, present))
    return _Part(row, period, ticks, runs, ledger, records, removed)


def _successes(store: Store, row: ScheduleRecord, period: Period) -> Account:
    """Return the account of a schedule that fires on success: each success that was recorded for it."""
    outcomes: Counter[Outcome] = Counter()
    states: Counter[RunState] = Counter()
    inside = range(period.start, period.end)
    for run in islice(runs_since(store, row, period.start), MOST_TICKS):
        if is_after_success(run) and run.created_at in inside:
            outcomes["ran"] += 1
            states[run.state] += 1
    for skipped in store.find_skipped(row.tenant, row.name, MOST_TICKS):
        if skipped.recorded_at in inside:
            outcomes[skipped.reason] += skipped.count
    start, end = pending_keys(row.name)
    waiting = store.find_records(PENDING, tenant=row.tenant, start=start, end=end, limit=MOST_TICKS)
    outcomes["pending"] = len(waiting)
    counted = TickTally(outcomes, states, (), ())
    return account_view(row, period, outcomes.total(), counted, moved=0, missing=[])


def _asked(
    row: ScheduleRecord, since: Moment | None, until: Moment | None, now: Instant
) -> tuple[Instant | None, Instant]:
    """Return the period that was asked for; by default all until now."""
    start, end = read_period(since, until, now, own_trigger(row).tzinfo)
    if end is None:
        end = now + 1
        if start is not None and start >= end:
            hint = "give an earlier time, or also an end"
            raise InvalidValue(
                f"since {shown(since)} is in the future", field="since", value=since, hint=hint
            )
    if end > now + _FARTHEST:
        hint = "give an earlier end, or leave it out: until now"
        raise InvalidValue(
            f"until {shown(until)} is more than a year ahead", field="until", value=until, hint=hint
        )
    return start, end


def _moved(now: Instant, unexplained: Sequence[Instant], part: _Part) -> dict[Instant, RunRecord | Skipped]:
    """Return those of the unexplained ticks that a user moved to an earlier time, with the records that stand
    for them."""
    moved: dict[Instant, RunRecord | Skipped] = {}
    for tick in unexplained[:_MOST_SEARCHED]:
        # The moved tick fired before the next tick that has a run, or together with it.
        later = part.ticks[bisect_right(part.ticks, tick) :]
        fired_by = next((run.created_at for after in later for run in part.runs.get(after, ())), now)
        if (record := part.records.moved_from(tick, fired_by)) is not None:
            moved[tick] = record
    return moved
