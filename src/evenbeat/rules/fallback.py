"""Schedules that a node fires from memory while their rows can't be used. Pure.

Memory begins with the row as it was last read, and plans it as the row would be planned. Its plan is
in the row of the memory; the ledger rows are kept until the row can be written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.ids import instant_of
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Skipped
from evenbeat.core.retention import SHORTEST_KEEP
from evenbeat.rules.auditing import read_entry
from evenbeat.rules.code_only import fired_from_memory, grace_of
from evenbeat.rules.dependencies import needs_facts
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import own_trigger, spread_delay, trigger_of
from evenbeat.triggers import At

# These changes add runs, and leave the ticks of the schedule as they are.
_ADDS_RUNS = ("run_now", "backfill")
# A schedule copies what it needs of these.
_COPIED = ("calendar", "template")

Key = tuple[str, str]

LATEST = 30_000
"""How late a tick fires from memory, in ms; later ones are left to the row. Less than the shortest time that
runs are kept, since another node may have fired the tick from its row."""


class Remembered(NamedTuple):
    """A schedule as memory has planned it."""

    begin: Instant
    """Memory has dealt with the ticks from this instant to before the next tick of the row."""
    row: ScheduleRecord
    skipped: tuple[Skipped, ...] = ()
    """Ledger rows that are not written yet."""

    def after(self, planned: Planned) -> Remembered:
        """Return the schedule after its runs were added."""
        skipped = list(self.skipped)
        for each in planned.skipped:
            last = skipped[-1] if skipped else None
            if last is not None and _continues(last, each, self.row):
                skipped[-1] = replace(last, last=each.last, count=last.count + each.count)
            else:
                skipped.append(each)
        return self._replace(row=planned.schedule, skipped=tuple(skipped))


def _continues(last: Skipped, each: Skipped, row: ScheduleRecord) -> bool:
    """Return whether one ledger row can stand for two: with one for each tick, they would fill the memory."""
    is_alike = last.reason == each.reason and last.run is None and each.run is None
    return is_alike and trigger_of(row).prev_ms(each.first) == last.last


def covers(row: ScheduleRecord) -> bool:
    """Return whether a row is fired from memory: those that wait for other schedules, and a tick that a user
    moved, are left to their rows."""
    return row.state == "active" and not row.damage and not needs_facts(row) and not _is_moved(row)


def _is_moved(row: ScheduleRecord) -> bool:
    """Return whether a user moved the next tick to an earlier time, or the only one."""
    trigger = own_trigger(row)
    return row.moved is not None or (isinstance(trigger, At) and row.next_tick != trigger.instant)


def remember(row: ScheduleRecord, since: Instant) -> Remembered:
    """Return a schedule whose ticks from ``since`` on are fired from memory."""
    tick = row.next_tick
    if tick is not None and tick < since:
        tick = trigger_of(row).next_ms(since - 1)
    wake_at = None if tick is None else tick + spread_delay(row)
    return Remembered(since if tick is None else tick, replace(row, next_tick=tick, wake_at=wake_at))


def without_late(remembered: Remembered, now: Instant) -> Remembered:
    """Return the schedule without ticks that are too late to be fired from memory: a purge may have deleted
    their runs since another node fired them. They are left to the row."""
    row = remembered.row
    edge = now - min(LATEST, grace_of(row)) - spread_delay(row)
    return remembered if row.next_tick is None or row.next_tick >= edge else remember(row, edge)


def after_runs(remembered: Remembered, runs: Iterable[RunRecord]) -> Remembered:
    """Return the schedule without ticks up to the newest one that has a run: another node has planned
    them, from its own memory."""
    row = remembered.row
    ticks = [run.tick for run in runs if run.cause == "tick" and run.generation == row.generation]
    newest = max((tick for tick in ticks if tick is not None), default=None)
    if newest is None or row.next_tick is None or newest < row.next_tick:
        return remembered
    return remember(row, newest + 1)


def run_from_memory(run: RunRecord, node: str | None) -> RunRecord:
    """Return a run that memory has planned."""
    return replace(run, fired_by=fired_from_memory(node))


def added_before(run: RunRecord) -> Instant:
    """Return until when such a run may be added, by the store's clock: halfway between the latest tick that
    fires and the earliest purge of its run."""
    return run.scheduled_at + (LATEST + SHORTEST_KEEP) // 2


def changed_by_hand(rows: Iterable[ScheduleRecord], entries: Iterable[Record]) -> set[Key]:
    """Return which rows are not what users last wrote. ``entries`` are records of the audit."""
    changes: dict[Key, Instant] = {}
    copied: dict[Key, Instant] = {}
    for record in entries:
        entry = read_entry(record)
        if entry is None or entry.action in _ADDS_RUNS:
            continue
        at = instant_of(record.key)
        if entry.kind == "schedule":
            key = (record.tenant, entry.subject)
            changes[key] = max(at, changes.get(key, at))
        elif entry.kind in _COPIED:
            key = (record.tenant, entry.kind)
            copied[key] = max(at, copied.get(key, at))

    def last_change(row: ScheduleRecord) -> Instant:
        found = [changes.get(row.key)]
        found += [copied.get((row.tenant, "calendar"))] if row.calendars else []
        found += [copied.get((row.tenant, "template"))] if row.template else []
        return max((at for at in found if at is not None), default=row.updated_at)

    return {row.key for row in rows if last_change(row) > row.updated_at}


def rest_of(schedule: ScheduleRecord, remembered: Remembered) -> tuple[ScheduleRecord, tuple[Skipped, ...]]:
    """Return a due row without the ticks that memory has dealt with, and the ledger rows of these.

    The plan of a row counts missed ticks by its catch-up policy, and these were not missed.
    """
    tick, known = schedule.next_tick, remembered.row
    if tick is None or schedule.state != "active" or schedule.moved is not None:
        return schedule, ()
    if _identity(schedule) != _identity(known) or tick < remembered.begin:
        return schedule, ()
    if known.next_tick is not None and known.next_tick <= tick:
        return schedule, ()
    rest = replace(
        schedule,
        next_tick=known.next_tick,
        wake_at=known.wake_at,
        last_fire=known.last_fire,
        state=known.state,
        fire_seq=schedule.fire_seq + 1,
    )
    return rest, tuple(_from(each, schedule, tick) for each in remembered.skipped if each.last >= tick)


def _from(skipped: Skipped, schedule: ScheduleRecord, tick: Instant) -> Skipped:
    """Return a ledger row without the ticks before ``tick``, which the row has dealt with."""
    if skipped.first >= tick:
        return skipped
    return replace(skipped, first=tick, count=trigger_of(schedule).count_ms(tick + 1, skipped.last + 1) + 1)


def _identity(row: ScheduleRecord) -> tuple[str, str, Instant, int]:
    """Return what makes the ticks of two rows the same."""
    return row.trigger, row.calendars, row.anchor, row.generation
