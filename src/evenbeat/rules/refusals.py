"""Schedules whose writes the database refuses: each waits alone, and is tried again. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules.dependencies import is_on_success
from evenbeat.rules.firing import DEFERRED, Planned, needs_active

SHORTEST_WAIT, LONGEST_WAIT = 1_000, DEFERRED
"""The first and the longest wait before a refused schedule is tried again, in ms."""
NOTE = "deferred"
"""The kind of the record that says why a node could not fire a schedule."""
_REFUSED = "the database refuses its run: "
_LONGEST_REASON = 1_000


def back_off(schedule: ScheduleRecord, now: Instant, reason: str) -> Planned:
    """Plan a schedule whose write the database has refused: it wakes up later, and nothing else changes.

    It waits as long as its tick has been overdue, so the time between two tries doubles, whichever nodes
    make them: the tick stays in the row until it fires. A schedule without a tick, which fires on the success
    of another one, counts from its first refusal.
    """
    tick = now if schedule.next_tick is None else schedule.next_tick
    wake_at = now + wait_of(tick, now)
    return Planned(replace(schedule, next_tick=tick, wake_at=wake_at), deferred=refusal_text(reason))


def wait_of(tick: Instant, now: Instant) -> int:
    """Return for how many ms a refused tick waits."""
    return min(max(now - tick, SHORTEST_WAIT), LONGEST_WAIT)


def refusal_text(reason: str) -> str:
    """Return what a note says about a refusal. The text of an error may contain anything."""
    text = (reason or "it gave no reason").encode(errors="replace").decode()
    return _REFUSED + text.replace("\0", "?")[:_LONGEST_REASON]


def is_refusal(note: str) -> bool:
    """Return whether a note tells of a refusal of the database, and not of a node that can't plan."""
    return note.startswith(_REFUSED)


def may_have_note(schedule: ScheduleRecord) -> bool:
    """Return whether a schedule that woke up may have a note of an earlier try: it was to wake up later than
    its tick, and only a failed try explains that. Takes 0.1 us."""
    tick, wake_at = schedule.next_tick, schedule.wake_at
    if tick is None or wake_at is None or wake_at <= tick or schedule.spread:
        return False
    if wake_at == schedule.last_fire:
        return False  # a backlog that continues
    return not (needs_active(schedule) or schedule.after or schedule.catch_up.rate or is_on_success(schedule))
