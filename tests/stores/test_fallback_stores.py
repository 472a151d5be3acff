"""The fallback on real databases: the table of schedules is renamed or locked, and runs can be written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from evenbeat.core.records import ScheduleRecord
from evenbeat.doctor.diagnosis import diagnose
from evenbeat.errors import EvenbeatError
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.fallback import Fallback
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import RunQuery, Store, Write
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

BEAT = ScheduleRecord(name="beat", task="work", trigger="* * * * *", managed_by="code")


class Place:
    """A store, and the statements that hide its table of schedules and show it again."""

    def __init__(self, store: Store, execute: Callable[[str], None], table: str) -> None:
        self.store = store
        self._execute = execute
        self._table = table

    @contextmanager
    def hidden(self) -> Iterator[None]:
        self._execute(f"ALTER TABLE {self._table} RENAME TO hidden")
        yield
        parent, _, name = self._table.rpartition(".")
        hidden = f"{parent}.hidden" if parent else "hidden"
        self._execute(f"ALTER TABLE {hidden} RENAME TO {name}")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path / "evenbeat.db"
        file = SqliteStore(path, clock)
        file.open()

        def in_file(text: str) -> None:
            connection = sqlite3.connect(path)
            # The indexes keep naming the table.
            connection.execute("PRAGMA legacy_alter_table = ON")
            connection.execute(text)
            connection.commit()
            connection.close()

        yield Place(file, in_file, "evenbeat_schedules")
        file.close()
        return
    with own_place(server_url("postgres")) as url:
        server = PostgresStore(url, clock)
        server.open()

        def on_server(text: str) -> None:
            with psycopg.connect(server.location.conninfo, autocommit=True) as connection:
                connection.execute(server.location.own(text).encode())

        yield Place(server, on_server, "evenbeat.schedules")
        server.close()


def test_ticks_go_on_while_the_table_of_schedules_is_gone(place: Place, clock: VirtualClock) -> None:
    store = place.store
    made = changes.create(replace(BEAT), store.now()).schedule
    assert store.put_schedules([Write(Planned(made), None)])[0].accepted
    events = Events()
    fallback = Fallback(store, events, [BEAT.key])
    rows = Ticker(store, events, fallback=fallback)
    code = CodeTicker(store, events, fallback, retention=1 << 40)

    def go(seconds: int) -> None:
        for _ in range(seconds // 5):
            clock.advance("5s")
            for step in (fallback.step, rows.step, code.step):
                try:
                    step(clock.now)
                except EvenbeatError:
                    continue

    go(90)
    with place.hidden():
        go(180)
        began = fallback.since
        assert began is not None
        (finding,) = [each for each in diagnose(store, clock.now) if each.check == "schedules"]
        assert finding.level == "fail"
        assert finding.message.startswith("the schedules can't be read: ")
    go(60)
    assert fallback.since is None
    found = sorted(run.tick or 0 for run in store.find_runs(RunQuery(limit=99)).items)
    assert [(tick - found[0]) // 60_000 for tick in found] == [0, 1, 2, 3, 4]
    assert store.find_skipped("default", "beat", 10) == []
