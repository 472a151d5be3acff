"""Snapshots: sorted arrays of (tick, schedule), built in one go and never changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.timeline import columns
from evenbeat.timeline.extra import has_numpy

if TYPE_CHECKING:
    import numpy.typing as npt

Id = TypeVar("Id", bound=Hashable)


class Snapshot(Generic[Id]):
    """Ticks in the order (time, schedule), immutable: 12 bytes a tick.

    It covers [start, end). ``times`` and ``owners`` are read-only memoryviews, which ``numpy.asarray`` takes
    without a copy.
    """

    __slots__ = ("_head", "end", "ids", "owners", "start", "times")

    def __init__(
        self,
        times: Sequence[int] | npt.ArrayLike,
        owners: Sequence[int] | npt.ArrayLike,
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
        made: columns.Columns = _columns().make_columns(times, owners, len(ids), in_order=in_order)
        self.times, self.owners = made
        self.ids = ids
        self.start = start
        self.end = end
        # Readers ask for it before every sleep: an attribute, not two look-ups.
        self._head = (self.times[0], ids[self.owners[0]]) if len(self.times) else None

    @classmethod
    def of(cls, entries: Iterable[tuple[Instant, Id]]) -> Self:
        """Build from (tick, schedule) pairs in any order."""
        times, owners, ids = _columns().number(entries if isinstance(entries, list) else list(entries))
        return cls(times, owners, ids)

    def __len__(self) -> int:
        return len(self.times)

    def query(self, start: Instant, end: Instant) -> list[tuple[Instant, Id]]:
        """Return the (tick, schedule) pairs in [start, end), in order. 100 out of a million: 12 us."""
        begin, stop = self._span(start, end)
        whose = map(self.ids.__getitem__, self.owners[begin:stop].tolist())
        return list(zip(self.times[begin:stop].tolist(), whose, strict=True))

    def count(self, start: Instant, end: Instant) -> int:
        """Return how many ticks there are in [start, end)."""
        begin, stop = self._span(start, end)
        return stop - begin

    def peek(self, since: Instant | None = None) -> tuple[Instant, Id] | None:
        """Return the earliest tick, or the earliest at or after ``since``; None if there is none."""
        if since is None or self._head is None:
            return self._head
        at = bisect_left(self.times, since)
        return None if at == len(self.times) else (self.times[at], self.ids[self.owners[at]])

    @property
    def nbytes(self) -> int:
        """The memory of the ticks. The plan that made the snapshot shares its ids, which are not counted."""
        return self.times.nbytes + self.owners.nbytes

    def _span(self, start: Instant, end: Instant) -> tuple[int, int]:
        begin = bisect_left(self.times, start)
        return begin, max(begin, bisect_left(self.times, end))


def _columns() -> Any:
    """Return the module that makes columns: with numpy if it is installed, in about a sixth of the time."""
    if not has_numpy():
        return columns
    from evenbeat.timeline import numpy_columns

    return numpy_columns
