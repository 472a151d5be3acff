"""Schedules without a row: every node plans them in memory, and the ids of their runs keep each tick single.
Pure.

Such a schedule has the ids that a row of the same name would use next. So a row that is created while nodes
still plan the schedule in memory fires no tick a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.options import RUN
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue
from evenbeat.rules.definitions import edits
from evenbeat.rules.firing import plan
from evenbeat.rules.ownership import kind_of, may_move
from evenbeat.rules.ticks import spread_delay, trigger_of
from evenbeat.triggers import Calendared, Every, OnSuccess, Trigger

GRACE = 300_000
"""How late a tick may fire unless the schedule says otherwise: a deploy, or a short outage of the store."""
LONGEST_GRACE = 3_600_000
"""The longest grace of a schedule that is in the code only. A constant, so that a node need not know the
settings of all others, which may be stopped, to know for how long a purge must keep the runs of ticks."""
HELD = 2 * LONGEST_GRACE
"""For how many ms after its end every purge keeps the run of a tick that was planned in memory. Only the id
of the run keeps the tick single, and a node that was stopped may still fire it."""
MOST_LATE = 100
"""So many ticks that came too late are recorded; of a longer backlog, the newest."""
_ALLOWED = (*RUN, "description", "tags", "catch_up", "grace", "spread")


class CodeSchedule(NamedTuple):
    """A schedule as a node plans it in memory."""

    row: ScheduleRecord
    """As a row would be; it is never written."""
    since: Instant
    """Ticks before this instant belong to an earlier row."""


class CodeTick(NamedTuple):
    """A tick that is due, or soon will be."""

    start: Instant
    """The tick with the schedule's share of the spread."""
    key: tuple[str, str]
    tick: Instant


def check_code_only(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that need a row, because nodes compare and change it."""
    for option, value in options.items():
        if option not in _ALLOWED or (option == "catch_up" and value != "skip"):
            raise InvalidValue(
                f"{option} of schedule {name} needs a row in the store, and the schedule is in the code only",
                field=option,
                value=value,
                hint="add durable=True, or leave the option out",
            )


def check_code_trigger(name: str, trigger: Trigger) -> None:
    """Refuse a trigger that needs a row: calendars that may change, or successes of another schedule."""
    if isinstance(trigger, Calendared) and trigger.copies is None:
        raise InvalidValue(
            f"calendars of schedule {name} may change, which needs a row, and it is in the code only",
            field="schedule",
            value=str(trigger),
            hint="add durable=True; business-days and weekends, which are built in, need no row",
        )
    if isinstance(trigger, OnSuccess):
        raise InvalidValue(
            f"schedule {name} fires on successes, which needs a row, and it is in the code only",
            field="schedule",
            value=str(trigger),
            hint="add durable=True",
        )


def check_code_grace(name: str, schedule: ScheduleRecord) -> None:
    """Refuse a grace that is longer than purges keep the runs of ticks that were planned in memory."""
    if grace_of(schedule) > LONGEST_GRACE:
        longest = write_duration(LONGEST_GRACE)
        raise InvalidValue(
            f"grace {write_duration(grace_of(schedule))} of schedule {name}, which is in the code only, is "
            f"longer than {longest}",
            field="grace",
            value=write_duration(grace_of(schedule)),
            hint=f"give a grace of at most {longest}, or add durable=True",
        )


def grace_of(schedule: ScheduleRecord) -> int:
    """Return how late a tick of the schedule may fire."""
    return schedule.catch_up.grace if schedule.catch_up.kind == "skip" else GRACE


def in_memory(wanted: ScheduleRecord, stored: ScheduleRecord | None) -> CodeSchedule | None:
    """Return the schedule as nodes plan it in memory; None while the store has a row of it, which they fire.

    ``stored`` is the row, or what a deleted one left behind. An interval without a start of its own counts
    from 1970, so that all nodes agree.
    """
    if stored is None:
        return CodeSchedule(replace(wanted, generation=1, anchor=0), 0)
    if stored.state != "deleted":
        return None
    same_trigger = stored.trigger == wanted.trigger
    row = replace(wanted, generation=stored.generation + 1, anchor=stored.anchor if same_trigger else 0)
    return CodeSchedule(row, stored.updated_at + 1)


def coming_tick(trigger: Every, runs: Iterable[RunRecord], generation: int, now: Instant) -> Instant | None:
    """Return the first tick after now of an interval whose ticks have had runs, the newest first; None if
    none of them was a tick of this generation."""
    ticks = (run.tick for run in runs if run.cause == "tick" and run.generation == generation)
    last = next((tick for tick in ticks if tick is not None), None)
    return None if last is None else last + ((now - last) // trigger.period + 1) * trigger.period


def may_delete_row(stored: ScheduleRecord, managed_by: str) -> bool:
    """Return whether a schedule that ``managed_by`` declared with a row, and no longer does, may lose it.

    A pause and an edit by hand are somebody's decision: such a row stays, and is fired as it says.
    """
    is_untouched = stored.state in ("active", "finished") and not stored.damage and not edits(stored)
    is_ours = kind_of(stored.managed_by) == "code" and may_move(stored, managed_by)
    return is_ours and is_untouched


def trigger_in_memory(schedule: ScheduleRecord) -> Trigger:
    """Return the trigger of a schedule that is planned in memory."""
    return trigger_of(replace(schedule, next_tick=None, moved=None))


def first_of_late(schedule: ScheduleRecord, since: Instant, now: Instant) -> Instant:
    """Return the first tick from ``since`` on to look at, so that at most MOST_LATE ticks are too late."""
    edge = now - grace_of(schedule) - spread_delay(schedule)
    if since >= edge:
        return since
    trigger, first = trigger_in_memory(schedule), edge
    for _ in range(MOST_LATE):
        before = trigger.prev_ms(first)
        if before is None or before < since:
            return since
        first = before
    return first


def run_of(schedule: ScheduleRecord, tick: Instant, now: Instant) -> RunRecord:
    """Return the run of a tick of a schedule that is planned in memory.

    A tick that is later than the grace becomes a run that has expired: a worker cancels it, and so the tick
    is in the history.
    """
    start = tick + spread_delay(schedule)
    due = replace(schedule, state="active", next_tick=tick, moved=None, wake_at=start)
    (run,) = plan(replace(due, overlap="allow", max_concurrent=None, after=""), start).runs
    if not is_late(schedule, tick, now):
        return replace(run, created_at=now)
    grace, expires = grace_of(schedule), run.execution.expires
    over = grace if expires is None else min(expires, grace)
    return replace(run, created_at=now, execution=replace(run.execution, expires=over))


CODE = "/code"
"""``fired_by`` ends with it if the schedule is in the code only."""
MEMORY = "/memory"
"""``fired_by`` ends with it if a node fired the tick in a fallback."""


def fired_from_code(node: str | None) -> str:
    """Return ``fired_by`` of a run whose schedule is in the code only. Purges know such runs by it."""
    return f"{node or 'node'}{CODE}"


def fired_from_memory(node: str | None) -> str:
    """Return ``fired_by`` of a run that a node fired from memory, because the row could not be read."""
    return f"{node or 'node'}{MEMORY}"


def is_from_memory(run: RunRecord) -> bool:
    """Return whether a run was fired from memory in a fallback.

    A node that does not know of it may count its tick as missed when the row can be read again: the run
    counts, and not the ledger.
    """
    return run.fired_by is not None and run.fired_by.endswith(MEMORY)


def added_before(run: RunRecord) -> Instant:
    """Return until when a run of a tick that is planned in memory may be added, by the store's clock: halfway
    between the latest tick that fires and the earliest purge of its run."""
    return run.scheduled_at + (LONGEST_GRACE + HELD) // 2


def is_late(schedule: ScheduleRecord, tick: Instant, now: Instant) -> bool:
    """Return whether a tick of a schedule that is planned in memory comes too late to fire."""
    return tick + spread_delay(schedule) + grace_of(schedule) < now
