"""The coming load: how many runs start in each coming minute, and of which schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import Instant
from evenbeat.timeline.numpy_columns import Owners, Times
from evenbeat.timeline.plan import Plan
from evenbeat.triggers import Trigger

_MINUTE = 60_000
# Ticks that are counted one by one: 24 MB at most.
_UNROLLED = 2_000_000


class Expected(NamedTuple):
    """A schedule as it will fire."""

    id: str
    trigger: Trigger
    first: Instant | None = None
    """Its next tick, which may differ from the trigger's ticks; earlier ticks of the trigger don't count."""
    delay: int = 0
    """Its share of the spread, in milliseconds."""
    moved: Instant | None = None
    """The trigger's own tick that was moved to ``first``; ticks up to this one don't count."""


class Load:
    """Runs by the minute in [start, end), both in whole minutes.

    Most schedules fire at the ticks of their triggers and are counted without being unrolled; ticks of spread
    or moved schedules are counted one by one.
    """

    def __init__(self, schedules: Iterable[Expected], start: Instant, end: Instant) -> None:
        self.start = -(-start // _MINUTE) * _MINUTE
        self.end = max(self.start, -(-end // _MINUTE) * _MINUTE)
        plain: list[tuple[str, Trigger]] = []
        moved: list[Expected] = []
        for schedule in schedules:
            regular = schedule.trigger.next_ms(self.start - 1)
            ahead = schedule.first is not None and schedule.first >= self.start and schedule.first != regular
            if schedule.delay or ahead:
                moved.append(schedule)
            else:
                plain.append((schedule.id, schedule.trigger))
        self._plain = Plan(plain)
        self._ids = sorted(schedule.id for schedule in moved)
        self._times, self._owners, self.complete = _unrolled(moved, self.start, self.end)
        """``complete``: False if there were too many ticks of spread schedules to count them all."""
        counts = self._plain.histogram(self.start, self.end).counts
        # Without minlength, bincount of no ticks would be empty.
        minutes = (self._times - self.start) // _MINUTE
        self.counts: npt.NDArray[np.int64] = counts + np.bincount(minutes, minlength=len(counts))

    def total(self) -> int:
        return int(self.counts.sum())

    def per_minute(self) -> list[int]:
        return [int(count) for count in self.counts]

    def busiest(self, limit: int) -> list[Instant]:
        """Return the minutes with the most runs, the fullest first, the earlier first among equals."""
        order = np.argsort(-self.counts, kind="stable")[:limit]
        return [self.start + int(minute) * _MINUTE for minute in order if self.counts[minute]]

    def whose(self, minute: Instant) -> Counter[str]:
        """Return how many runs of each schedule start in that minute."""
        found = Counter(
            schedule
            for _, schedule in self._plain.unroll(minute, minute + _MINUTE).query(minute, minute + _MINUTE)
        )
        inside = (self._times >= minute) & (self._times < minute + _MINUTE)
        found.update(self._ids[owner] for owner in self._owners[inside].tolist())
        return found


def _unrolled(moved: list[Expected], start: Instant, end: Instant) -> tuple[Times, Owners, bool]:
    """Return the ticks in [start, end) of spread or moved schedules, at the times they fire."""
    moved = sorted(moved, key=lambda schedule: schedule.id)
    delays = np.array([schedule.delay for schedule in moved], np.int64)
    since = start - int(delays.max(initial=0))
    firsts = np.array(
        [since - 1 if schedule.first is None else schedule.first for schedule in moved], np.int64
    )
    plan = Plan((schedule.id, schedule.trigger) for schedule in moved)
    snapshot = plan.unroll(since, end, limit=_UNROLLED)
    # The next tick itself is added here: the trigger may not have it.
    resumed = np.array([schedule.moved or schedule.first or since - 1 for schedule in moved], np.int64)
    ticks, whose = np.asarray(snapshot.times), np.asarray(snapshot.owners)
    later = ticks > np.maximum(firsts, resumed)[whose]
    owners = np.concatenate([whose[later], np.arange(len(moved), dtype=np.uint32)])
    times = np.concatenate([ticks[later], firsts]) + delays[owners]
    has_first = np.array([schedule.first is not None for schedule in moved], np.bool_)
    inside = (times >= start) & (times < end)
    inside[len(inside) - len(moved) :] &= has_first
    return times[inside], owners[inside], snapshot.end >= end
