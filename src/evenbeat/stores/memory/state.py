"""``MemoryState``: the data of the store in memory, its lock, and the writes that keep its indexes true."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, LogChunk, RunRecord, ScheduleRecord, Skipped, Statistics
from evenbeat.rules.firing import Active, Planned
from evenbeat.stores.memory.queues import QueuedRuns
from evenbeat.stores.memory.records import MemoryRecords
from evenbeat.stores.waking import Waker

Key: TypeAlias = tuple[str, str]
"""(tenant, name) of a schedule."""


class MemoryState:
    """The base of the classes that ``MemoryStore`` consists of. Each has the operations about one concept.

    Methods with an underscore are called while the lock is held.
    """

    def __init__(self, clock: Callable[[], Instant] = wall_clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waker = Waker()
        self._schedules: dict[Key, ScheduleRecord] = {}
        # Heaps may contain outdated entries, which are recognised when they are popped.
        self._wakes: list[tuple[Instant, str, str]] = []
        self._runs: dict[str, RunRecord] = {}
        self._queued = QueuedRuns(self._runs)
        self._running: dict[str, None] = {}
        self._active: dict[Key, dict[str, None]] = {}
        self._claims: dict[str, list[str]] = {}
        self._skipped: dict[Key, list[Skipped]] = {}
        self._statistics: dict[Key, Statistics] = {}
        self._records = MemoryRecords(self.now)
        self._logs: dict[str, dict[tuple[int, int], LogChunk]] = {}

    def now(self) -> Instant:
        return self._clock()

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()

    def _apply(self, planned: Planned) -> None:
        schedule = planned.schedule
        self._schedules[schedule.key] = schedule
        if schedule.wake_at is not None:
            heapq.heappush(self._wakes, (schedule.wake_at, *schedule.key))
        for run in planned.runs:
            self._add(run)
        if planned.skipped:
            self._skipped.setdefault(schedule.key, []).extend(planned.skipped)
        for run_id in planned.cancels:
            active = self._runs.get(run_id)
            if active is not None and active.state in ACTIVE_STATES:
                self._store(replace(active, cancel_requested=True))
        self._records.add(planned.records)
        for identity in planned.spent:
            self._records.drop(*identity)

    def _add(self, run: RunRecord) -> bool:
        if run.id in self._runs:
            return False
        self._store(run)
        return True

    def _store(self, run: RunRecord) -> None:
        before = self._runs.get(run.id)
        self._runs[run.id] = run
        if run.state == "queued":
            self._queued.add(run)
        if run.state == "running":
            self._running[run.id] = None
        elif before is not None and before.state == "running":
            del self._running[run.id]
        if run.schedule is not None:
            key = (run.tenant, run.schedule)
            if run.state in ACTIVE_STATES:
                self._active.setdefault(key, {})[run.id] = None
            elif key in self._active:
                self._active[key].pop(run.id, None)

    def _active_runs(self, key: Key) -> tuple[Active, ...]:
        runs = (self._runs[run_id] for run_id in self._active.get(key, ()))
        return tuple(Active(run.id, run.state, run.cancel_requested) for run in runs)
