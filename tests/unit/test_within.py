"""Runs that are enqueued within a transaction of the user's are there when it commits, and else never."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from evenbeat import Scheduler
from evenbeat.errors import InvalidValue, RunExists, SchemaTooNew, StoreUnavailable
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.stores.sqlite.lock_holder import write_lock_advice

Transaction: TypeAlias = Callable[[], Any]
"""A context: what is in it is handed to ``within``; an exception rolls back, its end commits."""


class RolledBack(Exception):
    pass


class Place(NamedTuple):
    """A database that the app and the user share."""

    app: Scheduler
    url: str
    """As libpq or sqlite3 take it."""
    dialect: str


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'app.db'}"
        plain = str(tmp_path / "app.db")
    else:
        url = request.getfixturevalue("postgres")
        plain = urlsplit(url)._replace(query="").geturl()
    app = Scheduler(url)

    @app.task
    def bill(order: int) -> None: ...

    app.runs.list()  # opens the store
    yield Place(app, plain, request.param)
    app.close()


def ids(place: Place) -> set[str]:
    return {run.id for run in place.app.runs.list(limit=5000)}


# -- synchronous libraries ---------------------------------------------------------------------------------


@contextmanager
def driver(place: Place) -> Iterator[Any]:
    """psycopg, or sqlite3 as Python has it, each with rows that are no tuples."""
    if place.dialect == "postgresql":
        from psycopg.rows import dict_row

        with psycopg.connect(place.url, row_factory=dict_row) as connection:
            yield connection
        return
    plain = sqlite3.connect(place.url)
    plain.row_factory = lambda _, row: {"row": row}
    try:
        with plain:
            yield plain
    finally:
        plain.close()


def engine_url(place: Place) -> str:
    if place.dialect == "sqlite":
        return f"sqlite:///{place.url}"
    return place.url.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def session(place: Place) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(engine_url(place))
    try:
        with Session(engine) as made, made.begin():
            yield made
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_connection(place: Place) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(engine_url(place))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def django(place: Place) -> Iterator[Any]:
    from django import setup
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
        setup()
    from django.db.utils import ConnectionHandler

    parts = urlsplit(place.url)
    options: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": place.url}
    if place.dialect == "postgresql":
        options = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path[1:],
            "USER": parts.username,
            "HOST": parts.hostname,
            "PORT": parts.port,
        }
    connection = ConnectionHandler({"default": options})["default"]
    try:
        connection.set_autocommit(False)
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
    finally:
        connection.close()


SYNC = {"driver": driver, "session": session, "connection": sqlalchemy_connection, "django": django}


@pytest.mark.parametrize("library", SYNC)
def test_a_run_is_there_when_the_transaction_commits(place: Place, library: str) -> None:
    app = place.app
    app.enqueue("bill", {"order": 1}, id="before")
    with SYNC[library](place) as connection:
        info = app.enqueue("bill", {"order": 2}, id="order-2", within=connection)
        assert info.id == "order-2"
        assert app.enqueue("bill", {"order": 2}, id="order-2", within=connection).id == "order-2"
        assert ids(place) == {"before"}
    assert ids(place) == {"before", "order-2"}
    assert app.runs.get("order-2").payload == {"order": 2}


@pytest.mark.parametrize("library", SYNC)
def test_a_run_goes_with_the_transaction_that_is_rolled_back(place: Place, library: str) -> None:
    app = place.app

    def work() -> None:
        with SYNC[library](place) as connection:
            app.enqueue("bill", {"order": 2}, within=connection)
            raise RolledBack

    with pytest.raises(RolledBack):
        work()
    assert ids(place) == set()


def test_many_runs_join_one_transaction(place: Place) -> None:
    with session(place) as connection:
        made = place.app.enqueue_many([("bill", {"order": at}) for at in range(2500)], within=connection)
        assert ids(place) == set()
    assert ids(place) == set(made)


def test_a_run_that_is_there_already_stays_and_is_answered(place: Place) -> None:
    place.app.enqueue("bill", {"order": 1}, id="order-1")
    with driver(place) as connection:
        info = place.app.enqueue("bill", {"order": 7}, id="order-1", within=connection)
        assert info.payload == {"order": 1}
        with pytest.raises(RunExists, match="order-1"):
            place.app.enqueue("bill", {"order": 7}, id="order-1", tenant="acme", within=connection)


def test_a_node_takes_the_run_up_by_itself(place: Place) -> None:
    # Real time, because waking up is the subject; the timeout is only reached when the test fails.
    app = place.app
    app.start()
    try:
        with driver(place) as connection:
            info = app.enqueue("bill", {"order": 3}, within=connection)
        assert app.runs.join(info.id, timeout="20s").state == "succeeded"
    finally:
        app.stop()


# -- asynchronous ones -------------------------------------------------------------------------------------


@asynccontextmanager
async def async_driver(place: Place) -> AsyncIterator[Any]:
    if place.dialect == "postgresql":
        async with await psycopg.AsyncConnection.connect(place.url) as connection:
            yield connection
        return
    async with aiosqlite.connect(place.url) as connection:
        yield connection
        await connection.commit()


@asynccontextmanager
async def async_session(place: Place) -> AsyncIterator[Any]:
    url = engine_url(place).replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine) as made, made.begin():
            yield made
    finally:
        await engine.dispose()


@asynccontextmanager
async def async_connection(place: Place) -> AsyncIterator[Any]:
    url = engine_url(place).replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def plain_driver(place: Place) -> AsyncIterator[Any]:
    """A synchronous connection stays in the thread of the event loop: sqlite3 insists on it."""
    with driver(place) as connection:
        yield connection


ASYNC = {
    "driver": async_driver,
    "session": async_session,
    "connection": async_connection,
    "sync": plain_driver,
}


@pytest.mark.parametrize("library", ASYNC)
def test_an_asynchronous_transaction_is_joined(place: Place, library: str) -> None:
    app = place.app

    async def roll_back() -> None:
        async with ASYNC[library](place) as connection:
            await app.aenqueue("bill", {"order": 3}, within=connection)
            await app.aenqueue_many([("bill", {"order": at}) for at in range(3)], within=connection)
            raise RolledBack

    async def work() -> None:
        app.enqueue("bill", {"order": 1}, id="before")
        async with ASYNC[library](place) as connection:
            await app.aenqueue("bill", {"order": 2}, id="order-2", within=connection)
            assert ids(place) == {"before"}
        assert ids(place) == {"before", "order-2"}
        with pytest.raises(RolledBack):
            await roll_back()
        assert ids(place) == {"before", "order-2"}

    run_async(work)


def test_an_asynchronous_connection_has_to_be_awaited(place: Place) -> None:
    async def work() -> None:
        async with async_session(place) as connection:
            with pytest.raises(InvalidValue, match=r"await app\.aenqueue"):
                place.app.enqueue("bill", {"order": 2}, within=connection)

    run_async(work)


def run_async(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


# -- SQLite: the first use of all, inside of a transaction that holds the file's only write lock ------------


@pytest.fixture
def new_file(tmp_path: Path) -> Iterator[Place]:
    """A file of the user's, with a table of the user's; the app has not been used yet."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    app = Scheduler(SqliteStore(path, busy_timeout=0.05))
    app.task(name="bill")(lambda order: order)
    yield Place(app, str(path), "sqlite")
    app.close()


# Only Linux tells who holds a lock.
IS_TOLD = sys.platform == "linux"


def order(library: str, connection: Any) -> None:
    """Write a row, and so take the lock."""
    text = "INSERT INTO orders VALUES (NULL)"
    if library == "django":
        with connection.cursor() as cursor:
            cursor.execute(text)
    else:
        connection.execute(text if library == "driver" else sqlalchemy.text(text))


@pytest.mark.parametrize("library", SYNC)
def test_the_first_use_of_all_may_be_inside_of_the_transaction(new_file: Place, library: str) -> None:
    app = new_file.app
    with SYNC[library](new_file) as connection:
        order(library, connection)
        assert app.enqueue("bill", {"order": 1}, id="order-1", within=connection).id == "order-1"
        again = app.enqueue("bill", {"order": 7}, id="order-1", within=connection)
        assert again.payload == {"order": 1}
    assert ids(new_file) == {"order-1"}
    assert app.store.schema().found == app.store.schema().known


@pytest.mark.parametrize("library", ["driver", "session", "connection"])
def test_the_first_use_of_all_may_be_inside_of_an_asynchronous_transaction(
    new_file: Place, library: str
) -> None:
    async def work() -> None:
        async with ASYNC[library](new_file) as connection:
            text = "INSERT INTO orders VALUES (NULL)"
            await connection.execute(text if library == "driver" else sqlalchemy.text(text))
            await new_file.app.aenqueue("bill", {"order": 1}, id="order-1", within=connection)

    run_async(work)
    assert ids(new_file) == {"order-1"}


def test_tables_that_the_transaction_made_are_rolled_back_with_it(new_file: Place) -> None:
    def work() -> None:
        with driver(new_file) as connection:
            order("driver", connection)
            new_file.app.enqueue("bill", {"order": 1}, within=connection)
            raise RolledBack

    for _ in range(2):
        with pytest.raises(RolledBack):
            work()
        with closing(sqlite3.connect(new_file.url)) as plain:
            assert plain.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]
    assert ids(new_file) == set()


def test_tables_are_made_as_a_whole_where_no_transaction_has_begun(new_file: Place) -> None:
    with driver(new_file) as connection:
        assert not connection.in_transaction
        new_file.app.enqueue("bill", {"order": 1}, id="order-1", within=connection)
        assert connection.in_transaction
        connection.rollback()
    assert ids(new_file) == set()


def test_tables_of_a_newer_version_are_left_alone(new_file: Place) -> None:
    new_file.app.runs.list()
    new_file.app.close()
    with closing(sqlite3.connect(new_file.url)) as plain:
        plain.execute("UPDATE evenbeat_meta SET value = '99' WHERE key = 'schema'")
        plain.commit()
        with pytest.raises(SchemaTooNew):
            new_file.app.enqueue("bill", {"order": 1}, within=plain)


@pytest.mark.parametrize("other", ["other.db", ":memory:"])
def test_a_connection_to_another_file_is_refused(new_file: Place, tmp_path: Path, other: str) -> None:
    where = str(tmp_path / other) if other == "other.db" else other
    named = where if other == "other.db" else "a database in memory"
    with closing(sqlite3.connect(where)) as connection:
        with pytest.raises(InvalidValue, match=f"to {named}, and the store is {new_file.url}") as caught:
            new_file.app.enqueue("bill", {"order": 1}, within=connection)
        assert "evenbeat.testing.virtual(app)" in str(caught.value)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_lock_that_the_caller_holds_is_named_as_that(new_file: Place, is_opened: bool) -> None:
    if is_opened:
        new_file.app.runs.list()
    with driver(new_file) as connection:
        order("driver", connection)
        own = "this process holds the write lock itself" if IS_TOLD else "If it is your own"
        with pytest.raises(StoreUnavailable, match=own) as caught:
            new_file.app.enqueue("bill", {"order": 1})
        assert "within=connection" in str(caught.value)
    new_file.app.enqueue("bill", {"order": 1})


def test_a_lock_that_another_process_holds_is_named_as_that(new_file: Place) -> None:
    new_file.app.runs.list()
    script = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("INSERT INTO orders VALUES (NULL)")
print("locked", flush=True)
input()
"""
    command = [sys.executable, "-c", script, new_file.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        others = f"another process, {other.pid}, holds the write lock" if IS_TOLD else "another connection"
        with pytest.raises(StoreUnavailable, match=others):
            new_file.app.enqueue("bill", {"order": 1})
        other.communicate("\n", timeout=60)


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "no such thing",
        "1: POSIX  ADVISORY  WRITE x fe:00:y 0 EOF",
        "1: FLOCK  ADVISORY  WRITE 7 fe:00:7 0 EOF",
    ],
)
def test_a_lock_of_nobody_knows_whom_is_named_as_that(new_file: Place, tmp_path: Path, listed: str) -> None:
    locks = tmp_path / "locks"
    assert "another connection holds" in write_lock_advice(new_file.url, str(locks))
    locks.write_text(listed)
    assert "another connection holds" in write_lock_advice(new_file.url, str(locks))
    assert "another connection holds" in write_lock_advice(str(tmp_path / "nowhere.db"), str(locks))


# -- what can't be -----------------------------------------------------------------------------------------


def test_a_connection_to_another_kind_of_database_is_refused(place: Place, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    wrong: Any = other
    if place.dialect == "sqlite":
        wrong = sqlalchemy.create_mock_engine("postgresql+psycopg://", lambda *_: None)
        wrong.exec_driver_sql = None
    with pytest.raises(InvalidValue, match="store is on"):
        place.app.enqueue("bill", {"order": 1}, within=wrong)
    other.close()


@contextmanager
def committing_driver(place: Place) -> Iterator[Any]:
    made: Any
    if place.dialect == "postgresql":
        made = psycopg.connect(place.url, autocommit=True)
    else:
        made = sqlite3.connect(place.url, isolation_level=None)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def committing_engine(place: Place) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(engine_url(place), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def committing_session(place: Place) -> Iterator[Any]:
    """A session in a transaction of SQLAlchemy's own, which begins none in the database."""
    engine = sqlalchemy.create_engine(engine_url(place)).execution_options(isolation_level="AUTOCOMMIT")
    try:
        with Session(engine) as made, made.begin():
            yield made
    finally:
        engine.dispose()


@contextmanager
def committing_django(place: Place) -> Iterator[Any]:
    with django(place) as connection:
        connection.set_autocommit(True)
        yield connection
        connection.set_autocommit(False)


COMMITTING = {
    "driver": committing_driver,
    "connection": committing_engine,
    "session": committing_session,
    "django": committing_django,
}


@pytest.mark.parametrize("library", COMMITTING)
def test_a_connection_outside_of_any_transaction_is_refused(place: Place, library: str) -> None:
    with COMMITTING[library](place) as connection:
        with pytest.raises(InvalidValue, match="outside of any transaction") as caught:
            place.app.enqueue("bill", {"order": 1}, within=connection)
        with pytest.raises(InvalidValue, match="outside of any transaction"):
            place.app.enqueue_many([("bill", {"order": 1})], within=connection)
    assert "begin a transaction" in str(caught.value)
    assert ids(place) == set()


@asynccontextmanager
async def committing_async_driver(place: Place) -> AsyncIterator[Any]:
    if place.dialect == "postgresql":
        async with await psycopg.AsyncConnection.connect(place.url, autocommit=True) as connection:
            yield connection
        return
    async with aiosqlite.connect(place.url, isolation_level=None) as connection:
        yield connection


@asynccontextmanager
async def committing_async_session(place: Place) -> AsyncIterator[Any]:
    url = engine_url(place).replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with AsyncSession(engine) as made, made.begin():
            yield made
    finally:
        await engine.dispose()


@asynccontextmanager
async def committing_async_connection(place: Place) -> AsyncIterator[Any]:
    url = engine_url(place).replace("sqlite://", "sqlite+aiosqlite://")
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


ASYNC_COMMITTING = {
    "driver": committing_async_driver,
    "session": committing_async_session,
    "connection": committing_async_connection,
}


@pytest.mark.parametrize("library", ASYNC_COMMITTING)
def test_an_asynchronous_connection_outside_of_any_transaction_is_refused(place: Place, library: str) -> None:
    async def work() -> None:
        async with ASYNC_COMMITTING[library](place) as connection:
            with pytest.raises(InvalidValue, match="outside of any transaction"):
                await place.app.aenqueue("bill", {"order": 1}, within=connection)

    run_async(work)
    assert ids(place) == set()


class Python312Connection(sqlite3.Connection):
    """A connection as of Python 3.12, whose ``autocommit`` counts more than its isolation level."""

    autocommit: Any = True


class ThreadBoundConnection(sqlite3.Connection):
    """A connection as of Python 3.12, which tells its ``autocommit`` only in the thread that made it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.thread = threading.get_ident()

    @property
    def autocommit(self) -> int:
        if threading.get_ident() != self.thread:
            raise sqlite3.ProgrammingError("used in another thread")
        return -1


def test_aiosqlite_is_asked_in_its_own_thread(tmp_path: Path) -> None:
    app = Scheduler(f"sqlite:///{tmp_path / 'app.db'}")

    async def work() -> None:
        async with aiosqlite.connect(tmp_path / "app.db", factory=ThreadBoundConnection) as connection:
            await app.aenqueue("bill", id="order-1", within=connection)
            await connection.commit()

    run_async(work)
    assert app.runs.get("order-1").state == "queued"
    app.close()


@pytest.mark.parametrize("is_begun", [False, True])
def test_autocommit_of_sqlite3_counts_more_than_its_isolation_level(tmp_path: Path, is_begun: bool) -> None:
    app = Scheduler(f"sqlite:///{tmp_path / 'app.db'}")
    app.task(name="bill")(lambda order: order)
    app.runs.list()
    if sys.version_info >= (3, 12):
        connection = sqlite3.connect(tmp_path / "app.db", autocommit=True)
    else:
        connection = sqlite3.connect(tmp_path / "app.db", factory=Python312Connection)
    assert connection.isolation_level is not None
    try:
        if is_begun:
            connection.execute("BEGIN")
            app.enqueue("bill", {"order": 1}, within=connection)
            connection.execute("ROLLBACK")
        else:
            with pytest.raises(InvalidValue, match="outside of any transaction"):
                app.enqueue("bill", {"order": 1}, within=connection)
        assert app.runs.list() == []
    finally:
        connection.close()
        app.close()


@pytest.mark.parametrize("library", ["driver", "connection", "session"])
def test_a_connection_that_commits_by_itself_may_begin_a_transaction(place: Place, library: str) -> None:
    with COMMITTING[library](place) as connection:

        def say(text: str) -> None:
            connection.execute(text if library == "driver" else sqlalchemy.text(text))

        for end, expected in (("ROLLBACK", set()), ("COMMIT", {"one"})):
            say("BEGIN")
            place.app.enqueue("bill", {"order": 1}, id="one", within=connection)
            assert ids(place) == set()
            say(end)
            assert ids(place) == expected


@pytest.mark.parametrize("wrong", ["postgresql://somewhere", 7, object()])
def test_what_is_not_a_connection_is_refused(place: Place, wrong: object) -> None:
    with pytest.raises(InvalidValue, match="not a connection of a known library"):
        place.app.enqueue("bill", {"order": 1}, within=wrong)


def test_a_store_in_memory_has_no_transactions() -> None:
    app = Scheduler("memory://")
    app.task(name="bill")(lambda order: order)
    with closing(sqlite3.connect(":memory:")) as memory, pytest.raises(InvalidValue, match="in memory"):
        app.enqueue("bill", {"order": 1}, within=memory)
