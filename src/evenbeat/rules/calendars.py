"""Schedules with calendars: the ledger of removed ticks, and a schedule whose calendars have changed. Pure.

A row of the ledger for ticks that a calendar removed or moved is written when a fire, a skip or a change
passes them, or the ticks to which they moved: no later change of the calendar can bring them back by then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import starmap
from typing import NamedTuple

from msgspec.structs import astuple, replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.rules.ticks import own_trigger, readable_trigger, tick_run_id
from evenbeat.triggers import Calendared, Every, Trigger, parse_trigger
from evenbeat.triggers.calendar_copies import read_copies, with_earlier
from evenbeat.triggers.calendar_moves import REACH
from evenbeat.triggers.calendared import Removed

# A row with so many earlier contents of its calendars keeps no more because of a pause.
_MOST_PHASES = 32
_YEAR, _PART = 366 * 86_400_000, 31 * 86_400_000


def passed_rows(
    schedule: ScheduleRecord, runs: Sequence[RunRecord], skipped: Sequence[Skipped], now: Instant
) -> tuple[Skipped, ...]:
    """Return ledger rows for the removed ticks that a step passes which fires or skips these ticks."""
    passed = [run.tick for run in runs if run.tick is not None] + [row.last for row in skipped]
    trigger = own_trigger(schedule)
    if not passed or not isinstance(trigger, Calendared):
        return ()
    last = max(passed) if schedule.moved is None else max(*passed, schedule.moved)
    # A tick that a user moved to a later time is not one of the trigger's: its own next tick records.
    edge = trigger.prev_ms(last + 1)
    if edge is None:
        return ()
    return _rows(schedule, trigger, edge, {run.tick for run in runs if run.tick is not None}, now)


def removed_until(schedule: ScheduleRecord, now: Instant) -> tuple[Skipped, ...]:
    """Return ledger rows for the removed ticks since the last tick that fired: the trigger ends now.

    Ticks that wait for the day to which they moved are removed by that.
    """
    trigger = own_trigger(schedule)
    if not isinstance(trigger, Calendared):
        return ()
    waiting = trigger.waiting_ms(now, bare_since(schedule))
    lost = (_row(schedule, replace(each, moved_to=None), (), now) for each in waiting)
    return (*_rows(schedule, trigger, now, (), now), *lost)


def _rows(
    schedule: ScheduleRecord, trigger: Calendared, until: Instant, fired: Collection[Instant], now: Instant
) -> tuple[Skipped, ...]:
    """Return ledger rows for the removed ticks that are settled after the last recorded one, up to
    ``until``."""
    coming = schedule.next_tick if schedule.moved is None else schedule.moved
    since = max(schedule.created_at, schedule.anchor)
    # A schedule without a coming tick has passed its last one. If that is still to come, a user moved it to
    # an earlier time, where it ran: the fire has recorded all removed ticks before it.
    if coming is None and trigger.next_ms(until) is not None:
        return ()
    before = trigger.prev_ms(until + 1 if coming is None else coming)
    if before is not None:
        since = max(since, before)
    if since >= until:
        return ()
    found = trigger.settled_ms(since + 1, until + 1, bare_since(schedule))
    return tuple(_row(schedule, gone, fired, now) for gone in found)


def _row(schedule: ScheduleRecord, gone: Removed, fired: Collection[Instant], now: Instant) -> Skipped:
    # A tick that was itself coalesced or skipped has no run to name.
    has_run = gone.moved_to is not None and gone.moved_to in fired
    return Skipped(
        tenant=schedule.tenant,
        schedule=schedule.name,
        generation=schedule.generation,
        first=gone.first,
        last=gone.last,
        count=gone.count,
        reason="calendar",
        recorded_at=now,
        run=tick_run_id(schedule, schedule.generation, gone.moved_to) if gone.moved_to and has_run else None,
    )


class Refused(NamedTuple):
    """Ticks that calendars removed, and which ones refuse all of them."""

    ticks: Removed
    calendars: tuple[str, ...]


def coming_removed(trigger: Calendared, after: Instant, most: int) -> list[Refused]:
    """Return the next ticks after an instant that calendars remove or move: at most so many ranges, within a
    year. Ticks that different calendars refuse are different ranges."""
    found: list[Refused] = []
    end = after + _YEAR
    while after < end:
        # In parts: most calendars remove something soon.
        until = min(end, after + _PART)
        for gone in trigger.removed_ms(after + 1, until + 1):
            for part in starmap(Refused, trigger.refusals(gone)):
                if found and _is_one_range(trigger, found[-1], part):
                    first, _, number, moved_to = astuple(found[-1].ticks)
                    longer = Removed(first, part.ticks.last, number + part.ticks.count, moved_to)
                    found[-1] = Refused(longer, part.calendars)
                elif len(found) == most:
                    return found
                else:
                    found.append(part)
        after = until
    return found


def _is_one_range(trigger: Calendared, before: Refused, after: Refused) -> bool:
    return (
        before.calendars == after.calendars
        and before.ticks.moved_to == after.ticks.moved_to
        and trigger.bare.next_ms(before.ticks.last) == after.ticks.first
    )


class Recalendared(NamedTuple):
    """A schedule with new calendars, and ledger rows for ticks that the old ones removed."""

    schedule: ScheduleRecord
    skipped: tuple[Skipped, ...] = ()


def recalendared(before: ScheduleRecord, changed: ScheduleRecord, now: Instant) -> Recalendared:
    """Return ``changed``, which has new copies of the calendars of ``before``, with its next tick anew.

    A tick that waits, or that a user moved, stays; the new contents apply to the ticks after it. Otherwise
    they apply from now on. An interval keeps its phase. No tick of the past appears.
    """
    trigger = own_trigger(before)
    assert isinstance(trigger, Calendared)
    old, new = read_copies(before.calendars), read_copies(changed.calendars)
    coming = before.next_tick
    first = trigger.next_ms(max(now, before.anchor))
    if coming is not None and (before.moved is not None or coming != first):
        until = max(now, coming, before.moved or 0) // 1000 + 1
        copies = with_earlier(new, old, until=until, since=0, given=old.history.given)
        wake_at = coming if changed.state == "active" else changed.wake_at
        return Recalendared(replace(changed, calendars=copies.text, wake_at=wake_at))
    # Finished before its last tick: a user moved that one to an earlier time, where it ran. It counts as
    # passed, and so do the ticks before it that are in the ledger since then.
    done = now if coming is not None or first is None else first
    until = done // 1000 + 1
    given = before.anchor if old.history.given is None else old.history.given
    # Ticks that move depend on what the calendars contained when they were refused.
    since = until if trigger.move == "skip" else until - REACH // 1000
    copies = with_earlier(new, old, until=until, since=since, given=given)
    changed = replace(changed, calendars=copies.text, anchor=_kept_anchor(changed, done), moved=None)
    tick = own_trigger(changed).next_ms(max(done, changed.anchor))
    changed = replace(changed, next_tick=tick, fire_seq=changed.fire_seq + 1)
    if changed.state != "paused":
        changed = replace(changed, wake_at=tick, state="finished" if tick is None else "active")
    return Recalendared(changed, _rows(before, trigger, now, (), now))


def keeps_pause(schedule: ScheduleRecord) -> bool:
    """Return whether the ticks of a pause stay for the resume when the schedule's calendars change.

    The row keeps what the calendars contained until then. After too many changes in one pause, it would grow
    without end.
    """
    return len(read_copies(schedule.calendars).phases) < _MOST_PHASES


def is_finished_by_calendar(schedule: ScheduleRecord, now: Instant) -> bool:
    """Return whether only its calendars leave a finished schedule without ticks."""
    if schedule.state != "finished" or not schedule.calendars:
        return False
    bare = bare_row(schedule)
    return readable_trigger(bare) is not None and own_trigger(bare).next_ms(now) is not None


def _kept_anchor(schedule: ScheduleRecord, done: Instant) -> Instant:
    """Return from when the trigger counts with its new calendars: after ``done``, in the same phase."""
    bare = bare_trigger(parse_trigger(schedule.trigger))
    if isinstance(bare, Every) and bare.start is None and bare.period and schedule.anchor < done:
        return schedule.anchor + (done - schedule.anchor) // bare.period * bare.period
    return max(schedule.anchor, done)


def bare_anchor(schedule: ScheduleRecord) -> Instant:
    """Return the schedule's anchor before the first change of its calendars."""
    given = read_copies(schedule.calendars).history.given if schedule.calendars else None
    return schedule.anchor if given is None else given


def bare_since(schedule: ScheduleRecord) -> Instant:
    """Return the instant from which the bare trigger applies, whatever its calendars contained."""
    return max(schedule.created_at, bare_anchor(schedule))


def bare_row(schedule: ScheduleRecord) -> ScheduleRecord:
    """Return the schedule as one without calendars.

    The ledger and the runs say what its calendars did to these ticks before they last changed.
    """
    if not schedule.calendars:
        return schedule
    bare = str(bare_trigger(parse_trigger(schedule.trigger)))
    return replace(schedule, trigger=bare, calendars="", anchor=bare_anchor(schedule))


def readable_contents(copies: str) -> str | None:
    """Return the present contents of calendars from the copies of a row; None if they can't be read."""
    try:
        return contents(copies)
    except InvalidValue:
        return None


def contents(copies: str) -> str:
    """Return the present contents of calendars from the copies of a row, without their history."""
    return read_copies(copies).present.text if copies else ""


def bare_trigger(trigger: Trigger) -> Trigger:
    """Return a trigger without its calendars."""
    return trigger.bare if isinstance(trigger, Calendared) else trigger


def stopped_by(schedule: ScheduleRecord, now: Instant) -> tuple[str, ...]:
    """Return the calendars that leave a schedule no tick to come, although its bare trigger has some; none if
    it has a tick, or if it ended for another reason."""
    if not schedule.calendars or schedule.next_tick is not None or readable_trigger(schedule) is None:
        return ()
    trigger = own_trigger(schedule)
    if not isinstance(trigger, Calendared) or trigger.bare.next_ms(max(now, schedule.anchor)) is None:
        return ()
    return trigger.names


def check_ticks(schedule: ScheduleRecord, tick: Instant | None) -> None:
    """Refuse a schedule with calendars that leave it no tick, although its bare trigger has some."""
    trigger = own_trigger(schedule)
    if tick is None and isinstance(trigger, Calendared) and trigger.bare.next_ms(schedule.anchor) is not None:
        raise InvalidTrigger(
            schedule.trigger,
            f" has no tick: the calendars ({', '.join(trigger.names)}) leave none",
            field="skip" if trigger.skip else "only",
            value=",".join(trigger.skip or trigger.only),
            hint="compare its times with the calendars: evenbeat calendars show NAME",
        )
