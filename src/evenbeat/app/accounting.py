"""The account of a schedule: reads the records of its ticks, and adds them up."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from evenbeat.app.tick_records import TickRecords, covered, runs_since
from evenbeat.core.explanations import Account
from evenbeat.core.instants import Instant, Moment, read_period
from evenbeat.core.records import RunRecord, RunState, ScheduleRecord
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
)
from evenbeat.rules.dependencies import PENDING, is_after_success, is_on_success, pending_keys
from evenbeat.rules.ticks import own_trigger
from evenbeat.stores.base import Store
from evenbeat.triggers import Calendared

# Milliseconds that an account may reach ahead: counting the ticks of millennia takes seconds.
_FARTHEST = 366 * 86_400_000
# So many ticks without a record are searched for in the runs of moved ticks; more have other reasons.
_MOST_SEARCHED = 100


def account_of(
    store: Store, row: ScheduleRecord, since: Moment | None = None, until: Moment | None = None
) -> Account:
    """Return the account of a schedule's ticks from ``since`` to before ``until``.

    ``row`` was read before the records: all ticks before its watermark have one by then.
    """
    if row.damage:
        raise DamagedSchedule(row.tenant, row.name, row.damage)
    period = counted_period(row, *_asked(row, since, until, store.now()), purged_before(store, row.tenant))
    if is_on_success(row):
        return _successes(store, row, period)
    ticks = expected_ticks(row, period)
    records = TickRecords(store, row)
    ledger = records.ledger(period.start, period.end)
    present = (each for each in ledger if is_of_trigger(each, row))
    runs = records.runs_of(ticks, covered(ticks, present))
    # Read again: a node records a purge before it deletes anything, so no record is taken for missing.
    purged = purged_before(store, row.tenant)
    if purged is not None and purged > period.start:
        period = Period(purged, max(purged, period.end), "purged")
        ticks = [tick for tick in ticks if tick >= purged]
    counted = tally(row, ticks, runs, ledger)
    removed = _removed(row, period)
    counted.outcomes["calendar"] += removed
    moved = _moved(store.now(), counted.unexplained, ticks, runs, records)
    missing = [tick for tick in counted.unexplained if tick not in moved]
    return account_view(row, period, len(ticks) + removed, counted, moved=len(moved), missing=missing)


def _removed(row: ScheduleRecord, period: Period) -> int:
    """Return how many ticks of the bare trigger calendars removed in a period."""
    trigger = own_trigger(row)
    if not isinstance(trigger, Calendared):
        return 0
    return sum(each.count for each in trigger.removed_ms(period.start, period.end))


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


def _moved(
    now: Instant,
    unexplained: Sequence[Instant],
    ticks: Sequence[Instant],
    runs: Mapping[Instant, Sequence[RunRecord]],
    records: TickRecords,
) -> set[Instant]:
    """Return those of the unexplained ticks that a user moved to an earlier time."""
    moved: set[Instant] = set()
    for tick in unexplained[:_MOST_SEARCHED]:
        # The moved tick fired before the next tick that has a run, or together with it.
        later = ticks[bisect_right(ticks, tick) :]
        fired_by = next((run.created_at for after in later for run in runs.get(after, ())), now)
        if records.moved_from(tick, fired_by) is not None:
            moved.add(tick)
    return moved
