"""Snapshots: sorted arrays of (tick, schedule), built in one go and never changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import count
from operator import itemgetter
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.errors import InvalidValue

Id = TypeVar("Id", bound=Hashable)

Times: TypeAlias = npt.NDArray[np.int64]
Owners: TypeAlias = npt.NDArray[np.uint32]

_TICK, _SCHEDULE = itemgetter(0), itemgetter(1)


class Snapshot(Generic[Id]):
    """Ticks in the order (time, schedule), immutable: 12 bytes a tick.

    ``start`` and ``end`` say which part of time it knows: [start, end).
    """

    __slots__ = ("_head", "end", "ids", "owners", "start", "times")

    def __init__(
        self,
        times: npt.ArrayLike,
        owners: npt.ArrayLike,
        ids: Sequence[Id],
        *,
        start: Instant = FIRST,
        end: Instant = LAST + 1,
        in_order: bool = False,
    ) -> None:
        """Build from arrays: tick ``times[i]`` belongs to schedule ``ids[owners[i]]``.

        Ticks of the same instant are ordered by owner, so ``ids`` come in ascending order.
        ``in_order`` skips the sort for ticks that are in (time, owner) order already.
        """
        ticks = np.asarray(times, dtype=np.int64)
        whose = np.asarray(owners)
        if ticks.ndim != 1 or ticks.shape != whose.shape:
            raise InvalidValue(
                f"times {ticks.shape} and owners {whose.shape} are not two lists of the same length",
                field="times",
                value=ticks.shape,
            )
        if len(whose) and not 0 <= int(whose.min()) <= int(whose.max()) < len(ids):
            raise InvalidValue(
                f"owners go from {whose.min()} to {whose.max()}, but there are {len(ids)} ids",
                field="owners",
                value=int(whose.max()),
                hint="an owner is a position in ids",
            )
        if not in_order:
            ticks, whose = _sorted(ticks, whose, len(ids))
        self.times: Times = ticks
        self.owners: Owners = whose.astype(np.uint32, copy=False)
        self.times.flags.writeable = self.owners.flags.writeable = False
        self.ids = ids
        self.start = start
        self.end = end
        # Asked for before every sleep: an attribute, not two conversions from numpy.
        self._head = (int(ticks[0]), ids[int(whose[0])]) if len(ticks) else None

    @classmethod
    def of(cls, entries: Iterable[tuple[Instant, Id]]) -> Self:
        """Build from (tick, schedule) pairs in any order."""
        pairs = entries if isinstance(entries, list) else list(entries)
        # map and itemgetter: the loops over a million pairs run in C. Schedules are numbered as they come, in
        # one pass, and then put in order.
        number: defaultdict[Any, int] = defaultdict(count().__next__)
        times = np.fromiter(map(_TICK, pairs), np.int64, len(pairs))
        owners = np.fromiter(map(number.__getitem__, map(_SCHEDULE, pairs)), np.uint32, len(pairs))
        ids: list[Any] = sorted(number)
        rank = np.empty(len(ids), np.uint32)
        rank[[number[schedule] for schedule in ids]] = np.arange(len(ids), dtype=np.uint32)
        return cls(times, rank[owners], ids)

    def __len__(self) -> int:
        return len(self.times)

    def query(self, start: Instant, end: Instant) -> list[tuple[Instant, Id]]:
        """The (tick, schedule) pairs in [start, end), in order. 100 out of a million: 12 us."""
        begin, stop = self._span(start, end)
        whose = map(self.ids.__getitem__, self.owners[begin:stop].tolist())
        return list(zip(self.times[begin:stop].tolist(), whose, strict=True))

    def count(self, start: Instant, end: Instant) -> int:
        """How many ticks there are in [start, end)."""
        begin, stop = self._span(start, end)
        return stop - begin

    def peek(self, since: Instant | None = None) -> tuple[Instant, Id] | None:
        """The earliest tick, or the earliest at or after ``since``; None if there is none."""
        if since is None or self._head is None:
            return self._head
        at = int(self.times.searchsorted(np.int64(_clamped(since))))
        return None if at == len(self.times) else (int(self.times[at]), self.ids[int(self.owners[at])])

    @property
    def nbytes(self) -> int:
        """The memory of the ticks; the ids are shared with whoever planned them."""
        return self.times.nbytes + self.owners.nbytes

    def _span(self, start: Instant, end: Instant) -> tuple[int, int]:
        # np.int64: a bare int makes searchsorted guess a type and copy all the ticks to it.
        begin = int(self.times.searchsorted(np.int64(_clamped(start))))
        stop = int(self.times.searchsorted(np.int64(_clamped(end))))
        return begin, max(begin, stop)


def _sorted(
    times: Times, owners: npt.NDArray[np.generic], count: int
) -> tuple[Times, npt.NDArray[np.generic]]:
    """Times and owners in (time, owner) order, by sorting both packed into one integer.

    An hour of seconds and a million schedules fit into 32 bits, which two radix passes sort: 1M in
    20 to 40 ms. A wider pack takes numpy's sort: 1M in 10 ms, or in 50 ms on an AMD Zen 4, whose AVX-512
    that sort does not suit. 139 years of milliseconds and 4 million schedules fit; beyond: lexsort.
    """
    if len(times) < 2:
        return times.copy(), owners.copy()
    base = int(times.min())
    ticks, unit = times - base, 1
    seconds = ticks // 1000
    if np.array_equal(seconds * 1000, ticks):
        ticks, unit = seconds, 1000
    owner_bits = max(count - 1, 1).bit_length()
    all_bits = int(ticks.max()).bit_length() + owner_bits
    if all_bits > 63:
        order = np.lexsort((owners, times))
        return times[order], owners[order]
    narrow = all_bits <= 32
    packed: npt.NDArray[Any] = ticks.astype(np.uint32 if narrow else np.int64)
    packed <<= owner_bits
    packed |= owners.astype(packed.dtype, copy=False)
    if narrow:
        packed = _radix_sorted(packed)
    else:
        packed.sort()
    whose = (packed & ((1 << owner_bits) - 1)).astype(np.uint32, copy=False)
    packed >>= owner_bits
    ordered = packed.astype(np.int64, copy=False)
    ordered *= unit
    ordered += base
    return ordered, whose


def _radix_sorted(packed: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    # A stable argsort of 16-bit integers is a radix sort in numpy: low halves first, then high ones.
    for shift in (0, 16):
        digits = (packed >> np.uint32(shift)).astype(np.uint16)
        packed = packed[np.argsort(digits, kind="stable")]
    return packed


def _clamped(instant: Instant) -> Instant:
    return min(max(instant, -(1 << 62)), 1 << 62)
