"""``repair`` on every store: it leaves unreadable rows to people, and repairs the rest."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pytest
import redis
from msgspec.structs import replace

from evenbeat.app.repairs import repair
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.observe.attention import LEASE_OVER
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Store, Write
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis.location import read_location
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

NONSENSE = "{nonsense"


class Damaged(ABC):
    """A store, and direct access to its data."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @abstractmethod
    def swap(self, kind: str, key: str, text: Any) -> Any:
        """Replace a JSON text of a row, and return the old one."""


class DamagedSqlite(Damaged):
    def __init__(self, store: SqliteStore, path: Path) -> None:
        super().__init__(store)
        self._path = path

    def swap(self, kind: str, key: str, text: Any) -> Any:
        name, column = ("name", "catch_up") if kind == "schedules" else ("id", "execution")
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            row = f"FROM evenbeat_{kind} WHERE {name} = ?"
            ((before,),) = connection.execute(f"SELECT {column} {row}", (key,)).fetchall()
            update = f"UPDATE evenbeat_{kind} SET {column} = ? WHERE {name} = ?"
            connection.execute(update, (text, key))
        return before


class DamagedPostgres(Damaged):
    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._location = store.location

    def swap(self, kind: str, key: str, text: Any) -> Any:
        name, column = ("name", "catch_up") if kind == "schedules" else ("id", "execution")
        with psycopg.connect(self._location.conninfo, autocommit=True) as connection:
            row = f"FROM evenbeat.{kind} WHERE {name} = %s"
            look = self._location.own(f"SELECT {column} {row}").encode()
            ((before,),) = connection.execute(look, (key,)).fetchall()
            update = f"UPDATE evenbeat.{kind} SET {column} = %s WHERE {name} = %s"
            connection.execute(self._location.own(update).encode(), (text, key))
        return before


class DamagedRedis(Damaged):
    def __init__(self, store: RedisStore, url: str) -> None:
        super().__init__(store)
        self._address = read_location(url)

    def swap(self, kind: str, key: str, text: Any) -> Any:
        row = f"{self._address.base}{kind}:{key}"
        client: Any
        with redis.Redis.from_url(self._address.url, decode_responses=True, protocol=2) as client:
            before = client.hget(row, "definition")
            assert before is not None
            client.hset(row, "definition", text)
        return before


class DamagedMongo(Damaged):
    def __init__(self, store: MongoStore, url: str) -> None:
        super().__init__(store)
        self._url = url

    def swap(self, kind: str, key: str, text: Any) -> Any:
        row, field = (f"default/{key}", "catch_up") if kind == "schedules" else (key, "execution")
        client: Any
        with pymongo.MongoClient(self._url) as client:
            rows = client.get_default_database()[kind]
            before = rows.find_one({"_id": row})[field]
            rows.update_one({"_id": row}, {"$set": {field: text}})
        return before


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["sqlite", "postgres", "valkey", "mongo"])
def damaged(request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path) -> Iterator[Damaged]:
    place: Damaged
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            path = tmp_path / "evenbeat.db"
            place = DamagedSqlite(SqliteStore(path, clock), path)
        else:
            url = stack.enter_context(own_place(server_url(request.param)))
            if request.param == "postgres":
                place = DamagedPostgres(PostgresStore(url, clock))
            elif request.param == "valkey":
                place = DamagedRedis(RedisStore(url, clock), url)
            else:
                place = DamagedMongo(MongoStore(url, clock), url)
        stack.callback(place.store.close)
        place.store.open()
        yield place


def add_schedules(store: Store, *names: str, trigger: str = "every 1m") -> None:
    wanted = [ScheduleRecord(name=name, task="work", trigger=trigger) for name in names]
    store.put_schedules([Write(changes.create(entry, store.now()), None) for entry in wanted])


def fired(store: Store, clock: VirtualClock) -> list[str]:
    clock.advance("1m")
    return sorted(planned.schedule.name for planned in store.fire_due(clock.now, 10, plan).planned)


def mended(store: Store, kind: str) -> list[str]:
    """Repair the store; return the subjects of one kind that were mended."""
    findings = repair(store, dry_run=False).findings
    return [each.subject for each in findings if each.kind == kind and each.outcome == "mended"]


def notes(store: Store) -> list[str]:
    return [note.key for note in store.find_records("quarantine")]


def test_an_unreadable_schedule_is_not_repaired_and_is_woken_once_it_is_readable(
    damaged: Damaged, clock: VirtualClock
) -> None:
    store = damaged.store
    add_schedules(store, "a", "b", "c")
    before = damaged.swap("schedules", "b", NONSENSE)
    assert fired(store, clock) == ["a", "c"]

    for _ in range(2):
        assert mended(store, "asleep") == []
    assert notes(store) == ["b"]
    (finding,) = [one for one in diagnose(store, clock.now) if one.check == "quarantine"]
    assert (finding.level, len(finding.details)) == ("fail", 1)
    assert finding.details[0].startswith("b: ")
    assert fired(store, clock) == ["a", "c"]
    assert damaged.swap("schedules", "b", before) == NONSENSE

    assert mended(store, "asleep") == ["b"]
    assert notes(store) == []
    assert mended(store, "asleep") == []
    assert fired(store, clock) == ["a", "b", "c"]


def test_a_schedule_whose_trigger_makes_no_sense_is_not_woken(damaged: Damaged, clock: VirtualClock) -> None:
    store = damaged.store
    add_schedules(store, "a", "b")
    (row,) = store.find_schedules(ScheduleQuery(name="b")).items
    spoilt = replace(row, trigger="every now and then", revision=row.revision + 1)
    assert store.put_schedules([Write(Planned(spoilt), row.version)])[0].accepted
    assert fired(store, clock) == ["a"]
    assert mended(store, "asleep") == []
    assert notes(store) == ["b"]
    assert fired(store, clock) == ["a"]


def test_an_unreadable_run_does_not_keep_others_from_being_repaired(
    damaged: Damaged, clock: VirtualClock
) -> None:
    store = damaged.store
    store.add_runs(
        [RunRecord(id=name, task="work", run_at=clock.now, created_at=clock.now) for name in "abc"]
    )
    claim = Claim(worker="gone", token="t", limit=9, now=clock.now, lease=1_000)
    assert len(store.claim_runs(claim).runs) == 3
    before = damaged.swap("runs", "b", NONSENSE)
    clock.advance(f"{LEASE_OVER + 1_001}ms")
    assert sorted(mended(store, "lost")) == ["a", "c"]
    assert mended(store, "lost") == []
    assert damaged.swap("runs", "b", before) == NONSENSE
    states = {run.id: (run.state, run.crashes) for run in store.find_runs(RunQuery(ids=("a", "c"))).items}
    assert states == {"a": ("queued", 1), "c": ("queued", 1)}


@pytest.mark.parametrize("bad", ["ab", "bcf"])
def test_pages_of_runs_continue_after_unreadable_ones(
    damaged: Damaged, clock: VirtualClock, bad: str
) -> None:
    store = damaged.store
    store.add_runs(
        [RunRecord(id=name, task="work", created_at=clock.now - at) for at, name in enumerate("abcdef")]
    )
    for name in bad:
        damaged.swap("runs", name, NONSENSE)
    for limit in (1, 2, 5):
        page = store.find_runs(RunQuery(limit=limit))
        found = [run.id for run in page.items]
        while page.cursor is not None:
            page = store.find_runs(RunQuery(limit=limit, cursor=page.cursor))
            assert 0 < len(page.items) <= limit
            found += [run.id for run in page.items]
        assert found == [name for name in "abcdef" if name not in bad]
