"""Planning without numpy: the ticks of all schedules, computed one by one and merged."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Generic

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.timeline.snapshot import Id, Snapshot
from evenbeat.triggers import Trigger

_MINUTE = 60_000


class PlainPlan(Generic[Id]):
    """Schedules to plan: ``unroll`` returns what that of ``plan.Plan`` does, some 40 times slower."""

    def __init__(self, schedules: Iterable[tuple[Id, Trigger]]) -> None:
        pairs = sorted(schedules, key=itemgetter(0))
        self.ids = [schedule for schedule, _ in pairs]
        self._triggers = [trigger for _, trigger in pairs]

    def unroll(self, start: Instant, end: Instant, limit: int | None = None) -> Snapshot[Id]:
        """Return the ticks in [start, end), as a snapshot; cut to whole minutes beyond ``limit``."""
        start = min(max(start, FIRST), LAST)
        end = min(max(end, start), LAST)
        times: list[Instant] = []
        owners: list[int] = []
        streams = [_ticks(trigger, at, start, end) for at, trigger in enumerate(self._triggers)]
        for tick, owner in heapq.merge(*streams):
            minute = tick - tick % _MINUTE
            if limit is not None and len(times) >= limit and minute > start:
                end = minute
                kept = bisect_left(times, end)
                times, owners = times[:kept], owners[:kept]
                break
            times.append(tick)
            owners.append(owner)
        return Snapshot(times, owners, self.ids, start=start, end=end, in_order=True)


def _ticks(trigger: Trigger, owner: int, start: Instant, end: Instant) -> Iterator[tuple[Instant, int]]:
    for tick in trigger.between_ms(start, end):
        yield tick, owner
