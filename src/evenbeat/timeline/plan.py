"""Planning: the coming ticks of many schedules at once, by array arithmetic.

Equal triggers are compiled once for all their schedules. Ticks on the minute come from the cron
table (crontable.py) minute by minute, in the order of the timeline, without a sort; the rest
(seconds, intervals, single instants, the edges of clock changes) is added and sorted in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.errors import InvalidValue, shown
from evenbeat.timeline.crontable import Bits, CronTable, Flags, Rows
from evenbeat.timeline.intervals import Intervals
from evenbeat.timeline.numpy_columns import Owners, Times
from evenbeat.timeline.one_by_one import OneByOne, ShiftedTrigger
from evenbeat.timeline.snapshot import Id, Snapshot
from evenbeat.triggers import At, Calendared, Cron, Every, Trigger

_MINUTE = 60_000
# The row of a schedule whose ticks are found one by one.
_ALONE = -2
# Rows that are unpacked at once: 8 MB.
_CHUNK = 1 << 14


class Histogram(NamedTuple):
    """Ticks per bucket: ``counts[i]`` ticks lie in [start + i * step, start + (i + 1) * step)."""

    start: Instant
    step: int
    counts: npt.NDArray[np.int64]


class MinuteCounts(NamedTuple):
    """Ticks per minute."""

    counts: npt.NDArray[np.int64]
    estimated: int
    """How many schedules were counted by their mean rate."""


class CronMinutes(NamedTuple):
    """The minutes from ``first`` (since 1970) on in which some crons tick."""

    first: int
    minutes: int
    owners: Owners
    """The positions of the schedules in the plan."""
    ticking: Bits
    """For each of them, bit i is minute i."""

    def pairs(self) -> tuple[Owners, npt.NDArray[np.int64]]:
        """Return the (schedule, minute since 1970) pairs."""
        which, minute = np.nonzero(_unpacked(self.ticking))
        return self.owners[which], minute + self.first

    @property
    def size(self) -> int:
        """How many pairs there are."""
        return int(_unpacked(self.ticking).sum(dtype=np.int64))


class Plan(Generic[Id]):
    """Schedules compiled for planning. Immutable: make a new one when a schedule changes."""

    def __init__(self, schedules: Iterable[tuple[Id, Trigger]]) -> None:
        pairs = sorted(schedules, key=itemgetter(0))
        self.ids = [schedule for schedule, _ in pairs]
        triggers = [trigger for _, trigger in pairs]
        rows_of: dict[Cron, int] = {}
        intervals: list[Every | At] = []
        others: list[Trigger] = []
        rows = np.full(len(triggers), -1, np.int64)
        for at, trigger in enumerate(triggers):
            if isinstance(trigger, Cron):
                rows[at] = rows_of.setdefault(trigger, len(rows_of))
            elif isinstance(trigger, (Every, At)):
                intervals.append(trigger)
            elif isinstance(trigger, (Calendared, ShiftedTrigger)):
                rows[at] = _ALONE
                others.append(trigger)
            else:
                raise InvalidValue(f"{shown(trigger)} is not a trigger", field="trigger", value=trigger)
        self._table = CronTable(list(rows_of))
        self._intervals = Intervals(intervals, np.flatnonzero(rows == -1).astype(np.uint32))
        self._others = OneByOne(others, np.flatnonzero(rows == _ALONE).astype(np.uint32))
        cron = rows >= 0
        has_seconds = np.zeros(len(rows), np.bool_)
        has_seconds[cron] = self._table.has_seconds[rows[cron]]
        self._by_minute = _Owned(rows, cron & ~has_seconds)
        self._by_second = _Owned(rows, has_seconds)
        self._by_row = _Owned(rows, cron).by_row()
        self._users = np.bincount(rows[cron], minlength=len(rows_of))

    def __len__(self) -> int:
        return len(self.ids)

    def unroll(self, start: Instant, end: Instant, limit: int | None = None) -> Snapshot[Id]:
        """Return the ticks in [start, end), as a snapshot.

        With more than ``limit`` of them, the window is cut to the whole minutes that fit; the
        snapshot's ``end`` says so.
        """
        start, end = _clamped(start, end)
        if limit is not None and self._at_most(end - start) + self._others.at_most(start, end) > limit:
            end = self._fitting(start, end, limit)
        stamps: list[int] = []
        found: list[Owners] = []
        extras = [self._intervals.between(start, end), self.irregular(start, end)]
        if len(self._others):
            extras.append(self._others.between(start, end))
        for first, minutes, ticking in self._table.segments(start, end):
            if len(self._by_second.rows):
                extras.append(self._expand(first, ticking))
            mine = ticking[self._by_minute.rows]
            for minute in range(minutes if mine.any() else 0):
                stamps.append((first + minute) * _MINUTE)
                found.append(self._by_minute.owners[_set_at(mine, minute)])
        times = np.repeat(np.array(stamps, np.int64), [len(owners) for owners in found])
        owners = np.concatenate([np.empty(0, np.uint32), *found])
        in_order = not any(len(ticks) for ticks, _ in extras)
        if not in_order:
            times = np.concatenate([times, *(ticks for ticks, _ in extras)])
            owners = np.concatenate([owners, *(whose for _, whose in extras)])
        # Segments are whole minutes: the first and the last may reach beyond the window.
        inside = (times >= start) & (times < end)
        if not inside.all():
            times, owners = times[inside], owners[inside]
        return Snapshot(times, owners, self.ids, start=start, end=end, in_order=in_order)

    def histogram(self, start: Instant, end: Instant, minutes: int = 1) -> Histogram:
        """Count the ticks per ``minutes`` minutes, from the minute of ``start`` to the one before ``end``.

        Nothing is unrolled: a schedule that ticks every second costs no more than a daily one.
        """
        if minutes < 1:
            raise InvalidValue(f"minutes {minutes} is not 1 or more", field="minutes", value=minutes)
        first, last = _minutes(start, end)
        counts = np.zeros(-(-(last - first) // minutes) * minutes, np.int64)
        counts[: last - first] = self.per_minute(first, last).counts
        return Histogram(first * _MINUTE, minutes * _MINUTE, counts.reshape(-1, minutes).sum(axis=1))

    def per_minute(self, first: int, last: int, work: int | None = None) -> MinuteCounts:
        """Count the ticks of each of the minutes [first, last) since 1970.

        ``work`` bounds the counting of intervals: beyond it, they are estimated by their mean rates.
        """
        counts, estimated = self._intervals.per_minute(first, last, work)
        estimated += self._others.add_per_minute(counts, first, last)
        window = (first * _MINUTE, last * _MINUTE)
        # As floats, exact to 2 ** 53: numpy multiplies integers without BLAS, some ten times slower.
        weights = (self._users * self._table.ticks_a_minute).astype(np.float64)
        for at, length, ticking in self._table.segments(*window):
            active = np.flatnonzero(ticking)
            for begin in range(0, len(active), _CHUNK):
                rows = active[begin : begin + _CHUNK]
                runs = weights[rows] @ _unpacked(ticking[rows])[:, :length]
                counts[at - first : at - first + length] += runs.astype(np.int64)
        for tick, row in self._table.irregular(*window):
            counts[tick // _MINUTE - first] += self._users[row]
        return MinuteCounts(counts, estimated)

    def by_schedule(self, start: Instant, end: Instant) -> npt.NDArray[np.int64]:
        """Count the ticks of each schedule in [start, end), whole minutes, in the order of ``ids``."""
        by_row = np.zeros(len(self._table), np.int64)
        for _, minutes, ticking in self._table.segments(start, end):
            by_row += (
                ticking.astype(np.int64) if minutes == 1 else _unpacked(ticking).sum(axis=1, dtype=np.int64)
            )
        by_row *= self._table.ticks_a_minute
        for _, row in self._table.irregular(start, end):
            by_row[row] += 1
        counts = np.zeros(len(self.ids), np.int64)
        for owned in (self._by_minute, self._by_second):
            counts[owned.owners] = by_row[owned.rows]
        self._intervals.add_counts(counts, start, end)
        self._others.add_counts(counts, start, end)
        return counts

    def ticks_a_minute(self, since: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many seconds of a minute match, from ``since[i]`` on, if schedule i is a cron."""
        counts = np.zeros(len(self.ids), np.int64)
        for owned in (self._by_minute, self._by_second):
            seconds = self._table.seconds[owned.rows] >> since[owned.owners].astype(np.uint64)
            counts[owned.owners] = _unpacked(seconds).sum(axis=1, dtype=np.int64)
        return counts

    def cron_minutes(self, start: Instant, end: Instant) -> Iterator[CronMinutes]:
        """Yield the minutes in [start, end) in which crons tick, an hour or less at a time, in order.

        ``irregular`` has the ticks that these leave out.
        """
        rows = np.concatenate([self._by_minute.rows, self._by_second.rows])
        owners = np.concatenate([self._by_minute.owners, self._by_second.owners])
        for first, minutes, ticking in self._table.segments(start, end):
            mine = ticking[rows]
            yield CronMinutes(first, minutes, owners[mine != 0], mine[mine != 0])

    def irregular(self, start: Instant, end: Instant) -> tuple[Times, Owners]:
        """Return the ticks of crons that are not counted by the minute: around clock changes, and in minutes
        in which a trigger starts or ends."""
        ticks = list(self._table.irregular(start, end))
        owners = [self._by_row[row] for _, row in ticks]
        times = np.repeat(np.array([tick for tick, _ in ticks], np.int64), [len(users) for users in owners])
        return times, np.concatenate([np.empty(0, np.uint32), *owners])

    def _at_most(self, length: int) -> int:
        """Return a bound: no window of so many milliseconds has more ticks. Cheap, and usually enough."""
        hours = length // (60 * _MINUTE) + 2
        return hours * int(self._users @ self._table.ticks_an_hour) + self._intervals.at_most(length)

    def _fitting(self, start: Instant, end: Instant, limit: int) -> Instant:
        """Return the latest end, in whole minutes from ``start`` on, with no more than ``limit`` ticks."""
        first, _, counts = self.histogram(start, end)
        fits = int(np.searchsorted(np.cumsum(counts), limit, side="right"))
        # At least a minute: a timeline that never advances would be worse than a large one.
        return end if fits == len(counts) else first + max(fits, 1) * _MINUTE

    def _expand(self, first: int, ticking: Bits) -> tuple[Times, Owners]:
        """Return the ticks of the schedules with seconds, in one segment."""
        which, minute = np.nonzero(_unpacked(ticking[self._by_second.rows]))
        seconds, counts = self._table.seconds_of(self._by_second.rows[which])
        times = np.repeat((first + minute) * _MINUTE, counts) + seconds * 1000
        return times, np.repeat(self._by_second.owners[which], counts)


class _Owned:
    """Some of the plan's schedules: their positions in the plan and in the cron table."""

    def __init__(self, rows: Rows, chosen: Flags) -> None:
        self.owners: Owners = np.flatnonzero(chosen).astype(np.uint32)
        self.rows: Rows = rows[chosen]

    def by_row(self) -> list[Owners]:
        """Return the owners of each row of the table."""
        order = np.argsort(self.rows, kind="stable")
        edges = np.cumsum(np.bincount(self.rows))[:-1]
        return np.split(self.owners[order], edges)


def _clamped(start: Instant, end: Instant) -> tuple[Instant, Instant]:
    begin = min(max(start, FIRST), LAST)
    return begin, min(max(end, begin), LAST)


def _minutes(start: Instant, end: Instant) -> tuple[int, int]:
    """Return the first minute of a window, and the one after its last, since 1970."""
    start, end = _clamped(start, end)
    first = start // _MINUTE
    return first, -(-end // _MINUTE) if start < end else first


def _set_at(ticking: Bits, minute: int) -> npt.NDArray[np.intp]:
    return np.flatnonzero(ticking & np.uint64(1 << minute))


def _unpacked(ticking: Bits) -> npt.NDArray[np.uint8]:
    """Return a row of 64 zeros and ones for each integer, lowest bit first."""
    rows = ticking.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(rows, axis=1, bitorder="little")
