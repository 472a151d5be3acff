"""``app.limits`` on every store: what it counts, and what says so, from what the database keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenbeat import Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record, RunRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock

SERVERS: dict[str, Callable[[str, VirtualClock], Store]] = {
    "postgres": PostgresStore,
    "valkey": RedisStore,
    "mongo": MongoStore,
}
HOUR = 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def app(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Iterator[Scheduler]:
    if request.param == "memory":
        store: Store = MemoryStore(clock)
    elif request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "evenbeat.db"), clock)
    else:
        store = SERVERS[request.param](request.getfixturevalue(request.param), clock)
    found = Scheduler(store)
    yield found
    found.close()


def claim(app: Scheduler, token: str) -> list[RunRecord]:
    now = app.store.now()
    return list(app.store.claim_runs(Claim(worker="box-1", token=token, limit=100, now=now, lease=HOUR)).runs)


def test_a_limit_counts_holds_up_and_lets_go(app: Scheduler, clock: VirtualClock) -> None:
    body = {"name": "box-1", "worker": True, "tasks": {"charge": "thread"}, "queues": ["default"]}
    assert app.store.put_record(
        Record(kind="node", key="box-1", body=json.dumps(body), expires=app.store.now() + HOUR)
    )
    app.enqueue("charge", {"customer": 7})
    (early,) = claim(app, "before")
    app.limits.set(task="charge", key="customer", concurrency=1)
    app.limits.set(task="charge", concurrency=3, rate="6/m", burst=2)
    runs = [app.enqueue("charge", {"customer": customer}) for customer in (7, 8, 8, 9)]
    start = app.store.now()
    assert [json.loads(run.payload) for run in claim(app, "first")] == [{"customer": 8}, {"customer": 9}]
    clock.advance("1s")
    whole, each = app.limits.list()
    assert (whole.running, whole.waiting, whole.admits, whole.admits_at) == (3, 2, 0, None)
    assert (each.running, each.waiting, each.value_count) == (3, 2, 3)
    assert whole.oldest_waiting == each.oldest_waiting == from_ms(start)
    found = [(value.value, value.running, value.waiting) for value in each.values]
    assert found == [("7", 1, 1), ("8", 1, 1), ("9", 1, 0)]
    waits = app.runs.why_waiting(runs[0].id)
    assert waits is not None
    assert (waits.reason, waits.until) == ("limited", None)
    assert app.store.settle_runs([attempts.succeeded(early, None, app.store.now(), "end")]) == [True]
    waits = app.runs.why_waiting(runs[0].id)
    assert waits is not None
    assert (waits.limit, waits.until) == ("task=charge", from_ms(start + 10_000))
    whole = app.limits.get(task="charge")
    assert (whole.running, whole.waiting, whole.admits_at) == (2, 2, from_ms(start + 10_000))
    app.limits.remove(task="charge")
    assert [run.id for run in claim(app, "second")] == [runs[0].id]
    app.limits.remove(task="charge", key="customer")
    assert [run.id for run in claim(app, "third")] == [runs[2].id]
    assert app.limits.list() == []
    assert len(app.audit.list(action="set")) == len(app.audit.list(action="remove")) == 2
