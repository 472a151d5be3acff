"""A store in memory with a clock that tests set, and short methods for what nodes and users do to it."""

from __future__ import annotations

from itertools import count
from typing import Any, get_args

from msgspec.structs import replace

from evenbeat.core.ids import new_key
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, ScheduleState
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts, auditing, changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, Page, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

EVERY_STATE: tuple[ScheduleState, ...] = get_args(ScheduleState)


class WatchedStore(MemoryStore):
    """A store that can be made unavailable, and that keeps the queries it answered."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.unavailable: set[str] = set()
        """The methods that fail."""
        self.queries: list[ScheduleQuery | RunQuery] = []

    def now(self) -> int:
        self._fail("now")
        return super().now()

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self._fail("find_schedules")
        self.queries.append(query)
        return super().find_schedules(query)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self._fail("find_runs")
        self.queries.append(query)
        return super().find_runs(query)

    def find_records(self, kind: str, tenant: str | None = None, **keys: Any) -> list[Record]:
        self._fail(f"find_records of {kind}")
        return super().find_records(kind, tenant, **keys)

    def _fail(self, method: str) -> None:
        if method in self.unavailable:
            raise StoreUnavailable(f"{method} did not answer")


class Activity:
    """What nodes and users do to a store."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = WatchedStore(self.clock)
        self._tokens = map(str, count())

    def put(self, name: str, tenant: str = "default", **fields: Any) -> ScheduleRecord:
        """Create a schedule, or change it."""
        before = self._row(name, tenant)
        now = self.clock.now
        if before is None:
            given = {"task": "work", "trigger": "every 1h", "created_at": now, "updated_at": now, **fields}
            record = ScheduleRecord(name=name, tenant=tenant, **given)
        else:
            record = replace(before, **{"revision": before.revision + 1, "updated_at": now, **fields})
        return self._write(Planned(record), before)

    def put_many(self, records: list[ScheduleRecord]) -> None:
        self.store.put_schedules([Write(Planned(record), None) for record in records])

    def pause(self, name: str, until: int | None) -> None:
        before = self.row(name)
        self._write(changes.pause(before, self.clock.now, until=until), before)

    def delete(self, name: str, tenant: str = "default") -> None:
        self.put(name, tenant, state="deleted", wake_at=None)

    def fire(self) -> None:
        self.store.fire_due(self.clock.now, 100, plan)

    def row(self, name: str, tenant: str = "default") -> ScheduleRecord:
        found = self._row(name, tenant)
        assert found is not None
        return found

    def enqueue(self, run_id: str, tenant: str = "default", **fields: Any) -> None:
        now = self.clock.now
        given: dict[str, Any] = {"task": "work", "created_at": now, "run_at": now, **fields}
        self.store.add_runs([RunRecord(id=run_id, tenant=tenant, **given)])

    def claim(self, limit: int = 1) -> list[RunRecord]:
        claim = Claim(
            worker="w", token=next(self._tokens), limit=limit, now=self.clock.now, lease=30_000, tasks=None
        )
        return list(self.store.claim_runs(claim).runs)

    def succeed(self, run: RunRecord, at: int | None = None) -> None:
        end = self.clock.now if at is None else at
        assert self.store.settle_runs([attempts.succeeded(run, None, end, next(self._tokens))]) == [True]

    def fail(self, run: RunRecord) -> None:
        transition = attempts.failed(run, "broken", self.clock.now, next(self._tokens))
        assert self.store.settle_runs([transition]) == [True]

    def cancel(self, run_id: str) -> None:
        (run,) = self.store.find_runs(RunQuery(ids=(run_id,))).items
        transition = attempts.cancel(run, self.clock.now, next(self._tokens))
        assert transition is not None
        assert self.store.settle_runs([transition]) == [True]

    def retry(self, run_id: str) -> None:
        """Queue an ended run again, as ``runs.retry`` does."""
        transition = attempts.retried(self._run(run_id), next(self._tokens))
        assert transition is not None
        assert self.store.settle_runs([replace(transition, records=self._audit(run_id, "retry"))]) == [True]

    def note_audit(self, run_id: str, action: str) -> None:
        for record in self._audit(run_id, action):
            self.store.put_record(record)

    def _audit(self, run_id: str, action: str) -> tuple[Record, ...]:
        change, now = auditing.run_change(action, self._run(run_id), {}, {}), self.clock.now
        return auditing.records_of(change, "somebody", "api", new_key(now), now)

    def _run(self, run_id: str) -> RunRecord:
        return MemoryStore.find_runs(self.store, RunQuery(ids=(run_id,))).items[0]

    def ended(self, schedule: str, *, failed: bool, tenant: str = "default") -> None:
        """Let a run of a schedule begin and end."""
        self.enqueue(f"{schedule}-{next(self._tokens)}", tenant, schedule=schedule)
        (run,) = self.claim()
        if failed:
            self.fail(run)
        else:
            self.succeed(run)

    def _row(self, name: str, tenant: str) -> ScheduleRecord | None:
        query = ScheduleQuery(tenant=tenant, name=name, states=EVERY_STATE)
        return next(iter(MemoryStore.find_schedules(self.store, query).items), None)

    def _write(self, planned: Planned, before: ScheduleRecord | None) -> ScheduleRecord:
        expect = None if before is None else before.version
        (written,) = self.store.put_schedules([Write(planned, expect)])
        assert written.accepted
        return planned.schedule
