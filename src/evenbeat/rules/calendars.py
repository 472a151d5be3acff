"""Schedules with calendars: the ledger of removed ticks, and a schedule whose calendars have changed. Pure.

A row of the ledger for ticks that a calendar removed is written when a fire, a skip or a change passes them:
by then they were due by the bare trigger, and no later change of the calendar can bring them back.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import InvalidTrigger
from evenbeat.rules.ticks import own_trigger, tick_run_id
from evenbeat.triggers import Calendared, Every, Trigger, parse_trigger


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
    return _rows(schedule, trigger, edge, {run.tick for run in runs}, max(passed), now)


def removed_until(schedule: ScheduleRecord, now: Instant) -> tuple[Skipped, ...]:
    """Return ledger rows for the removed ticks since the last tick that fired: the trigger changes now."""
    trigger = own_trigger(schedule)
    if not isinstance(trigger, Calendared) or schedule.next_tick is None:
        return ()
    return _rows(schedule, trigger, now, set(), now, now)


def _rows(
    schedule: ScheduleRecord,
    trigger: Calendared,
    until: Instant,
    fired: set[Instant | None],
    passed: Instant,
    now: Instant,
) -> tuple[Skipped, ...]:
    """Return ledger rows for the removed ticks after the last recorded one, up to ``until``."""
    coming = schedule.next_tick if schedule.moved is None else schedule.moved
    since = max(schedule.created_at, schedule.anchor)
    before = None if coming is None else trigger.prev_ms(coming)
    if before is not None:
        since = max(since, before)
    found = []
    for gone in trigger.removed_ms(since + 1, until + 1) if since < until else ():
        moved_to = gone.moved_to
        # A tick that was itself coalesced or skipped has no run to name.
        has_run = moved_to is not None and (moved_to in fired or moved_to > passed or moved_to <= since)
        found.append(
            Skipped(
                tenant=schedule.tenant,
                schedule=schedule.name,
                generation=schedule.generation,
                first=gone.first,
                last=gone.last,
                count=gone.count,
                reason="calendar",
                recorded_at=now,
                run=tick_run_id(schedule, schedule.generation, moved_to) if moved_to and has_run else None,
            )
        )
    return tuple(found)


def recalendared(before: ScheduleRecord, changed: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """Return ``changed``, which has new calendars, with its next tick anew.

    Due ticks are dealt with already. One that a user moved to an earlier time stays. An interval keeps its
    phase. No tick of the past appears: the first one is after now.
    """
    watermark, moved_from = before.next_tick, before.moved
    changed = replace(changed, anchor=_kept_anchor(changed, now))
    tick = own_trigger(changed).next_ms(max(now, changed.anchor))
    if watermark is not None and moved_from is not None and (tick is None or watermark <= tick):
        # The moved tick replaces the first one that the new calendars leave, or the removed one.
        moved_from = moved_from if tick is None else min(moved_from, tick)
        tick = watermark
    else:
        moved_from = None
    changed = replace(changed, next_tick=tick, moved=moved_from, fire_seq=changed.fire_seq + 1)
    if changed.state == "paused":
        return changed
    return replace(changed, wake_at=tick, state="finished" if tick is None else "active")


def _kept_anchor(schedule: ScheduleRecord, now: Instant) -> Instant:
    """Return from when the trigger counts with its new calendars: from now on, in the same phase."""
    bare = bare_trigger(parse_trigger(schedule.trigger))
    if isinstance(bare, Every) and bare.start is None and bare.period and schedule.anchor < now:
        return schedule.anchor + (now - schedule.anchor) // bare.period * bare.period
    return max(schedule.anchor, now)


def bare_trigger(trigger: Trigger) -> Trigger:
    """Return a trigger without its calendars."""
    return trigger.bare if isinstance(trigger, Calendared) else trigger


def check_ticks(schedule: ScheduleRecord, tick: Instant | None) -> None:
    """Refuse a schedule with calendars that leave it no tick, although its bare trigger has some."""
    trigger = own_trigger(schedule)
    if tick is None and isinstance(trigger, Calendared) and trigger.bare.next_ms(schedule.anchor) is not None:
        raise InvalidTrigger(
            schedule.trigger,
            f" has no tick: {', '.join(trigger.names)} leave none of the bare trigger's",
            field="skip" if trigger.skip else "only",
            value=",".join(trigger.skip or trigger.only),
            hint="compare its times with the calendars: evenbeat calendars show NAME",
        )
