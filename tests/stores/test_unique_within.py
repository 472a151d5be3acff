"""Unique runs within the caller's transaction: it commits, is rolled back, or is still open."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from evenbeat import Run, Scheduler, StoreUnavailable
from evenbeat.core.instants import LAST
from evenbeat.core.records import RunRecord
from evenbeat.rules.unique_runs import ADD_WINDOW, KIND
from evenbeat.stores.sqlite import SqliteStore


@pytest.fixture
def app(postgres: str) -> Iterator[Scheduler]:
    app = Scheduler(postgres)
    app.runs.count()
    yield app
    app.close()


@pytest.fixture
def connection(postgres: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(urlsplit(postgres)._replace(query="").geturl()) as connection:
        yield connection


def test_a_transaction_that_commits(app: Scheduler, connection: psycopg.Connection) -> None:
    with connection.transaction():
        run = app.enqueue("work", unique="order-42", within=connection)
        assert app.enqueue("work", unique="order-42", within=connection).id == run.id
        ids = app.enqueue_many(["work", ("work", {"n": 1})], unique="order-42", within=connection)
        assert ids == [run.id, run.id]
        assert app.runs.list() == []
    assert [each.id for each in app.runs.list()] == [run.id]
    with connection.transaction():
        assert app.enqueue("work", unique="order-42", within=connection).id == run.id


def test_a_transaction_that_is_rolled_back(app: Scheduler, connection: psycopg.Connection) -> None:
    with connection.transaction(force_rollback=True):
        lost = app.enqueue("work", {"by": "lost"}, unique="order-42", within=connection)
    assert app.runs.list() == []
    run = app.enqueue("work", {"by": "next"}, unique="order-42")
    assert (run.id, run.payload) == (lost.id, {"by": "next"})
    assert len(app.runs.list()) == len(app.store.find_records(KIND)) == 1


@pytest.mark.parametrize("commits", [True, False])
def test_who_enqueues_meanwhile_waits_for_the_transaction_and_makes_no_second_run(
    app: Scheduler, connection: psycopg.Connection, commits: bool
) -> None:
    answers: list[Run] = []
    with connection.transaction(force_rollback=not commits):
        first = app.enqueue("work", {"by": "first"}, unique="order-42", within=connection)
        meanwhile = threading.Thread(
            target=lambda: answers.append(app.enqueue("work", {"by": "second"}, unique="order-42"))
        )
        meanwhile.start()
        with psycopg.connect(
            connection.info.dsn, password=connection.info.password, autocommit=True
        ) as watch:
            while not watch.execute(
                "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            ).fetchall():
                pass
        assert answers == []
    meanwhile.join()
    (run,) = app.runs.list()
    assert (run.id, answers[0].id) == (first.id, first.id)
    assert run.payload == {"by": "first" if commits else "second"}


@pytest.fixture(params=["postgres", "sqlite"])
def joined(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Scheduler, Any]]:
    """An app, and a connection to its database."""
    path = tmp_path / "evenbeat.db"
    url = request.getfixturevalue("postgres") if request.param == "postgres" else f"sqlite:///{path}"
    app = Scheduler(url)
    app.runs.count()
    with closing(
        sqlite3.connect(path)
        if request.param == "sqlite"
        else psycopg.connect(urlsplit(url)._replace(query="").geturl())
    ) as connection:
        yield app, connection
    app.close()


@pytest.mark.parametrize("is_helped", [True, False])
def test_a_call_that_was_stopped_adds_no_run_that_has_ended_and_was_purged(
    joined: tuple[Scheduler, Any], monkeypatch: pytest.MonkeyPatch, is_helped: bool
) -> None:
    app, connection = joined
    store, add, stopped = app.store, app.store.add_runs_within, list[str]()
    calls = [("work", {"order": order}) for order in range(3)]

    def stop(within: object, runs: list[RunRecord], before: int | None = None) -> list[RunRecord]:
        monkeypatch.setattr(store, "add_runs_within", add)
        monkeypatch.setattr("evenbeat.app.unique_runs.ADD_WINDOW", ADD_WINDOW)
        stopped.extend(run.id for run in runs)
        if is_helped:
            for run_id in app.enqueue_many(calls, unique="payload"):
                app.runs.cancel(run_id)
            while store.purge(LAST, 100).deleted:
                pass
        awake_at = store.now() + 60
        while store.now() < awake_at:
            store.wait(0.01)
        return add(within, runs, before)

    monkeypatch.setattr("evenbeat.app.unique_runs.ADD_WINDOW", 50)
    monkeypatch.setattr(store, "add_runs_within", stop)
    ids = app.enqueue_many(calls, unique="payload", within=connection)
    connection.commit()
    assert len(stopped) == 3
    assert set(ids) & set(stopped) == (set() if is_helped else set(stopped))
    assert sorted(ids) == sorted(run.id for run in app.runs.list(state="queued"))


def test_the_store_joins_a_transaction_until_an_instant(joined: tuple[Scheduler, Any]) -> None:
    app, connection = joined
    store = app.store
    runs = [RunRecord(id=name, task="work", created_at=store.now()) for name in "ab"]
    assert store.add_runs_within(connection, runs, store.now()) == []
    assert store.add_runs_within(connection, runs[:1], store.now() + 60_000) == runs[:1]
    assert store.add_runs_within(connection, runs, store.now() + 60_000) == runs
    assert store.add_runs_within(connection, runs, store.now()) == []
    connection.commit()
    assert {run.id for run in app.runs.list()} == {"a", "b"}


def test_sqlite_looks_at_the_clock_with_the_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "evenbeat.db"
    with closing(sqlite3.connect(path, timeout=0.05)) as mine, closing(sqlite3.connect(path)) as other:
        app = Scheduler(SqliteStore(path))
        app.runs.count()
        store = app.store
        monkeypatch.setattr(store, "now", lambda: 999)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            store.add_runs_within(mine, [RunRecord(id="a", task="work")], 1_000)
        other.rollback()
        times = iter([999, 1_000])
        monkeypatch.setattr(store, "now", lambda: next(times))
        assert store.add_runs_within(mine, [RunRecord(id="a", task="work")], 1_000) == []
        assert mine.in_transaction
        app.close()


def test_sqlite_takes_the_key_before_the_transaction_writes(tmp_path: Path) -> None:
    path = tmp_path / "evenbeat.db"
    app = Scheduler(SqliteStore(path, busy_timeout=0.05))
    app.runs.count()
    with closing(sqlite3.connect(path)) as mine, mine:
        run = app.enqueue("work", unique="order-42", within=mine)
        # It has written by now, and no other connection can.
        assert app.enqueue("work", unique="order-42", within=mine).id == run.id
        with pytest.raises(StoreUnavailable, match="before your transaction writes"):
            app.enqueue("work", unique="order-43", within=mine)
    assert [each.id for each in app.runs.list()] == [run.id]
    # Takes all keys before it adds the first run.
    calls = [("work", {"order": order}) for order in (44, 45)]
    with closing(sqlite3.connect(path)) as mine, mine:
        ids = app.enqueue_many(calls, unique="payload", within=mine)
        with pytest.raises(StoreUnavailable, match="several at once with enqueue_many"):
            app.enqueue("work", unique="order-46", within=mine)
    assert {each.id for each in app.runs.list()} == {run.id, *ids}
    app.close()
