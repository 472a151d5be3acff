"""Lists of schedules and runs: what is asked for, all of it, and no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, RunNotFound, Scheduler
from evenbeat.app import runs, schedule_search
from evenbeat.core.records import Execution, RunRecord, ScheduleRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Page, RunQuery, ScheduleQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Asked(MemoryStore):
    """Notes how many rows each look asks for."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.limits: list[int] = []

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        self.limits.append(query.limit)
        return super().find_schedules(query)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self.limits.append(query.limit)
        return super().find_runs(query)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Asked:
    return Asked(clock)


@pytest.fixture
def app(store: Asked, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    monkeypatch.setattr(schedule_search, "_PAGE", 2)
    monkeypatch.setattr(runs, "_PAGE", 2)
    app = Scheduler(store)
    for name in ("work", "other"):
        app.task(name=name)(lambda: None)
    return app


# -- schedules -----------------------------------------------------------------------------------------------


@pytest.fixture
def listed(app: Scheduler, store: Asked) -> Scheduler:
    for name in "abcde":
        app.schedules.add(name, "* * * * *", "other" if name == "c" else "work")
    app.schedules.add("x", "* * * * *", "work", tenant="acme")
    app.schedules.pause("b")
    app.schedules.delete("d")
    store.limits.clear()
    return app


@pytest.mark.parametrize(
    ("options", "names", "limits"),
    [
        ({}, "abce", [2, 2]),
        ({"limit": 1}, "a", [1]),
        ({"limit": 2}, "ab", [2]),
        ({"limit": 3}, "abc", [2, 2]),
        ({"limit": 9}, "abce", [2, 2]),
        ({"state": "paused"}, "b", [2]),
        ({"state": "deleted"}, "d", [2]),
        ({"state": "active"}, "ace", [2, 2]),
        ({"task": "other"}, "c", [2]),
        ({"tenant": "acme"}, "x", [2]),
        ({"all_tenants": True}, "xabce", [2, 2, 2]),
    ],
    ids=str,
)
def test_schedules_are_listed_as_asked(
    listed: Scheduler, store: Asked, options: dict[str, Any], names: str, limits: list[int]
) -> None:
    assert [found.name for found in listed.schedules.list(**options)] == list(names)
    assert store.limits == limits


def test_schedules_are_listed_by_their_task_itself(listed: Scheduler) -> None:
    assert [found.name for found in listed.schedules.list(task=listed.tasks.get("other"))] == ["c"]


def test_a_state_that_there_is_not_is_refused(listed: Scheduler) -> None:
    unknown: Any = "asleep"
    with pytest.raises(InvalidValue, match="asleep"):
        listed.schedules.list(state=unknown)
    with pytest.raises(InvalidValue, match="asleep"):
        listed.runs.list(state=unknown)


# -- runs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def enqueued(app: Scheduler, store: Asked, clock: VirtualClock) -> Scheduler:
    app.schedules.add("beat", "* * * * *", "work")
    for name in "abcd":
        clock.advance("1s")
        app.enqueue("other" if name == "c" else "work", id=name, queue="slow" if name == "d" else "default")
    clock.advance("1s")
    app.enqueue("work", id="x", tenant="acme")
    clock.advance("1s")
    app.schedules.run_now("beat", id="t")
    app.runs.cancel("b")
    store.limits.clear()
    return app


@pytest.mark.parametrize(
    ("options", "ids", "limits"),
    [
        ({}, "tdcba", [2, 2, 2]),
        ({"limit": 1}, "t", [1]),
        ({"limit": 2}, "td", [2]),
        ({"limit": 3}, "tdc", [2, 1]),
        ({"state": "cancelled"}, "b", [2]),
        ({"task": "other"}, "c", [2]),
        ({"queue": "slow"}, "d", [2]),
        ({"schedule": "beat"}, "t", [2]),
        ({"tenant": "acme"}, "x", [2]),
        ({"all_tenants": True}, "txdcba", [2, 2, 2]),
    ],
    ids=str,
)
def test_runs_are_listed_as_asked(
    enqueued: Scheduler, store: Asked, options: dict[str, Any], ids: str, limits: list[int]
) -> None:
    assert [run.id for run in enqueued.runs.list(**options)] == list(ids)
    assert store.limits == limits


def test_runs_are_listed_by_their_task_itself(enqueued: Scheduler) -> None:
    assert [run.id for run in enqueued.runs.list(task=enqueued.tasks.get("other"))] == ["c"]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"worker": "w"}, "d"),
        ({"state": "running"}, "d"),
        ({"state": "retrying"}, "a"),
        ({"state": "queued"}, "tca"),
        ({"since": "1m"}, "d"),
        ({"since": timedelta(minutes=3)}, "dba"),
        ({"since": "3m", "until": "1m30s"}, "ba"),
        ({"since": "3m", "state": "cancelled"}, "b"),
        ({"until": "1m30s"}, "ba"),
        ({"until": "3m"}, ""),
    ],
    ids=str,
)
def test_runs_are_listed_by_when_they_ran_and_where(
    enqueued: Scheduler, clock: VirtualClock, options: dict[str, Any], ids: str
) -> None:
    def claimed(queue: str) -> RunRecord:
        claim = Claim(
            worker="w", token=queue, limit=1, now=clock.now, lease=30_000, queues=(queue,), turn="acme"
        )
        (held,) = enqueued.store.claim_runs(claim).runs
        return held

    held = claimed("default")
    again = attempts.failed(replace(held, execution=Execution(retries=1)), "boom", clock.now, "t")
    assert enqueued.store.settle_runs([again]) == [True]
    clock.advance("1m")
    claimed("slow")
    clock.advance("1m")
    assert [run.id for run in enqueued.runs.list(**options)] == list(ids)


def test_a_hundred_runs_are_listed_by_default(app: Scheduler) -> None:
    app.enqueue_many(["work"] * 101)
    assert len(app.runs.list()) == 100


def test_runs_are_counted_by_tenant(enqueued: Scheduler) -> None:
    assert enqueued.runs.count() == {"queued": 4, "cancelled": 1}
    assert enqueued.runs.count(tenant="acme") == {"queued": 1}
    assert enqueued.runs.count(all_tenants=True) == {"queued": 5, "cancelled": 1}


def test_the_log_of_a_run_that_there_is_not_is_an_error(enqueued: Scheduler) -> None:
    assert enqueued.runs.logs("a") == []
    with pytest.raises(RunNotFound, match="nobody"):
        enqueued.runs.logs("nobody")
