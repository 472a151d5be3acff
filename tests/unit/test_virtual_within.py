"""In virtual time, a run that is enqueued within a transaction is there when it commits, and else never."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from evenbeat import Scheduler
from evenbeat.errors import InvalidValue, RunExists
from evenbeat.testing import VirtualScheduler, virtual
from tests.unit.test_within import (
    ASYNC,
    ASYNC_COMMITTING,
    COMMITTING,
    SYNC,
    Place,
    RolledBack,
    engine_url,
    run_async,
)
from tests.unit.test_within import django as manual_django


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database of the user's, without any table of ours, and an app whose store is elsewhere."""
    if request.param == "sqlite":
        url = str(tmp_path / "shop.db")
        sqlite3.connect(url).close()
    else:
        url = urlsplit(request.getfixturevalue("postgres"))._replace(query="").geturl()
    app = Scheduler(f"sqlite:///{tmp_path / 'untouched.db'}")

    @app.task
    def bill(order: int) -> int:
        return order

    yield Place(app, url, request.param)
    assert not (tmp_path / "untouched.db").exists()


@pytest.fixture
def scheduler(place: Place) -> Iterator[VirtualScheduler]:
    with virtual(place.app) as made:
        yield made


def ids(scheduler: VirtualScheduler) -> list[str]:
    return [run.id for run in scheduler.runs.list()]


@contextmanager
def atomic_django(place: Place) -> Iterator[Any]:
    """As users have it: ``transaction.atomic()``, of a connection that commits each statement otherwise."""
    from django.db import transaction

    with manual_django(place) as connection:
        connection.set_autocommit(True)
        found = patch.object(transaction, "get_connection", lambda _using=None: connection)
        with found, transaction.atomic():
            yield connection
        connection.set_autocommit(False)


LIBRARIES = {**SYNC, "atomic": atomic_django}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_is_there_when_the_transaction_commits(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    app = place.app
    with LIBRARIES[library](place) as connection:
        info = app.enqueue("bill", {"order": 2}, id="order-2", within=connection)
        assert (info.id, info.state) == ("order-2", "queued")
        assert app.enqueue("bill", {"order": 2}, id="order-2", within=connection).id == "order-2"
        app.enqueue_many([("bill", {"order": 3})], ids=["order-3"], within=connection)
        assert (ids(scheduler), scheduler.run_pending(), app.runs.count()) == ([], [], {})
    assert sorted(ids(scheduler)) == ["order-2", "order-3"]
    assert sorted(run.result for run in scheduler.run_pending()) == [2, 3]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_run_goes_with_the_transaction_that_is_rolled_back(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    app = place.app

    def work() -> None:
        with LIBRARIES[library](place) as connection:
            app.enqueue("bill", {"order": 2}, within=connection)
            raise RolledBack

    with pytest.raises(RolledBack):
        work()
    assert ids(scheduler) == []
    with LIBRARIES[library](place) as connection:
        app.enqueue("bill", {"order": 2}, id="second", within=connection)
    assert ids(scheduler) == ["second"]


@contextmanager
def long_lived(place: Place, kind: str) -> Iterator[Any]:
    """A connection or session that begins one transaction after the other."""
    if kind == "driver":
        with LIBRARIES["driver"](place) as connection:
            yield connection
        return
    engine = sqlalchemy.create_engine(engine_url(place))
    with engine.connect() if kind == "connection" else Session(engine) as made:
        yield made
    engine.dispose()


@pytest.mark.parametrize("kind", ["driver", "connection", "session"])
def test_one_connection_commits_and_rolls_back_again_and_again(
    place: Place, scheduler: VirtualScheduler, kind: str
) -> None:
    with long_lived(place, kind) as connection:
        for order, end in enumerate(["commit", "rollback", "rollback", "commit", "rollback"]):
            place.app.enqueue("bill", {"order": order}, within=connection)
            getattr(connection, end)()
    del connection
    gc.collect()
    assert sorted(run.result for run in scheduler.run_pending()) == [0, 3]


def test_a_run_of_a_transaction_is_due_by_virtual_time(place: Place, scheduler: VirtualScheduler) -> None:
    with LIBRARIES["session"](place) as connection:
        place.app.enqueue("bill", {"order": 1}, delay="1h", within=connection)
    assert scheduler.travel("59m") == []
    assert [run.result for run in scheduler.travel("1m")] == [1]


def test_a_task_may_enqueue_within_a_transaction(place: Place, scheduler: VirtualScheduler) -> None:
    @place.app.task
    def order(kept: bool) -> None:
        with LIBRARIES["connection"](place) as connection:
            place.app.enqueue("bill", {"order": 7}, within=connection)
            if not kept:
                raise RolledBack

    place.app.enqueue("order", {"kept": False})
    place.app.enqueue("order", {"kept": True})
    assert sorted(run.task for run in scheduler.run_pending()) == ["bill", "order", "order"]


def test_a_run_that_is_there_already_stays_and_is_answered(place: Place, scheduler: VirtualScheduler) -> None:
    place.app.enqueue("bill", {"order": 1}, id="order-1")
    with LIBRARIES["driver"](place) as connection:
        info = place.app.enqueue("bill", {"order": 7}, id="order-1", within=connection)
        assert info.payload == {"order": 1}
        with pytest.raises(RunExists, match="order-1"):
            place.app.enqueue("bill", {"order": 7}, id="order-1", tenant="acme", within=connection)
    assert [run.result for run in scheduler.run_pending()] == [1]


# -- savepoints --------------------------------------------------------------------------------------------


def roll_back() -> None:
    raise RolledBack


class Savepoints:
    """Savepoints as each library has them."""

    @staticmethod
    @contextmanager
    def driver(connection: Any) -> Iterator[None]:
        connection.execute("SAVEPOINT one")
        try:
            yield
        except RolledBack:
            connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")

    @staticmethod
    @contextmanager
    def session(connection: Any) -> Iterator[None]:
        try:
            with connection.begin_nested():
                yield
        except RolledBack:
            pass

    connection = session

    @staticmethod
    @contextmanager
    def atomic(_connection: Any) -> Iterator[None]:
        from django.db import transaction

        try:
            with transaction.atomic():
                yield
        except RolledBack:
            pass


@pytest.mark.parametrize("library", ["driver", "session", "connection", "atomic"])
def test_a_run_goes_with_a_savepoint_that_is_rolled_back(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    savepoint = getattr(Savepoints, library)

    def enqueue(name: str) -> None:
        place.app.enqueue("bill", {"order": 1}, id=name, within=connection)

    with LIBRARIES[library](place) as connection:
        # The driver of SQLite begins a transaction with the first row that is written.
        enqueue("first")
        with savepoint(connection):
            enqueue("kept")
        with savepoint(connection):
            enqueue("gone")
            roll_back()
        with savepoint(connection):
            with savepoint(connection):
                enqueue("released-inside")
            enqueue("gone-too")
            roll_back()
        with savepoint(connection):
            with savepoint(connection):
                enqueue("rolled-back-inside")
                roll_back()
            enqueue("kept-too")
        enqueue("last")
        assert ids(scheduler) == []
    assert sorted(ids(scheduler)) == ["first", "kept", "kept-too", "last"]


@pytest.mark.parametrize("library", ["session", "connection", "atomic"])
def test_a_savepoint_that_is_older_than_the_first_run_counts(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    with LIBRARIES[library](place) as connection, getattr(Savepoints, library)(connection):
        place.app.enqueue("bill", {"order": 1}, within=connection)
        roll_back()
    assert ids(scheduler) == []


def test_a_session_inside_of_a_tests_own_transaction_commits_for_itself(
    place: Place, scheduler: VirtualScheduler
) -> None:
    """SQLAlchemy's recipe for tests: whatever the code commits, the test takes back in the end."""
    engine = sqlalchemy.create_engine(engine_url(place))
    with engine.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            place.app.enqueue("bill", {"order": 1}, id="committed", within=session)
            assert ids(scheduler) == []
            session.commit()
            assert ids(scheduler) == ["committed"]
            place.app.enqueue("bill", {"order": 2}, id="forgotten", within=session)
        outer.rollback()
    engine.dispose()
    assert ids(scheduler) == ["committed"]


def test_a_session_that_is_closed_and_used_again_has_forgotten(
    place: Place, scheduler: VirtualScheduler
) -> None:
    engine = sqlalchemy.create_engine(engine_url(place))
    session = Session(engine)
    place.app.enqueue("bill", {"order": 1}, id="forgotten", within=session)
    session.close()
    place.app.enqueue("bill", {"order": 2}, id="committed", within=session)
    session.commit()
    session.close()
    engine.dispose()
    assert ids(scheduler) == ["committed"]


def test_a_scoped_session_is_the_session_that_it_stands_for(
    place: Place, scheduler: VirtualScheduler
) -> None:
    engine = sqlalchemy.create_engine(engine_url(place))
    sessions = scoped_session(sessionmaker(engine))
    place.app.enqueue("bill", {"order": 1}, id="one", within=sessions)
    assert ids(scheduler) == []
    sessions.commit()
    assert ids(scheduler) == ["one"]
    sessions.remove()
    engine.dispose()


# -- commits that fail -------------------------------------------------------------------------------------


DEFERRED = """
CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY);
CREATE TEMP TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)
"""


@pytest.mark.parametrize("library", ["driver", "session", "connection"])
def test_a_commit_that_fails_adds_nothing(place: Place, scheduler: VirtualScheduler, library: str) -> None:
    def say(text: str) -> None:
        connection.execute(text if library == "driver" else sqlalchemy.text(text))

    transaction = LIBRARIES[library](place)
    connection = transaction.__enter__()
    if place.dialect == "sqlite":
        say("PRAGMA foreign_keys = ON")
    # Temporary: PostgreSQL forgets them with the connection, and the commit fails all the same.
    for statement in DEFERRED.split(";"):
        say(statement)
    say("INSERT INTO child VALUES (7)")
    place.app.enqueue("bill", {"order": 1}, within=connection)
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        transaction.__exit__(None, None, None)
    if library == "driver":
        connection.close()  # psycopg leaves that to us when the commit fails
    assert ids(scheduler) == []


# -- asynchronous libraries --------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ASYNC)
def test_an_asynchronous_transaction_is_joined(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    app = place.app

    async def roll_back() -> None:
        async with ASYNC[library](place) as connection:
            await app.aenqueue("bill", {"order": 3}, within=connection)
            raise RolledBack

    async def work() -> None:
        async with ASYNC[library](place) as connection:
            await app.aenqueue("bill", {"order": 2}, id="order-2", within=connection)
            await app.aenqueue_many([("bill", {"order": 3})], ids=["order-3"], within=connection)
            assert ids(scheduler) == []
            assert await scheduler.arun_pending() == []
        assert sorted(ids(scheduler)) == ["order-2", "order-3"]
        with pytest.raises(RolledBack):
            await roll_back()
        assert sorted(run.result for run in await scheduler.arun_pending()) == [2, 3]

    run_async(work)


@pytest.mark.parametrize("library", ["session", "connection"])
def test_an_asynchronous_savepoint_that_is_rolled_back_counts(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    async def work() -> None:
        async with ASYNC[library](place) as connection:
            await place.app.aenqueue("bill", {"order": 1}, id="kept", within=connection)
            savepoint = await connection.begin_nested()
            await place.app.aenqueue("bill", {"order": 1}, id="gone", within=connection)
            await savepoint.rollback()
        assert ids(scheduler) == ["kept"]

    run_async(work)


# -- what can't be -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", COMMITTING)
def test_a_connection_outside_of_any_transaction_is_refused_here_as_well(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    refused = pytest.raises(InvalidValue, match="outside of any transaction")
    with COMMITTING[library](place) as connection, refused:
        place.app.enqueue("bill", {"order": 1}, within=connection)
    assert ids(scheduler) == []


@pytest.mark.parametrize("library", ASYNC_COMMITTING)
def test_an_asynchronous_connection_outside_of_any_transaction_is_refused_here_as_well(
    place: Place, scheduler: VirtualScheduler, library: str
) -> None:
    async def work() -> None:
        async with ASYNC_COMMITTING[library](place) as connection:
            with pytest.raises(InvalidValue, match="outside of any transaction"):
                await place.app.aenqueue("bill", {"order": 1}, within=connection)

    run_async(work)


def test_what_is_not_a_connection_is_refused() -> None:
    with virtual() as scheduler, pytest.raises(InvalidValue, match="not a connection of a known library"):
        scheduler.enqueue("bill", within="shop.db")


# -- SQLite in memory --------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def test_a_database_in_memory_is_read_by_its_own_connection(memory: sqlite3.Connection) -> None:
    memory.row_factory = sqlite3.Row
    with virtual() as scheduler:
        with memory:
            scheduler.enqueue("bill", id="one", within=memory)
            assert ids(scheduler) == []
        assert ids(scheduler) == ["one"]
        scheduler.enqueue("bill", id="two", within=memory)
        memory.rollback()
        assert ids(scheduler) == ["one"]
        scheduler.enqueue("bill", id="three", within=memory)
        memory.commit()
        memory.execute("INSERT INTO evenbeat_virtual_runs VALUES ('the next transaction of the user')")
        assert ids(scheduler) == ["one"]  # while it is open, it can't be distinguished from the one before
        memory.rollback()
        assert sorted(ids(scheduler)) == ["one", "three"]


def test_a_database_in_memory_that_is_closed_too_early_is_named() -> None:
    with virtual() as scheduler:
        with closing(sqlite3.connect(":memory:")) as memory:
            scheduler.enqueue("bill", within=memory)
            memory.commit()
        with pytest.raises(InvalidValue, match="in memory that is closed"):
            scheduler.runs.list()


def test_awaited_calls_read_a_database_in_memory_of_aiosqlite() -> None:
    async def work() -> None:
        with virtual() as scheduler:
            async with aiosqlite.connect(":memory:") as memory:
                await scheduler.app.aenqueue("bill", id="one", within=memory)
                assert await scheduler.runs.alist() == []
                await memory.commit()
                assert scheduler.runs.list() == []
                assert [run.id for run in await scheduler.runs.alist()] == ["one"]

    run_async(work)


def test_a_connection_that_is_always_inside_of_a_transaction_is_refused_in_memory() -> None:
    class Python312Connection(sqlite3.Connection):
        autocommit: Any = False

    if sys.version_info >= (3, 12):
        connection = sqlite3.connect(":memory:", autocommit=False)
    else:
        connection = sqlite3.connect(":memory:", factory=Python312Connection)
    refused = pytest.raises(InvalidValue, match="always inside of a transaction")
    with closing(connection), virtual() as scheduler, refused:
        scheduler.enqueue("bill", within=connection)


def test_another_thread_does_not_read_a_database_in_memory(memory: sqlite3.Connection) -> None:
    with virtual() as scheduler:
        scheduler.enqueue("bill", id="one", within=memory)
        memory.commit()

        async def look() -> list[Any]:
            return await asyncio.to_thread(scheduler.runs.list)

        assert asyncio.run(look()) == []
        assert ids(scheduler) == ["one"]


# -- the end -----------------------------------------------------------------------------------------------


def test_nothing_listens_any_more_when_virtual_time_is_over(place: Place) -> None:
    with LIBRARIES["session"](place) as session, LIBRARIES["driver"](place) as driver:
        with virtual(place.app):
            if place.dialect == "postgresql":
                place.app.enqueue("bill", {"order": 1}, within=driver)
            place.app.enqueue("bill", {"order": 1}, within=session)
        assert not session.dispatch.after_commit
        if isinstance(driver, psycopg.Connection):
            assert not driver._notify_handlers
    with virtual(place.app) as scheduler:
        assert ids(scheduler) == []
