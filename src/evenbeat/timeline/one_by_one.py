"""Triggers whose ticks are found one by one: those with calendars, which no array arithmetic covers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import Instant
from evenbeat.timeline.numpy_columns import Owners, Times
from evenbeat.triggers import Trigger

_MINUTE = 60_000
# The steps that counting takes before schedules are estimated by their mean rates: about half a second.
_WORK = 100_000


class OneByOne:
    """Some of the plan's schedules, with their positions in it."""

    def __init__(self, triggers: Sequence[Trigger], owners: Owners) -> None:
        self._triggers = triggers
        self._owners = owners

    def __len__(self) -> int:
        return len(self._triggers)

    def between(self, start: Instant, end: Instant) -> tuple[Times, Owners]:
        """Return the ticks in [start, end), and whose they are."""
        found = [list(trigger.between_ms(start, end)) for trigger in self._triggers]
        times = np.array([tick for ticks in found for tick in ticks], np.int64)
        return times, np.repeat(self._owners, [len(ticks) for ticks in found])

    def add_per_minute(self, counts: npt.NDArray[np.int64], first: int, last: int) -> int:
        """Add the ticks of each of the minutes [first, last) since 1970; return how many schedules were
        counted by their mean rate."""
        start, end = first * _MINUTE, last * _MINUTE
        left, estimated = _WORK, 0
        for trigger in self._triggers:
            number = trigger.count_ms(start, end)
            left -= min(number, last - first)
            if left < 0 and number:
                edges = np.linspace(0, number, last - first + 1).astype(np.int64)
                counts += edges[1:] - edges[:-1]
                estimated += 1
            elif number <= last - first:
                for tick in trigger.between_ms(start, end):
                    counts[tick // _MINUTE - first] += 1
            else:
                for minute in range(first, last):
                    counts[minute - first] += trigger.count_ms(minute * _MINUTE, (minute + 1) * _MINUTE)
        return estimated

    def add_counts(self, counts: npt.NDArray[np.int64], start: Instant, end: Instant) -> None:
        """Add the ticks of each schedule in [start, end)."""
        for owner, trigger in zip(self._owners.tolist(), self._triggers, strict=True):
            counts[owner] += trigger.count_ms(start, end)

    def at_most(self, start: Instant, end: Instant) -> int:
        """Return how many ticks there are in [start, end)."""
        return sum(trigger.count_ms(start, end) for trigger in self._triggers)


class ShiftedTrigger(Trigger, frozen=True, cache_hash=True):
    """The ticks of a trigger from ``since`` on, each later by ``delay``."""

    trigger: Trigger
    since: Instant
    delay: int = 0

    @property
    def tzinfo(self) -> tzinfo:
        return self.trigger.tzinfo

    def next_ms(self, after: Instant) -> Instant | None:
        tick = self.trigger.next_ms(max(after - self.delay, self.since - 1))
        return None if tick is None else tick + self.delay

    def prev_ms(self, before: Instant) -> Instant | None:
        tick = self.trigger.prev_ms(before - self.delay)
        return None if tick is None or tick < self.since else tick + self.delay

    def count_ms(self, start: Instant, end: Instant) -> int:
        begin = max(start - self.delay, self.since)
        return self.trigger.count_ms(begin, max(begin, end - self.delay))

    def explain(self) -> str:
        return self.trigger.explain()

    def bind(self, name: str, since: Instant) -> ShiftedTrigger:
        return self

    def __str__(self) -> str:
        return str(self.trigger)
