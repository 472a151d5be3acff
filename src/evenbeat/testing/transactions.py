"""Virtual time and transactions of the user's: a run is held back until the transaction commits.

There is no database of ours here to put the run into, so each library is asked, in its own way, whether the
transaction committed:

- Django: ``on_commit``, which a ``TestCase`` captures.
- SQLAlchemy: the events of the session, or of the connection, savepoints included.
- psycopg: NOTIFY on the user's own connection, which PostgreSQL delivers when, and if, it commits.
- sqlite3 and aiosqlite have no such thing: a row in a small table, ``evenbeat_virtual_runs``, goes with the
  transaction, and is read back. From a file by a connection of ours; from a database in memory by the
  user's own, once that is outside of any transaction.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from evenbeat.core.awaitable import on_the_callers_loop
from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue
from evenbeat.stores.within import Rows, Statement, Steps, execute_within, library_of, unscoped

_Listeners: TypeAlias = dict[str, Callable[..., None]]

_CHANNEL = "evenbeat_virtual_runs"
_MAKE_TABLE = "CREATE TABLE IF NOT EXISTS evenbeat_virtual_runs (token TEXT NOT NULL)"
_INSERT = "INSERT INTO evenbeat_virtual_runs (token) VALUES ({})"
_SELECT = "SELECT token FROM evenbeat_virtual_runs ORDER BY rowid"


class _Watch(Protocol):
    """Follows the transactions of one connection."""

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        """Hold runs back until the connection's present transaction commits."""

    def take(self) -> list[RunRecord]:
        """Return the runs whose transactions have committed since the last call."""

    def close(self) -> None:
        """Stop following the connection."""


class Transactions:
    """The runs that wait for users' transactions to commit."""

    def __init__(self) -> None:
        # By the connection's identity. A watch keeps its connection alive, also when the user has dropped it.
        self._watches: dict[int, _Watch] = {}

    def hold(self, connection: object, runs: Sequence[RunRecord]) -> None:
        """Hold back runs that were enqueued within a connection's transaction."""

        def steps_for(_dialect: str) -> Steps[None]:
            return self._watch(connection).hold(runs)

        execute_within(connection, steps_for)

    def take(self) -> list[RunRecord]:
        """Return the runs whose transactions have committed since the last call."""
        return [run for watch in list(self._watches.values()) for run in watch.take()]

    def close(self) -> None:
        """Stop following all connections; runs that are held back are dropped."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()

    def _watch(self, connection: Any) -> _Watch:
        library = library_of(connection)
        if library == "django":
            if connection.in_atomic_block:
                return self._known(connection, _Django)
            # Django refuses on_commit without atomic(): follow the driver's connection instead.
            connection = connection.connection
            library = library_of(connection)
        if library == "sqlalchemy":
            connection = unscoped(connection)
            is_connection = hasattr(connection, "exec_driver_sql")
            for name in ("sync_session", "sync_connection"):
                connection = getattr(connection, name, connection)
            return self._known(connection, _Connection if is_connection else _Session)
        return self._known(connection, _Psycopg if library == "psycopg" else _Sqlite)

    def _known(self, connection: object, kind: Callable[[Any], _Watch]) -> _Watch:
        found = self._watches.get(id(connection))
        if found is None:
            found = self._watches[id(connection)] = kind(connection)
        return found


class _Django:
    """Uses ``on_commit``, which respects savepoints, and which a ``TestCase`` captures and executes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._committed: list[RunRecord] = []

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        self._connection.on_commit(lambda: self._committed.extend(runs))
        yield from ()

    def take(self) -> list[RunRecord]:
        taken, self._committed = self._committed, []
        return taken

    def close(self) -> None:
        pass


class _Session:
    """Follows a session of SQLAlchemy. The session's own commit counts, also inside a test's transaction that
    is never committed (``join_transaction_mode="create_savepoint"``)."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._held: list[tuple[Any, RunRecord]] = []
        """Each run with the session's transaction, or savepoint, that it was enqueued in."""
        self._committed: list[RunRecord] = []
        self._events: _Listeners = {
            "after_commit": self._after_commit,
            "after_transaction_end": self._after_end,
        }
        _listen(session, self._events)

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        transaction = self._session.get_nested_transaction() or self._session.get_transaction()
        self._held += [(transaction, run) for run in runs]
        yield from ()

    def _after_commit(self, session: Any) -> None:
        savepoint = session.get_nested_transaction()
        if savepoint is None:
            self._committed += [run for _, run in self._held]
            self._held = []
        else:
            self._held = [
                (savepoint.parent if transaction is savepoint else transaction, run)
                for transaction, run in self._held
            ]

    def _after_end(self, _session: Any, ended: Any) -> None:
        # Committed runs have left this list: the rest was rolled back, or dropped by close().
        self._held = [(transaction, run) for transaction, run in self._held if transaction is not ended]

    def take(self) -> list[RunRecord]:
        taken, self._committed = self._committed, []
        return taken

    def close(self) -> None:
        _unlisten(self._session, self._events)


class _Connection:
    """Follows a connection of SQLAlchemy, which announces a commit before it tries; an error may follow."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._savepoint = 0
        """The number of the latest savepoint; numbers only grow."""
        self._held: list[tuple[int, RunRecord]] = []
        self._committing: list[RunRecord] = []
        self._committed: list[RunRecord] = []
        self._events: _Listeners = {
            "begin": self._begin,
            "commit": self._commit,
            "rollback": self._rollback,
            "release_savepoint": self._release,
            "rollback_savepoint": self._roll_back_to,
        }
        self._engine_events: _Listeners = {"handle_error": self._failed}
        _listen(connection, self._events)
        _listen(connection.engine, self._engine_events)

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        # Make and release a savepoint of our own: its number tells which ones are older.
        with self._connection.begin_nested():
            pass
        self._held += [(self._savepoint, run) for run in runs]
        yield from ()

    def _begin(self, _connection: Any) -> None:
        self._committed += self._committing
        self._committing = []

    def _commit(self, _connection: Any) -> None:
        self._committing += [run for _, run in self._held]
        self._held = []

    def _rollback(self, _connection: Any) -> None:
        self._held = []

    def _release(self, _connection: Any, name: str, _context: Any) -> None:
        self._savepoint = max(self._savepoint, _number(name))

    def _roll_back_to(self, _connection: Any, name: str, _context: Any) -> None:
        self._held = [(savepoint, run) for savepoint, run in self._held if savepoint < _number(name)]

    def _failed(self, context: Any) -> None:
        if context.connection is self._connection and context.statement is None:
            self._committing = []

    def take(self) -> list[RunRecord]:
        self._begin(self._connection)
        taken, self._committed = self._committed, []
        return taken

    def close(self) -> None:
        _unlisten(self._connection, self._events)
        _unlisten(self._connection.engine, self._engine_events)


def _number(savepoint: str) -> int:
    """Return the number of a savepoint: SQLAlchemy calls them ``sa_savepoint_1`` and so on."""
    return int(savepoint.rpartition("_")[2])


def _listen(target: Any, events: _Listeners) -> None:
    from sqlalchemy import event

    for name, function in events.items():
        event.listen(target, name, function)


def _unlisten(target: Any, events: _Listeners) -> None:
    from sqlalchemy import event

    for name, function in events.items():
        event.remove(target, name, function)


class _Psycopg:
    """Uses NOTIFY: PostgreSQL delivers a notification, also to its sender, when the transaction commits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._held: dict[str, Sequence[RunRecord]] = {}
        self._committed: list[RunRecord] = []
        connection.add_notify_handler(self._receive)

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        token = uuid.uuid4().hex
        yield Statement(f"LISTEN {_CHANNEL}")
        yield Statement(f"SELECT pg_notify('{_CHANNEL}', {{}})", token)
        self._held[token] = runs

    def _receive(self, notification: Any) -> None:
        if notification.channel == _CHANNEL:
            self._committed += self._held.pop(notification.payload, ())

    def take(self) -> list[RunRecord]:
        taken, self._committed = self._committed, []
        return taken

    def close(self) -> None:
        self._connection.remove_notify_handler(self._receive)


class _Sqlite:
    """Writes a row in the transaction and reads it back, since sqlite3 and aiosqlite have no commit event."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._file = ""
        self._held: dict[str, Sequence[RunRecord]] = {}

    def hold(self, runs: Sequence[RunRecord]) -> Steps[None]:
        rows = yield Statement("PRAGMA database_list")
        self._file = next((row[2] for row in rows if row[1] == "main"), "")
        if not self._file and getattr(self._connection, "autocommit", -1) == 0:
            raise InvalidValue(
                "within is a connection with autocommit=False to SQLite in memory: it is always inside of a "
                "transaction, so that virtual time can't see which of them committed",
                field="within",
                value=self._connection,
                hint="use a file in a temporary folder, or leave autocommit out",
            )
        token = uuid.uuid4().hex
        yield Statement(_MAKE_TABLE)
        yield Statement(_INSERT, token)
        self._held[token] = runs

    def take(self) -> list[RunRecord]:
        if not self._held:
            return []
        rows = self._rows_of_file() if self._file else self._rows_of_memory()
        return [run for (token,) in rows for run in self._held.pop(token, ())]

    def _rows_of_file(self) -> Rows:
        try:
            ours = sqlite3.connect(f"{Path(self._file).as_uri()}?mode=rw", uri=True, timeout=0)
            with closing(ours):
                return ours.execute(_SELECT).fetchall()
        except sqlite3.OperationalError:
            # The file is locked, so the transaction goes on; or the table was rolled back with it.
            return []

    def _rows_of_memory(self) -> Rows:
        loop = on_the_callers_loop()
        try:
            plain = getattr(self._connection, "_conn", self._connection)
            if plain.in_transaction:
                return []
        except (sqlite3.ProgrammingError, ValueError):
            raise InvalidValue(
                "a run was enqueued within a connection to SQLite in memory that is closed: whether it was "
                "committed can't be known any more",
                field="within",
                value=self._connection,
                hint="close it after the last look at the scheduler, or use a file in a temporary folder",
            ) from None
        try:
            if plain is not self._connection:
                # aiosqlite answers callers that await: a call without await leaves the row for the next one.
                return [] if loop is None else loop(self._rows_of_aiosqlite)
            return _rows(plain) if loop is None else loop(lambda: _rows(plain))
        except sqlite3.ProgrammingError:
            return []  # asked from another thread than the connection's

    async def _rows_of_aiosqlite(self) -> Rows:
        async with self._connection.execute(_SELECT) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]

    def close(self) -> None:
        pass


def _rows(connection: sqlite3.Connection) -> Rows:
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        return cursor.execute(_SELECT).fetchall()
    except sqlite3.OperationalError:
        return []  # the table was rolled back, too
