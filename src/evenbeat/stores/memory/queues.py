"""The queued runs of the store in memory, in the order in which workers claim them. The store holds its lock
while it calls these methods."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.stores.base import Claim

_Entry = tuple[Instant, str]


class QueuedRuns:
    """A heap of (run_at, id) per queue and priority.

    Heaps may contain outdated entries, which are recognised when they are popped: ``runs`` are all runs of
    the store by their ids.
    """

    def __init__(self, runs: Mapping[str, RunRecord]) -> None:
        self._runs = runs
        self._heaps: dict[tuple[str, int], list[_Entry]] = {}

    @property
    def queues(self) -> set[str]:
        """The queues that have had runs."""
        return {queue for queue, _ in self._heaps}

    def add(self, run: RunRecord) -> None:
        heapq.heappush(self._heaps.setdefault((run.queue, run.priority), []), (run.run_at, run.id))

    def due(self, claim: Claim, now: Instant) -> Iterator[RunRecord]:
        """Yield the due runs that a claim may take, in order, and remove them from their heaps."""
        for priority in range(9, -1, -1):
            heaps = [heap for queue in claim.queues if (heap := self._heaps.get((queue, priority)))]
            yield from self._take(heaps, claim, now)

    def next_due(self, claim: Claim) -> Instant | None:
        """Return when the next run that a claim may take is due."""
        heaps = (self._heaps.get((queue, priority), []) for queue in claim.queues for priority in range(10))
        found = (self._earliest(heap, claim.tasks) for heap in heaps)
        return min((run_at for run_at in found if run_at is not None), default=None)

    def _take(self, heaps: list[list[_Entry]], claim: Claim, now: Instant) -> Iterator[RunRecord]:
        """Yield due runs of one priority, merged over the queues. Runs of other tasks stay in the heaps."""
        passed: list[tuple[list[_Entry], _Entry]] = []
        try:
            while True:
                heap = min((heap for heap in heaps if heap), key=lambda heap: heap[0], default=None)
                if heap is None or heap[0][0] > now:
                    return
                entry = heapq.heappop(heap)
                run = self._waiting(entry)
                if run is None:
                    continue
                if claim.tasks is not None and run.task not in claim.tasks:
                    passed.append((heap, entry))
                    continue
                yield run
        finally:
            for heap, entry in passed:
                heapq.heappush(heap, entry)

    def _earliest(self, heap: list[_Entry], tasks: frozenset[str] | None) -> Instant | None:
        while heap and self._waiting(heap[0]) is None:
            heapq.heappop(heap)
        if tasks is None:
            return heap[0][0] if heap else None
        waiting = (run for entry in heap if (run := self._waiting(entry)) is not None)
        return min((run.run_at for run in waiting if run.task in tasks), default=None)

    def _waiting(self, entry: _Entry) -> RunRecord | None:
        """Return the run of a heap entry; None if the entry is outdated or the run has a newer format."""
        run = self._runs.get(entry[1])
        if run is None or run.state != "queued" or run.run_at != entry[0] or run.format > FORMAT:
            return None
        return run
