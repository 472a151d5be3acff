"""The queued runs of the store in memory, in the order in which workers claim them. The store holds its lock
while it calls these methods."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.rules.limits import Candidate, in_turn, read_cohort, share
from evenbeat.stores.base import Claim

_Entry = tuple[Instant, str]
_Heap = list[_Entry]


class QueuedRuns:
    """A heap of (run_at, id) per queue, priority and tenant, and one per cohort.

    Heaps may contain outdated entries, which are recognised when they are popped: ``runs`` are all runs of
    the store by their ids.
    """

    def __init__(self, runs: Mapping[str, RunRecord]) -> None:
        self._runs = runs
        self._heaps: dict[tuple[str, int], dict[str, _Heap]] = {}
        self._cohorts: dict[str, dict[str, _Heap]] = {}

    @property
    def queues(self) -> set[str]:
        """The queues that have had runs."""
        return {queue for queue, _ in self._heaps} | self._cohorts.keys()

    @property
    def has_cohorts(self) -> bool:
        return any(self._cohorts.values())

    def add(self, run: RunRecord) -> None:
        if run.cohort is None:
            heap = self._heaps.setdefault((run.queue, run.priority), {}).setdefault(run.tenant, [])
        else:
            heap = self._cohorts.setdefault(run.queue, {}).setdefault(run.cohort, [])
        heapq.heappush(heap, (run.run_at, run.id))

    def add_candidates(self, candidates: list[Candidate]) -> None:
        """Put back candidates that were not claimed."""
        for run in candidates:
            self.add(self._runs[run.id])

    def due(
        self, claim: Claim, now: Instant, room: int, priority: int, give_cohort: Callable[[RunRecord], bool]
    ) -> list[Candidate]:
        """Take due runs without a cohort out of their heaps: up to ``room`` of a priority, divided among the
        tenants in turn.

        Runs to which ``give_cohort`` gives a cohort are passed over.
        """
        heaps: dict[str, list[_Heap]] = {}
        for queue in dict.fromkeys(claim.queues):
            for tenant, heap in self._heaps.get((queue, priority), {}).items():
                heaps.setdefault(tenant, []).append(heap)
        waiting = {tenant: some for tenant, some in heaps.items() if self._is_due(some, now)}
        found: list[Candidate] = []
        taken: set[str] = set()
        tenants = in_turn(list(waiting), claim.turn)
        while tenants and len(found) < room:
            # Those of which the first pass left runs behind divide what the others left free.
            left = []
            for at, tenant in enumerate(tenants):
                most = share(room - len(found), len(tenants) - at)
                some = list(self._take(waiting[tenant], claim, now, most, give_cohort, taken))
                found += some
                if some and len(some) == most:
                    left.append(tenant)
            tenants = left
        return found

    def cohorts(self, claim: Claim) -> list[str]:
        """Return the cohorts of the claim's queues and tasks that have queued runs, the highest priority
        first."""
        found: list[tuple[int, str]] = []
        for queue in dict.fromkeys(claim.queues):
            cohorts = self._cohorts.get(queue, {})
            for cohort, heap in list(cohorts.items()):
                self._drop_outdated(heap, cohort)
                parts = read_cohort(cohort)
                if not heap:
                    del cohorts[cohort]
                elif claim.tasks is None or parts.task in claim.tasks:
                    found.append((-parts.priority, cohort))
        return [cohort for _, cohort in sorted(found)]

    def of_cohort(self, cohort: str, now: Instant, limit: int | None) -> list[Candidate]:
        """Take runs of a cohort that are due at ``now`` out of its heap."""
        parts = read_cohort(cohort)
        heap = self._cohorts.get(parts.queue, {}).get(cohort, [])
        found: list[Candidate] = []
        while heap and heap[0][0] <= now and (limit is None or len(found) < limit):
            run = self._waiting(heapq.heappop(heap), cohort)
            if run is not None and all(run.id != other.id for other in found[-1:]):
                found.append(Candidate(run.id, run.tenant, run.priority, run.run_at, cohort))
        return found

    def first_of_cohort(self, cohort: str) -> Instant | None:
        heap = self._cohorts.get(read_cohort(cohort).queue, {}).get(cohort, [])
        self._drop_outdated(heap, cohort)
        return heap[0][0] if heap else None

    def next_due(self, claim: Claim) -> Instant | None:
        """Return when the next run without a cohort that a claim may take is due."""
        heaps = (
            heap
            for queue in claim.queues
            for priority in range(10)
            for heap in self._heaps.get((queue, priority), {}).values()
        )
        found = (self._earliest(heap, claim.tasks) for heap in heaps)
        return min((run_at for run_at in found if run_at is not None), default=None)

    def _is_due(self, heaps: list[_Heap], now: Instant) -> bool:
        return any(heap and heap[0][0] <= now for heap in heaps)

    def _take(
        self,
        heaps: list[_Heap],
        claim: Claim,
        now: Instant,
        most: int,
        give_cohort: Callable[[RunRecord], bool],
        taken: set[str],
    ) -> Iterator[Candidate]:
        """Yield due runs of one tenant and priority, merged over the queues. Runs of other tasks stay in the
        heaps. ``taken`` has the runs that passes before this one took."""
        passed: list[tuple[_Heap, _Entry]] = []
        enough = len(taken) + most
        while len(taken) < enough:
            heap = min((heap for heap in heaps if heap), key=lambda heap: heap[0], default=None)
            if heap is None or heap[0][0] > now:
                break
            entry = heapq.heappop(heap)
            run = self._waiting(entry, None)
            # A run that was written twice while it was queued has two entries.
            if run is None or run.id in taken:
                continue
            if claim.tasks is not None and run.task not in claim.tasks:
                passed.append((heap, entry))
                continue
            if give_cohort(run):
                continue
            taken.add(run.id)
            yield Candidate(run.id, run.tenant, run.priority, run.run_at)
        for heap, entry in passed:
            heapq.heappush(heap, entry)

    def _earliest(self, heap: _Heap, tasks: frozenset[str] | None) -> Instant | None:
        self._drop_outdated(heap, None)
        if not heap:
            return None
        # The first entry is the earliest: the others are read only if its task is another one.
        if tasks is None or self._runs[heap[0][1]].task in tasks:
            return heap[0][0]
        waiting = (run for entry in heap if (run := self._waiting(entry, None)) is not None)
        return min((run.run_at for run in waiting if run.task in tasks), default=None)

    def _drop_outdated(self, heap: _Heap, cohort: str | None) -> None:
        while heap and self._waiting(heap[0], cohort) is None:
            heapq.heappop(heap)

    def _waiting(self, entry: _Entry, cohort: str | None) -> RunRecord | None:
        """Return the run of a heap entry; None if the entry is outdated or the run has a newer format."""
        run = self._runs.get(entry[1])
        if run is None or run.state != "queued" or run.run_at != entry[0] or run.format > FORMAT:
            return None
        return run if run.cohort == cohort else None
