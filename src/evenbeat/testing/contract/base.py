"""The base of the contract's tests: fixtures for the store and its clock, and helpers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, Claimed, Fired, RunQuery, ScheduleQuery, Store, Write, Written
from evenbeat.testing.clock import VirtualClock

Handles = Callable[[], Store]
MINUTE = 60_000
BIG = 10_000


def schedule(name: str = "cleanup", trigger: str = "every 1m", **fields: Any) -> ScheduleRecord:
    return ScheduleRecord(name=name, trigger=trigger, **{"task": "work", **fields})


def run(run_id: str, **fields: Any) -> RunRecord:
    return RunRecord(id=run_id, **{"task": "work", **fields})


class Contract:
    """Fixtures and helpers of the contract's tests. A subclass defines ``make``."""

    __test__: ClassVar[bool] = False  # subclasses are collected, not this

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if "__test__" not in vars(cls):
            cls.__test__ = True

    def make(self, clock: VirtualClock, tmp_path: Path) -> AbstractContextManager[Handles]:
        """Return a context manager that yields a function. It is called for each store object on the same
        data."""
        raise AssertionError(f"{type(self).__name__} does not say how to make its store")

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def handles(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        with self.make(clock, tmp_path) as handles:
            yield handles

    @pytest.fixture
    def store(self, handles: Handles) -> Store:
        store = handles()
        store.open()
        return store

    def add(self, store: Store, wanted: ScheduleRecord) -> ScheduleRecord:
        (written,) = store.put_schedules([Write(changes.create(wanted, store.now()), None)])
        assert written.accepted
        assert written.current is not None
        return written.current

    def put(self, store: Store, before: ScheduleRecord, planned: Planned | None) -> Written:
        assert planned is not None
        (written,) = store.put_schedules([Write(planned, before.version)])
        return written

    def get(self, store: Store, name: str = "cleanup", tenant: str = "default") -> ScheduleRecord | None:
        page = store.find_schedules(
            ScheduleQuery(tenant=tenant, name=name, states=("active", "paused", "finished", "deleted"))
        )
        return page.items[0] if page.items else None

    def fire(self, store: Store, limit: int = 100) -> Fired:
        return store.fire_due(store.now(), limit, plan)

    def claim(self, store: Store, token: str = "claim-1", **fields: Any) -> list[RunRecord]:
        return list(self.claimed(store, token, **fields).runs)

    def claimed(self, store: Store, token: str = "claim-1", **fields: Any) -> Claimed:
        wanted = {"worker": "w1", "limit": 100, "lease": 30_000, "now": store.now(), **fields}
        return store.claim_runs(Claim(token=token, **wanted))

    def runs(self, store: Store, **query: Any) -> list[RunRecord]:
        found: list[RunRecord] = []
        cursor = None
        while True:
            page = store.find_runs(RunQuery(cursor=cursor, **query))
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    def in_threads(self, handles: Handles, work: Callable[[Store], None], count: int = 10) -> None:
        """Do ``work`` in ten threads at once, each with its own store object."""
        start = threading.Barrier(count)
        errors: list[BaseException] = []

        def guarded() -> None:
            try:
                handle = handles()
                handle.open()
                start.wait(60)
                work(handle)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
