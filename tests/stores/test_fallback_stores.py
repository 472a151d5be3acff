"""The fallback on real databases: the schedules can't be used, and the work goes on."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from msgspec.structs import replace
from pymongo import MongoClient

from evenbeat.core.ids import new_key
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.node.fallback import Fallback
from evenbeat.node.fallback_ticker import FallbackTicker
from evenbeat.node.owed_successes import OwedSuccesses, without_rows
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.rules import attempts, changes
from evenbeat.rules.auditing import records_of, schedule_change
from evenbeat.rules.firing import Planned, plan
from evenbeat.rules.owed import OWED
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

BEAT = ScheduleRecord(name="beat", task="work", trigger="* * * * *", managed_by="code")
AFTER_BEAT = ScheduleRecord(name="report", task="work", trigger="on success of beat")


class Place(NamedTuple):
    """A store, and an outage of its schedules."""

    store: Store
    outage: Callable[[], AbstractContextManager[None]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@contextmanager
def in_sqlite(clock: VirtualClock, folder: Path) -> Iterator[Place]:
    path = folder / "evenbeat.db"
    store = SqliteStore(path, clock)

    def execute(text: str) -> None:
        connection = sqlite3.connect(path)
        # The indexes keep naming the table.
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(text)
        connection.commit()
        connection.close()

    @contextmanager
    def renamed() -> Iterator[None]:
        execute("ALTER TABLE evenbeat_schedules RENAME TO hidden")
        yield
        execute("ALTER TABLE hidden RENAME TO evenbeat_schedules")

    yield Place(store, renamed)


@contextmanager
def in_postgres(clock: VirtualClock, kind: str) -> Iterator[Place]:
    with own_place(server_url("postgres")) as url:
        admin = PostgresStore(url, clock)
        admin.open()
        admin.close()
        own, conninfo = admin.location.own, admin.location.conninfo

        def execute(text: str) -> None:
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute(own(text).encode())

        @contextmanager
        def revoked() -> Iterator[None]:
            execute(f"REVOKE ALL ON evenbeat.schedules FROM {role}")
            yield
            execute(f"GRANT ALL ON evenbeat.schedules TO {role}")

        @contextmanager
        def locked() -> Iterator[None]:
            with psycopg.connect(conninfo) as connection:
                connection.execute(own("LOCK TABLE evenbeat.schedules IN ACCESS EXCLUSIVE MODE").encode())
                yield

        if kind == "locked":
            yield Place(PostgresStore(url, clock, timeout=0.3, lock_timeout=0.05), locked)
            return
        role = f"node_{secrets.token_hex(4)}"
        for text in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA {admin.location.schema} TO {role}",
            f"GRANT ALL ON ALL TABLES IN SCHEMA {admin.location.schema} TO {role}",
        ):
            execute(text)
        parts = urlsplit(url)
        as_role = parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}").geturl()
        try:
            yield Place(PostgresStore(as_role, clock), revoked)
        finally:
            execute(f"DROP OWNED BY {role}")
            execute(f"DROP ROLE {role}")


@contextmanager
def in_redis(clock: VirtualClock) -> Iterator[Place]:
    with own_place(server_url("valkey")) as url:
        store = RedisStore(url, clock)
        due = f"{store.location.base}due"

        @contextmanager
        def of_another_type() -> Iterator[None]:
            with redis.Redis.from_url(store.location.url) as client:
                client.rename(due, f"{due}-hidden")
                client.set(due, "in the way")
                yield
                client.delete(due)
                client.rename(f"{due}-hidden", due)

        yield Place(store, of_another_type)


@contextmanager
def in_mongo(clock: VirtualClock) -> Iterator[Place]:
    with own_place(server_url("mongo")) as url:
        store = MongoStore(url, clock)

        @contextmanager
        def unreadable() -> Iterator[None]:
            with MongoClient[dict[str, Any]](url) as client:
                database = client[store.location.database]
                database["schedules"].rename("hidden")
                pipeline = [{"$project": {"name": {"$divide": [1, 0]}}}]
                database.create_collection("schedules", viewOn="hidden", pipeline=pipeline)
                yield
                database["schedules"].drop()
                database["hidden"].rename("schedules")

        yield Place(store, unreadable)


@pytest.fixture(params=["sqlite", "postgres-revoked", "postgres-locked", "redis", "mongo"])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Place]:
    name, _, kind = request.param.partition("-")
    made: AbstractContextManager[Place]
    if name == "sqlite":
        made = in_sqlite(clock, tmp_path)
    elif name == "postgres":
        made = in_postgres(clock, kind)
    else:
        made = in_redis(clock) if name == "redis" else in_mongo(clock)
    with made as place:
        place.store.open()
        yield place
        place.store.close()


class Node:
    """The parts of a node that take part, stepped by the test."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.clock = clock
        self.fallback = Fallback(store, Events(), [BEAT.key])
        self.store = without_rows(store, lambda: self.fallback.is_failing, lambda: None)
        self.ticker = Ticker(self.store, Events(), fallback=self.fallback)
        self.memory = FallbackTicker(self.store, Events(), self.fallback)
        self.owed = OwedSuccesses(self.store, lambda: self.fallback.is_failing)
        self.claims = 0

    def go(self, seconds: int) -> None:
        for _ in range(seconds // 10):
            self.clock.advance("10s")
            for step in (self.fallback.step, self.ticker.step, self.memory.step, self.work, self.owed.step):
                try:
                    step(self.clock.now)
                except EvenbeatError:
                    continue

    def work(self, now: int) -> None:
        self.claims += 1
        token = f"c{self.claims}"
        claim = Claim(worker="w", token=token, limit=100, now=now, lease=60_000)
        ends = [
            attempts.succeeded(run, None, now, f"e-{run.id}") for run in self.store.claim_runs(claim).runs
        ]
        if ends:
            assert self.store.settle_runs(ends) == [True] * len(ends)


def add(store: Store, wanted: ScheduleRecord) -> None:
    made = replace(changes.create(wanted, store.now()).schedule, followers=wanted.followers)
    assert store.put_schedules([Write(Planned(made), None)])[0].accepted


def found(store: Store, name: str) -> list[RunRecord]:
    page = store.find_runs(RunQuery(schedule=name, tenant="default", limit=99))
    return sorted(page.items, key=lambda run: run.tick or 0)


def test_the_work_goes_on_while_the_schedules_cant_be_used(place: Place, clock: VirtualClock) -> None:
    store = place.store
    add(store, replace(BEAT, followers="report"))
    add(store, AFTER_BEAT)
    node = Node(store, clock)
    node.go(90)
    with place.outage():
        node.go(180)
        began = node.fallback.since
        assert began is not None
        beats = found(store, "beat")
        assert [run.state for run in beats] == ["succeeded"] * 4
        assert len(found(store, "report")) == 1
        assert len(store.find_records(OWED)) == 3
        if not isinstance(store, RedisStore):  # each row of Redis is read by itself
            (finding,) = [each for each in diagnose(store, clock.now) if each.check == "schedules"]
            assert finding.level == "fail"
            assert finding.message.startswith("the schedules can't be read: ")
    node.go(60)
    assert node.fallback.since is None
    assert store.find_records(OWED) == []
    beats = found(store, "beat")
    first = beats[0].tick or 0
    assert [((run.tick or 0) - first) // 60_000 for run in beats] == [0, 1, 2, 3, 4]
    assert [run.tick for run in found(store, "report")] == [run.tick for run in beats]
    assert store.find_skipped("default", "beat", 10) == []
    (figures,) = store.statistics([BEAT.key])
    assert figures.success_count == 5


def test_a_settlement_that_is_refused_because_of_the_schedules_is_repeated_without(
    place: Place, clock: VirtualClock
) -> None:
    store = place.store
    add(store, replace(BEAT, followers="report"))
    add(store, AFTER_BEAT)
    node = Node(store, clock)
    clock.advance("1m")
    node.ticker.step(clock.now)
    with place.outage():
        node.work(clock.now)  # nobody has noticed the outage yet
        assert [run.state for run in found(store, "beat")] == ["succeeded"]
    node.owed.step(clock.now)
    other = Node(store, clock)
    for _ in range(3):
        other.owed.step(clock.now)
        node.owed.step(clock.now)
        node.ticker.step(clock.now)
    assert [run.tick for run in found(store, "report")] == [run.tick for run in found(store, "beat")]


def test_a_schedule_that_was_just_paused_does_not_fire(place: Place, clock: VirtualClock) -> None:
    store = place.store
    add(store, BEAT)
    add(store, replace(BEAT, name="yearly", trigger="0 0 1 1 *"))
    node = Node(store, clock)
    node.go(10)
    (row,) = store.find_schedules(ScheduleQuery(keys=(BEAT.key,))).items
    paused = changes.pause(row, clock.now)
    assert paused is not None
    entry = schedule_change("pause", row, paused)
    records = records_of(entry, "anna", "cli", new_key(clock.now), clock.now)
    assert store.put_schedules([Write(paused._replace(records=records), row.version)])[0].accepted
    with place.outage():
        node.go(180)
        began = node.fallback.since
        assert began is not None  # as the node last saw the row, it is active
    node.go(20)
    assert node.fallback.since is None
    assert found(store, "beat") == []


def test_a_fire_that_waits_for_a_lock_leaves_one_statement_in_the_server(clock: VirtualClock) -> None:
    """After a read that was given up, the server ends the statements itself."""
    with in_postgres(clock, "locked") as (store, outage):
        assert isinstance(store, PostgresStore)
        store.open()
        with outage():
            for _ in range(4):
                with pytest.raises(StoreUnavailable):
                    store.fire_due(clock.now, 10, plan)
            with psycopg.connect(store.location.conninfo) as connection:
                rows = connection.execute(_WAITING, (f"%{store.location.schema}%",)).fetchall()
            assert len(rows) == 1
        assert store.fire_due(clock.now, 10, plan).next_wake is None
        store.close()


_WAITING = "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
