"""A store as one node sees it: a proxy that reports every call, and injects network faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from evenbeat.core.instants import Instant
from evenbeat.core.records import LogChunk, Record, RunRecord, RunState, ScheduleRecord, Transition
from evenbeat.rules.limits import Limit
from evenbeat.stores.base import (
    EVERYTHING,
    Claim,
    Claimed,
    EndedRuns,
    Fired,
    Lost,
    Page,
    PlanFunction,
    Purged,
    RunQuery,
    ScheduleQuery,
    Store,
    Write,
    Written,
)

T = TypeVar("T")


class Intent(NamedTuple):
    """A user's change of a schedule, as the user asked for it. It determines which ticks to expect."""

    kind: str
    """create, retrigger, reschedule, delete; any other kind does not change the ticks."""
    now: Instant
    trigger: str | None = None
    tick: Instant | None = None


class Call:
    """A call in progress, and its observed effects."""

    def __init__(self, node: str, name: str, argument: Any, intent: Intent | None = None) -> None:
        self.node = node
        self.name = name
        self.argument = argument
        self.intent = intent
        self.written: set[tuple[str, str]] = set()
        self.settled: set[tuple[str, str]] = set()
        """The runs and tokens of transitions that it applied."""
        self.added: set[str] = set()
        self.before: dict[tuple[str, str], ScheduleRecord | None] = {}
        """The rows that it wrote, before the write."""
        self.fired_from: dict[tuple[str, str], ScheduleRecord] = {}
        """The rows that it fired, before the fire."""
        # At the commit: before the answer, other nodes may have changed them.
        self.rows: dict[tuple[str, str], ScheduleRecord | None] = {}
        self.held: dict[str, RunRecord] = {}
        self.has_held: set[str] = set()
        """The runs that a claim held at any look at the store. Others may have ended some of them since."""
        self.took: set[str] = set()
        """The runs that a claim has taken. It may have lost some of them before its last commit."""
        self.limits: tuple[Limit, ...] = ()
        """The limits when a claim began. One that is set or changed later holds for the next claim."""
        self.queued: dict[str, tuple[int, str | None]] | None = None
        """The attempt and the last transition of each run that was queued when a claim began; None if there
        are no limits."""
        self.begun: dict[tuple[str, str], ScheduleRecord] = {}
        """The schedules when the call began, if there are dependencies."""
        self.next_due: Instant | None = None
        """When the earliest run that a claim left behind may be claimed. A later answer would be an error."""


class Watcher:
    """Receives reports of calls. The simulation overrides it."""

    def begin(self, call: Call) -> None: ...
    def hook(self, command: str) -> None: ...
    def answered(self, call: Call, answer: object) -> None: ...
    def end(self, call: Call) -> None: ...


class FaultProxy:
    """The part of a store that nodes use. It reports each call before, during and after it."""

    def __init__(self, store: Store, node: str, watcher: Watcher) -> None:
        self._store = store
        self._node = node
        self._watcher = watcher

    def open(self) -> None:
        self._store.open()

    def close(self) -> None:
        self._store.close()

    def now(self) -> Instant:
        return self._store.now()

    def put(self, write: Write, intent: Intent) -> Written:
        return self._call("put_schedules", [write], self._store.put_schedules, intent)[0]

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        """Write schedules as nodes do, which change no ticks."""
        return self._call("put_schedules", writes, self._store.put_schedules)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        return self._call("find_schedules", query, self._store.find_schedules)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        return self._call("fire_due", now, lambda _: self._store.fire_due(now, limit, plan))

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        return self._call("add_runs", runs, lambda _: self._store.add_runs(runs, before))

    def claim_runs(self, claim: Claim) -> Claimed:
        return self._call("claim_runs", claim, self._store.claim_runs)

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._call("settle_runs", transitions, self._store.settle_runs)

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        return self._call("get_record", key, lambda _: self._store.get_record(kind, tenant, key))

    def find_records(self, kind: str, tenant: str | None = None, **only: Any) -> list[Record]:
        return self._call("find_records", kind, lambda _: self._store.find_records(kind, tenant, **only))

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        return self._call("put_record", record, lambda _: self._store.put_record(record, expect))

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        return self._call(
            "delete_record", key, lambda _: self._store.delete_record(kind, tenant, key, version)
        )

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        return self._call("find_runs", query, self._store.find_runs)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        return self._call("lost_runs", ended_by, lambda _: self._store.lost_runs(ended_by, limit))

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        self._call("append_log", chunks, self._store.append_log)

    def ended_at(self, position: int, tenant: str | None, states: Sequence[RunState]) -> Instant | None:
        return self._call("ended_at", position, lambda _: self._store.ended_at(position, tenant, states))

    def hint(self) -> None:
        """Return at once: the simulation decides at random when a node runs."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        wanted = (finished_before, runs)
        return self._call("purge", wanted, lambda _: self._store.purge(finished_before, limit, runs))

    def _call(self, name: str, argument: Any, method: Callable[[Any], T], intent: Intent | None = None) -> T:
        call = Call(self._node, name, argument, intent)
        self._watcher.begin(call)
        try:
            answer = method(argument)
            self._watcher.answered(call, answer)
        finally:
            self._watcher.end(call)
        return answer


READS = frozenset(("find_schedules", "find_runs", "find_records", "lost_runs", "get_record", "ended_at"))
