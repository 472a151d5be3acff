"""The tick that a question about a time means, also where the clock is changed. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.accounts import trigger_since
from evenbeat.rules.calendars import bare_anchor, bare_row, bare_since
from evenbeat.rules.ticks import own_trigger, spread_delay
from evenbeat.triggers import Calendared, Cron, Trigger

MINUTE = 60_000
ClockEffect: TypeAlias = Literal["skipped", "repeated"]
"""``skipped``: the wall-clock time does not exist on that day. ``repeated``: it comes twice, and the trigger
ticks at the other one."""


class Asked(NamedTuple):
    """The time that a question is about: from ``at`` to before ``until``."""

    at: Instant
    until: Instant
    label: datetime | None = None
    """The wall-clock time in the trigger's zone, without an offset, if it was asked for by that."""


class Place(NamedTuple):
    """The tick that a question is about, and the ticks beside it."""

    tick: Instant | None = None
    before: Instant | None = None
    after: Instant | None = None
    clock: ClockEffect | None = None
    removed: Instant | None = None
    """A tick of the bare trigger in that time that a calendar removed."""


def locate(schedule: ScheduleRecord, asked: Asked) -> Place:
    """Return the tick that the question is about: in that time, or started then because of the spread."""
    trigger = own_trigger(schedule)
    tick = trigger.next_ms(asked.at - 1)
    tick = tick if tick is not None and tick < asked.until else None
    clock: ClockEffect | None = None
    if isinstance(trigger, Cron):
        tick, clock = _by_clock(trigger, asked, tick)
    moved = schedule.next_tick
    if tick is None and moved is not None and asked.at <= moved < asked.until:
        tick = moved
    delay = spread_delay(schedule)
    if tick is None and clock is None and delay:
        started = trigger.next_ms(asked.at - delay - 1)
        tick = started if started is not None and started < asked.until - delay else None
    removed = None
    if tick is None and isinstance(trigger, Calendared):
        removed = trigger.bare.next_ms(asked.at - 1)
        removed = removed if removed is not None and removed < asked.until else None
    place = beside(schedule, trigger, asked.at if tick is None else tick)
    return place._replace(tick=tick, clock=clock, removed=removed)


def row_for(schedule: ScheduleRecord, asked: Asked, now: Instant) -> ScheduleRecord:
    """Return the row of a schedule with calendars as it was at the time of a question.

    A row does not keep all earlier contents of its calendars. For a time before the last change, the bare
    trigger gives the ticks, and the ledger has those that were removed. A tick that still waits for a free
    day is not in the ledger yet.
    """
    since, coming, trigger = trigger_since(schedule), schedule.next_tick, own_trigger(schedule)
    first = trigger.next_ms(since)
    is_present = any(each is not None and asked.at <= each < asked.until for each in (first, coming))
    if asked.at > since or is_present or not isinstance(trigger, Calendared):
        return schedule
    until = now if coming is None else min(now, coming - 1)
    waiting = trigger.waiting_ms(until, bare_since(schedule))
    if any(each.first < asked.until and asked.at <= each.last for each in waiting):
        return replace(schedule, anchor=bare_anchor(schedule))
    return bare_row(schedule)


def present_tick(schedule: ScheduleRecord, now: Instant) -> Place:
    """Return the tick that explains the present: the due one, else the last one, else the first to come."""
    coming = schedule.next_tick
    trigger = own_trigger(schedule)
    if coming is not None and coming + spread_delay(schedule) <= now:
        return beside(schedule, trigger, coming)._replace(tick=coming)
    edge = now + 1 if coming is None else min(coming, now + 1)
    last = trigger.prev_ms(edge)
    if last is not None and last > trigger_since(schedule):
        return beside(schedule, trigger, last)._replace(tick=last)
    if coming is None and last is not None:
        return Place(last)  # a single instant, which was in the past when the schedule was created
    return Place(coming)


def beside(schedule: ScheduleRecord, trigger: Trigger, instant: Instant) -> Place:
    """Return the ticks before and after an instant. The trigger has none before it was given."""
    before = trigger.prev_ms(instant)
    if before is not None and before <= trigger_since(schedule):
        before = None
    return Place(None, before, trigger.next_ms(instant))


def _by_clock(cron: Cron, asked: Asked, tick: Instant | None) -> tuple[Instant | None, ClockEffect | None]:
    """Return the tick that is meant, and the effect of a change of the clock on it."""
    second = asked.at // 1000
    lo, hi, offset, before, after = cron.zone.window(second)
    width = max(1, (asked.until - asked.at) // 1000)
    if asked.label is not None and offset > before and second == lo:
        label = _seconds(asked.label)
        if lo + before <= label < lo + offset:
            matches = _matches(cron, label, width)
            return (lo * 1000 if matches and cron.gap == "shift" else None), "skipped"
    if tick is not None or not _matches(cron, second + offset, width):
        return tick, None
    # The expression matches, and there is no tick: the clock shows this time twice.
    other = None
    if after < offset and second >= hi - (offset - after):
        other = (second + offset - after) * 1000
    elif offset < before and second < lo + before - offset:
        other = (second + offset - before) * 1000
    if other is None:
        return None, None
    found = cron.next_ms(other - 1)
    is_meant = asked.label is not None and found is not None and found < other + width * 1000
    return (found if is_meant else None), (None if is_meant else "repeated")


def _matches(cron: Cron, label: int, width: int) -> bool:
    found = cron.expression.at_or_after(label)
    return found is not None and found < label + width


def _seconds(label: datetime) -> int:
    """Return a wall-clock time as the seconds that it would have in UTC."""
    return int((label - datetime(1970, 1, 1)).total_seconds())
