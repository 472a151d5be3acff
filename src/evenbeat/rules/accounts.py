"""The account of a schedule's ticks: each tick of its trigger, and the record that it left. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.core.explanations import CountedFrom
from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import Reason, RunRecord, RunState, ScheduleRecord, Skipped
from evenbeat.errors import InvalidValue
from evenbeat.rules.code_only import is_from_memory
from evenbeat.rules.ticks import own_trigger
from evenbeat.triggers import At, Trigger

MOST_TICKS = 100_000

Outcome: TypeAlias = Reason | Literal["ran", "moved", "pending", "missing"]


class Period(NamedTuple):
    """The period of an account: ticks in [start, end)."""

    start: Instant
    end: Instant
    reason: CountedFrom
    """Why it starts there."""


class TickTally(NamedTuple):
    """The outcome of each tick of a period."""

    outcomes: Counter[Outcome]
    states: Counter[RunState]
    unexplained: tuple[Instant, ...]
    """Ticks without any record that should have one."""
    doubled: tuple[Instant, ...]


def trigger_since(schedule: ScheduleRecord) -> Instant:
    """Return the instant from which the present trigger applies: its ticks are later."""
    return max(schedule.created_at, schedule.anchor)


def is_of_trigger(row: Skipped, schedule: ScheduleRecord) -> bool:
    """Return whether a row of the ledger is about ticks of the present trigger.

    A row may be recorded before the trigger counts: a user passes over ticks before ``start_at``, or has a
    clock that is behind. A new trigger with a tick that was passed over before begins a generation, so a row
    of the present generation is never about the ticks of an earlier trigger.
    """
    return row.recorded_at >= trigger_since(schedule) or row.generation == schedule.generation


def counted_period(
    schedule: ScheduleRecord, since: Instant | None, until: Instant, purged: Instant | None
) -> Period:
    """Return the part of the period that can be counted: with the present trigger, before the schedule was
    deleted, and after the history that nodes have deleted."""
    end = until if schedule.state != "deleted" else min(until, schedule.updated_at + 1)
    given = trigger_since(schedule)
    reason: CountedFrom = "created" if given <= schedule.created_at else "trigger"
    start = given + 1
    trigger = own_trigger(schedule)
    if isinstance(trigger, At):
        # A single instant in the past is due at once.
        start = min(start, trigger.instant)
    if purged is not None and purged > start:
        start, reason = purged, "purged"
    if since is not None and since >= start:
        start, reason = since, "asked"
    return Period(start, max(start, end), reason)


def expected_ticks(schedule: ScheduleRecord, period: Period) -> list[Instant]:
    """Return the ticks of the trigger in the period; refuse a period with too many of them."""
    trigger = own_trigger(schedule)
    number = trigger.count_ms(period.start, period.end)
    if number > MOST_TICKS:
        raise InvalidValue(
            f"schedule {schedule.name} has {number:,} ticks in this period, more than {MOST_TICKS:,}",
            field="since",
            value=write_instant(period.start),
            hint="shorten the period: give a later since, or an earlier until",
        )
    return list(trigger.between_ms(period.start, period.end))


class TickOutcome(NamedTuple):
    """What became of one tick."""

    tick: Instant
    record: RunRecord | Reason | None
    """Its run, or why it has none; None if it left no record."""
    is_pending: bool
    """Whether it has not fired yet."""
    is_doubled: bool


def outcomes_of(
    schedule: ScheduleRecord,
    ticks: Sequence[Instant],
    runs: Mapping[Instant, Sequence[RunRecord]],
    ledger: Iterable[Skipped],
) -> Iterator[TickOutcome]:
    """Yield what became of each of these ticks, by the runs and the rows of the ledger that cover them."""
    # Older rows are about the ticks of an earlier trigger.
    rows = [row for row in ledger if is_of_trigger(row, schedule)]
    recorded = _covered(own_trigger(schedule), ticks, rows)
    for tick in ticks:
        # A user may move a tick to an instant that has a record: the newest generation counts.
        found: list[tuple[int, Reason | RunRecord]] = [
            (run.generation or 0, run) for run in runs.get(tick, ())
        ]
        from_memory = {run.generation for run in runs.get(tick, ()) if is_from_memory(run)}
        found += [
            (row.generation, row.reason)
            for row in recorded.get(tick, ())
            if row.generation not in from_memory
        ]
        newest = max((generation for generation, _ in found), default=0)
        if tick == schedule.next_tick and newest < schedule.generation:
            yield TickOutcome(tick, None, is_pending=True, is_doubled=False)
        elif not found:
            is_pending = schedule.next_tick is not None and tick >= schedule.next_tick
            yield TickOutcome(tick, None, is_pending, is_doubled=False)
        else:
            record = next(record for generation, record in found if generation == newest)
            is_doubled = len({generation for generation, _ in found}) < len(found)
            yield TickOutcome(tick, record, is_pending=False, is_doubled=is_doubled)


def tally(
    schedule: ScheduleRecord,
    ticks: Sequence[Instant],
    runs: Mapping[Instant, Sequence[RunRecord]],
    ledger: Iterable[Skipped],
) -> TickTally:
    """Return what became of these ticks, added up."""
    outcomes: Counter[Outcome] = Counter()
    states: Counter[RunState] = Counter()
    unexplained: list[Instant] = []
    doubled: list[Instant] = []
    for tick, record, is_pending, is_doubled in outcomes_of(schedule, ticks, runs, ledger):
        if isinstance(record, RunRecord):
            outcomes["ran"] += 1
            states[record.state] += 1
        elif record is not None:
            outcomes[record] += 1
        elif is_pending:
            outcomes["pending"] += 1
        else:
            unexplained.append(tick)
        if is_doubled:
            doubled.append(tick)
    return TickTally(outcomes, states, tuple(unexplained), tuple(doubled))


def ticks_run_twice(runs: Iterable[RunRecord], period: Period) -> list[Instant]:
    """Return the ticks of the period that have several of these runs, of the same or of two generations."""
    ticks = (run.tick for run in runs if run.cause == "tick")
    counts = Counter(tick for tick in ticks if tick is not None and period.start <= tick < period.end)
    return sorted(tick for tick, number in counts.items() if number > 1)


def is_tick(trigger: Trigger, instant: Instant) -> bool:
    """Return whether the trigger has a tick at this instant."""
    return trigger.next_ms(instant - 1) == instant


def _covered(
    trigger: Trigger, ticks: Sequence[Instant], rows: Sequence[Skipped]
) -> dict[Instant, list[Skipped]]:
    """Return the rows that cover each tick."""
    covered: dict[Instant, list[Skipped]] = {}
    for row in rows:
        for tick in ticks[bisect_left(ticks, row.first) : bisect_right(ticks, row.last)]:
            covered.setdefault(tick, []).append(row)
    for row in rows:
        for tick in _uncounted(trigger, ticks, row, covered):
            covered[tick].remove(row)
    return covered


def _uncounted(
    trigger: Trigger, ticks: Sequence[Instant], row: Skipped, covered: Mapping[Instant, Sequence[Skipped]]
) -> Sequence[Instant]:
    """Return ticks in the range of a row that its count leaves out: the last ones, as none is known to be
    another.

    A row that begins with a moved tick leaves out the ticks that moved ones replace, and is not checked. The
    moved tick may also be one of the trigger's own: then the row leaves out one tick, and those that a user
    had passed over before, which have a row of an earlier generation. A row that begins with a tick which a
    row of an earlier generation has settled is not checked either: a user moved a tick exactly onto it.
    """
    inside = ticks[bisect_left(ticks, row.first) : bisect_right(ticks, row.last)]
    if len(inside) <= row.count or not is_tick(trigger, row.first):
        return ()
    if any(_is_settled_before(other, row) for other in covered.get(row.first, ())):
        return ()
    if len(inside) != trigger.count_ms(row.first, row.last + 1):
        return ()  # a part of the row lies outside of the period
    passed = sum(
        1 for tick in inside if any(other.generation < row.generation for other in covered.get(tick, ()))
    )
    # Each move to an earlier time begins a generation.
    lost = len(inside) - row.count - passed - (row.generation > 1)
    return inside[-lost:] if lost > 0 else ()


def _is_settled_before(other: Skipped, row: Skipped) -> bool:
    """Return whether another row settled the first tick of this one before a user moved a tick onto it."""
    return other.generation < row.generation and other.reason != "rescheduled"
