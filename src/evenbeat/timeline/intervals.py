"""Many intervals and single instants as columns, with one formula for all their ticks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
# Ticks that are unrolled at once: 16 MB.
_BATCH = 1 << 20


class Intervals:
    """A table with a row for each schedule; ``owners[i]`` is the position of that schedule in the plan."""

    def __init__(self, triggers: Sequence[Every | At], owners: Owners) -> None:
        columns = [_column(trigger) for trigger in triggers]
        table = np.array(columns, np.int64).reshape(-1, 4)
        self._anchor, self._period, self._start, self._until = table.T.copy()
        self._owners = owners

    def between(self, start: Instant, end: Instant) -> tuple[Times, Owners]:
        """Return the ticks in [start, end), row by row."""
        rows = np.arange(len(self._period))
        return self._unrolled(rows, start, end), np.repeat(self._owners, self._counts(start, end))

    def at_most(self, length: int) -> int:
        """Return a bound: no window of so many milliseconds has more ticks."""
        return int((length // self._period + 1).sum())

    def per_minute(self, first: int, last: int, work: int | None = None) -> tuple[Column, int]:
        """Return how many ticks there are in each of the minutes [first, last) since 1970.

        With ``work``, rows whose counts would take more than so many steps are estimated by their mean rate;
        return how many were, too.
        """
        start, end = first * _MINUTE, last * _MINUTE
        counts = np.zeros(last - first, np.int64)
        ticks = self._counts(start, end)
        open_ended = (self._start <= start) & (self._until >= end - 1)
        left = np.inf if work is None else work
        estimated = np.zeros(len(self._period), np.bool_)
        # Rows that tick throughout: those with the same period are counted together.
        for rows in _by_value(self._period, np.flatnonzero(open_ended)):
            left -= len(counts)
            if left < 0:
                estimated[rows] = True
            else:
                counts += self._count_together(rows, first, last)
        # Rows that start or end inside: few ticks are unrolled.
        others = np.flatnonzero(~open_ended & (ticks > 0))
        few = others[ticks[others] <= len(counts)]
        for rows in _batches(few, ticks[few]):
            left -= int(ticks[rows].sum())
            if left < 0:
                estimated[rows] = True
            else:
                times = self._unrolled(rows, start, end)
                counts += np.bincount((times - start) // _MINUTE, minlength=len(counts))
        for row in others[ticks[others] > len(counts)].tolist():
            left -= len(counts)
            if left < 0:
                estimated[row] = True
            else:
                counts += self._count_alone(row, first, last)
        return counts + self._estimate(np.flatnonzero(estimated), start, end), int(estimated.sum())

    def add_counts(self, counts: Column, start: Instant, end: Instant) -> None:
        """Add how many ticks each row has in [start, end) to the counts of its schedule."""
        counts[self._owners] = self._counts(start, end)

    def _first(self, start: Instant) -> Column:
        """Return the first tick of each row at or after ``start``."""
        low = np.maximum(self._start, start)
        return self._anchor - (self._anchor - low) // self._period * self._period

    def _counts(self, start: Instant, end: Instant) -> Column:
        high = np.minimum(self._until, end - 1)
        counts: Column = np.maximum((high - self._first(start)) // self._period + 1, 0)
        return counts

    def _unrolled(self, rows: Column, start: Instant, end: Instant) -> Times:
        counts = self._counts(start, end)[rows]
        begins = np.cumsum(counts) - counts
        nth = np.arange(int(counts.sum())) - np.repeat(begins, counts)
        return np.repeat(self._first(start)[rows], counts) + nth * np.repeat(self._period[rows], counts)

    def _count_together(self, rows: Column, first: int, last: int) -> Column:
        """Count rows of one period that tick throughout.

        Before an edge lie floor((edge - phase) / period) ticks of a row, up to a constant. Summed over the
        rows, that is a product, less the phases beyond the remainder: a search in the sorted phases.
        """
        period = int(self._period[rows[0]])
        phases = np.sort(self._anchor[rows] % period)
        # A tick at an edge belongs to the minute that it begins.
        whole, rest = np.divmod(np.arange(first, last + 1) * _MINUTE - 1, period)
        before = whole * len(rows) + np.searchsorted(phases, rest, side="right")
        return np.diff(before)

    def _count_alone(self, row: int, first: int, last: int) -> Column:
        edges = np.arange(first, last + 1) * _MINUTE
        within = np.clip(edges, self._start[row], self._until[row] + 1)
        counts: Column = np.diff(-((self._anchor[row] - within) // self._period[row]))
        return counts

    def _estimate(self, rows: Column, start: Instant, end: Instant) -> Column:
        """Return the counts of rows by their mean rates, from the minute they start in to the one they end
        in."""
        minutes = (end - start) // _MINUTE
        rates = np.zeros(minutes + 1)
        low = np.clip((self._start[rows] - start) // _MINUTE, 0, minutes)
        high = np.clip(-(-(self._until[rows] + 1 - start) // _MINUTE), low, minutes)
        np.add.at(rates, low, _MINUTE / self._period[rows])
        np.add.at(rates, high, -_MINUTE / self._period[rows])
        return np.rint(np.cumsum(rates)[:-1]).astype(np.int64)


def _by_value(values: Column, rows: Column) -> Iterator[Column]:
    """Yield the rows in groups of equal values."""
    order = rows[np.argsort(values[rows], kind="stable")]
    if len(order):
        yield from np.split(order, np.flatnonzero(np.diff(values[order])) + 1)


def _batches(rows: Column, sizes: Column) -> Iterator[Column]:
    """Yield the rows in groups whose sizes add up to about ``_BATCH``."""
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(np.cumsum(sizes) // _BATCH)) + 1)


def _column(trigger: Every | At) -> tuple[int, int, int, int]:
    """Return (anchor, period, start, until)."""
    if isinstance(trigger, At):
        return trigger.instant, _ONCE, trigger.instant, LAST
    start = FIRST if trigger.start is None else trigger.start
    until = LAST if trigger.until is None else trigger.until
    return trigger.start or 0, trigger.period or _ONCE, start, until
