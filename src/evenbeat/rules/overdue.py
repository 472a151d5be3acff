"""Ticks that are overdue when a user changes a schedule: they fire or are skipped in the same step. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Reason, ScheduleRecord
from evenbeat.rules.firing import BYTES_A_STEP, Active, Planned, plan, skip_until, skipped_ticks
from evenbeat.rules.ticks import readable_trigger

# A change that finds a backlog adds about this many of its runs in one step.
RUNS_A_CHANGE = 500


def fire_overdue(
    schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...], *, keep_waiting: bool
) -> Planned:
    """Fire overdue ticks by the old policies; record those that have to wait as "skipped: changed".

    With ``keep_waiting``, a tick that waits stays. The plan is unfinished if it has as many runs as a store
    should write at once.
    """
    if readable_trigger(schedule) is None:
        return skip_overdue(schedule, now, "changed", even_paused=False)
    planned = _after_ended_pause(schedule, now)
    while (current := planned.schedule).state == "active" and (current.next_tick or now + 1) <= now:
        if is_long(planned):
            return planned._replace(unfinished=True)
        # A tick before the change is overdue, even if its spread would fire it after the change.
        step = plan(replace(current, spread=0), now, active)
        step = step._replace(schedule=replace(step.schedule, spread=schedule.spread))
        if step.schedule.next_tick == current.next_tick:
            if keep_waiting:
                return _combined(planned, step)
            return _combined(planned, skip_overdue(current, now, "changed", even_paused=False))
        planned = _combined(planned, step)
        active += tuple(Active(run.id, run.state) for run in step.runs)
    return planned


def is_long(planned: Planned) -> bool:
    """Return whether a plan has as many runs as a store should write at once."""
    return len(planned.runs) >= RUNS_A_CHANGE or sum(len(run.payload) for run in planned.runs) >= BYTES_A_STEP


def _after_ended_pause(schedule: ScheduleRecord, now: Instant) -> Planned:
    """End a pause whose end has passed and that no node has ended yet."""
    if schedule.state == "paused" and schedule.paused_until is not None and schedule.paused_until <= now:
        return plan(schedule, now)
    return Planned(schedule)


def skip_overdue(schedule: ScheduleRecord, now: Instant, reason: Reason, *, even_paused: bool) -> Planned:
    """Record overdue ticks as skipped, of a paused schedule only with ``even_paused``."""
    if readable_trigger(schedule) is None:
        tick = schedule.next_tick
        if schedule.state != "active" or tick is None or tick > now:
            return Planned(schedule)
        return Planned(schedule, (), (skipped_ticks(schedule, tick, tick, 1, reason, now),))
    planned = _after_ended_pause(schedule, now)
    is_counted = planned.schedule.state == "active" or (even_paused and planned.schedule.state == "paused")
    if not is_counted or (planned.schedule.next_tick or now + 1) > now:
        return planned
    return _combined(planned, skip_until(planned.schedule, now + 1, reason, now))


def _combined(first: Planned, then: Planned) -> Planned:
    return Planned(
        then.schedule,
        first.runs + then.runs,
        first.skipped + then.skipped,
        then.cancels,
        then.deferred,
        spent=first.spent + then.spent,
    )
