"""Unique runs within the caller's transaction: it commits, is rolled back, or is still open."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from evenbeat import Run, Scheduler, StoreUnavailable
from evenbeat.rules.unique_runs import KIND
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
