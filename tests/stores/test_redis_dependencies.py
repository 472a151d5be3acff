"""Dependencies in Redis: an index of another type stops no other schedule and no settlement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Claim, Write
from evenbeat.stores.redis import RedisStore
from evenbeat.testing import VirtualClock
from tests.stores.test_redis_types import overwrite


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(valkey: str, clock: VirtualClock) -> Iterator[RedisStore]:
    made = RedisStore(valkey, clock=clock)
    made.open()
    yield made
    made.close()


@pytest.fixture
def client(store: RedisStore, valkey: str) -> Iterator[Any]:
    found = redis.Redis.from_url(valkey.split("?")[0])
    yield found
    found.close()


def test_an_index_of_successes_that_is_something_else_stops_nobody_else(
    store: RedisStore, clock: VirtualClock, client: Any
) -> None:
    load = changes.create(ScheduleRecord(name="load", task="work", trigger="every 1m"), clock.now)
    load = load._replace(schedule=replace(load.schedule, followers="report"))
    report = changes.create(
        ScheduleRecord(name="report", task="work", trigger="on success of load"), clock.now
    )
    assert all(each.accepted for each in store.put_schedules([Write(load, None), Write(report, None)]))
    clock.advance("1m")
    store.fire_due(clock.now, 10, plan)
    (run,) = store.claim_runs(Claim(worker="w", token="c", limit=5, now=clock.now, lease=600_000)).runs
    key = overwrite(client, store, "kinds:success")
    assert store.settle_runs([attempts.succeeded(run, None, clock.now, "done")]) == [True]
    (note,) = store.find_records("quarantine")
    assert "kinds:success is a string" in note.body
    clock.advance("1m")
    fired = store.fire_due(clock.now, 10, plan)
    assert sorted(planned.schedule.name for planned in fired.planned if planned.runs) == ["load"]
    client.delete(key)
    (run,) = store.claim_runs(Claim(worker="w", token="d", limit=5, now=clock.now, lease=600_000)).runs
    assert store.settle_runs([attempts.succeeded(run, None, clock.now, "again")]) == [True]
    (planned,) = store.fire_due(clock.now, 10, plan).planned
    assert [each.schedule for each in planned.runs] == ["report"]
