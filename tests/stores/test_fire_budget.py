"""A fire adds no more runs in one step than a database should take; the rest comes with the next."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Store, Write
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "valkey", "mongo"])
@pytest.mark.parametrize(("count", "size", "steps"), [(25, 10, [2_000, 500]), (3, 30_000, [200, 100])])
def test_a_backlog_is_fired_in_steps(
    kind: str, count: int, size: int, steps: list[int], tmp_path: Path
) -> None:
    clock = VirtualClock()
    with contextlib.ExitStack() as stack:
        store: Store
        if kind == "sqlite":
            store = SqliteStore(tmp_path / "evenbeat.db", clock)
        else:
            url = stack.enter_context(own_place(server_url(kind)))
            kinds = {"postgres": PostgresStore, "valkey": RedisStore, "mongo": MongoStore}
            store = kinds[kind](url, clock)
        stack.callback(store.close)
        store.open()
        payload = f'"{"x" * size}"'
        wanted = [
            ScheduleRecord(
                name=f"s{at}", task="work", trigger="every 1m", catch_up=CatchUp("all"), payload=payload
            )
            for at in range(count)
        ]
        store.put_schedules([Write(changes.create(entry, clock.now), None) for entry in wanted])
        clock.advance("100m")
        found = []
        while planned := store.fire_due(clock.now, 500, plan).planned:
            found.append(sum(len(entry.runs) for entry in planned))
        assert found == steps
