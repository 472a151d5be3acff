"""Many intervals and single instants as columns, with one formula for all their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.timeline.numpy_columns import Owners, Times
from evenbeat.triggers import At, Every

Column: TypeAlias = npt.NDArray[np.int64]

_MINUTE = 60_000
# A single instant is an interval whose second tick lies beyond the end of time.
_ONCE = 2 * (LAST - FIRST)
_CHUNK = 512


class Intervals:
    """A table with a row for each schedule; ``owners[i]`` is the position of that schedule in the plan."""

    def __init__(self, triggers: Sequence[Every | At], owners: Owners) -> None:
        columns = [_column(trigger) for trigger in triggers]
        table = np.array(columns, np.int64).reshape(-1, 4)
        self._anchor, self._period, self._start, self._until = table.T.copy()
        self._owners = owners

    def between(self, start: Instant, end: Instant) -> tuple[Times, Owners]:
        """Return the ticks in [start, end), row by row."""
        low = np.maximum(self._start, start)
        first = self._anchor - (self._anchor - low) // self._period * self._period
        high = np.minimum(self._until, end - 1)
        counts = np.maximum((high - first) // self._period + 1, 0)
        begins = np.cumsum(counts) - counts
        nth = np.arange(int(counts.sum())) - np.repeat(begins, counts)
        times = np.repeat(first, counts) + nth * np.repeat(self._period, counts)
        return times, np.repeat(self._owners, counts)

    def at_most(self, length: int) -> int:
        """Return a bound: no window of so many milliseconds has more ticks."""
        return int((length // self._period + 1).sum())

    def per_minute(self, first: int, last: int) -> Column:
        """Return how many ticks there are in each of the minutes [first, last) since 1970."""
        edges = np.arange(first, last + 1) * _MINUTE
        counts = np.zeros(last - first, np.int64)
        if len(self._period) == 0:
            return counts
        # Rows with the same phase, period and bounds are counted once.
        table = np.stack([self._anchor % self._period, self._period, self._start, self._until], axis=1)
        distinct, users = np.unique(table, axis=0, return_counts=True)
        for at in range(0, len(distinct), _CHUNK):
            anchor, period, start, until = distinct[at : at + _CHUNK, :, None].transpose(1, 0, 2)
            within = np.clip(edges, start, until + 1)
            before = -((anchor - within) // period)
            counts += users[at : at + _CHUNK] @ np.diff(before, axis=1)
        return counts


def _column(trigger: Every | At) -> tuple[int, int, int, int]:
    """Return (anchor, period, start, until)."""
    if isinstance(trigger, At):
        return trigger.instant, _ONCE, trigger.instant, LAST
    start = FIRST if trigger.start is None else trigger.start
    until = LAST if trigger.until is None else trigger.until
    return trigger.start or 0, trigger.period or _ONCE, start, until
