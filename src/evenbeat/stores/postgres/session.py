"""Commands on a connection: each round trip is announced by name, and every error of the driver is
translated.

Statements that do not need each other's results are sent together (libpq's pipeline mode): a transaction
takes one round trip to read and lock, and one to write and commit. Nothing outlives a transaction on its
connection: its settings are SET LOCAL (``set_config`` with true), statements name the schema of their
tables, and there are no prepared statements. So a PgBouncer may give each transaction another connection to
the server.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from evenbeat.core.instants import Instant
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.failures import TimedOut, Unreplicated, translated
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.rows import Row
from evenbeat.stores.server_clock import ServerClock

OnCommand: TypeAlias = Callable[[str], None]
Values: TypeAlias = Mapping[str, object] | Sequence[object]
Statement: TypeAlias = tuple[str, Values]
T = TypeVar("T")


_EVENTS = {Wait.R: select.POLLIN, Wait.W: select.POLLOUT, Wait.RW: select.POLLIN | select.POLLOUT}


class _Pipeline(psycopg.Pipeline):
    """A pipeline that ends with a Sync.

    psycopg sends a Flush after it. The server starts its timeout of idle transactions after the Sync and
    stops it when it reads the Flush: it would wait for a frozen client for ever.
    """

    def _fetch_gen(self, *, flush: bool) -> Generator[Any, Any, None]:
        return super()._fetch_gen(flush=False)


class TimedConnection(psycopg.Connection[Row]):
    """A connection whose commands fail at a deadline."""

    deadline = 0.0
    """By the monotonic clock; set before each command."""
    is_unreplicated = False
    """Whether the server has warned that it committed before a synchronous standby confirmed it."""

    @contextlib.contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        self._pipeline = _Pipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline

    def note(self, notice: psycopg.errors.Diagnostic) -> None:
        """Note a warning of the server."""
        # An operator ended the wait for a synchronous standby: the server reports a success and warns.
        if notice.source_function == "SyncRepWaitForLSN":
            self.is_unreplicated = True

    def wait(self, gen: Generator[Any, Any, T], *_rest: object, **_options: object) -> T:
        """Wait like psycopg's own method, which has no deadline before version 3.3."""
        poll = select.poll()
        socket = self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                poll.register(socket, _EVENTS[wanted])
                left = self.deadline - time.monotonic()
                if not (found := poll.poll(max(0.0, left) * 1000)):
                    raise TimedOut("no answer in time")
                happened = found[0][1]
                # Any other event (an end, an error) is found by reading.
                reads = Ready.R if happened & ~select.POLLOUT else Ready.NONE
                writes = Ready.W if happened & select.POLLOUT else Ready.NONE
                wanted = gen.send(reads | writes)
        except StopIteration as done:
            value: T = done.value
            return value


class Session:
    """A connection that announces every round trip and translates every error of the driver."""

    def __init__(
        self, connection: TimedConnection, location: Location, patience: float, on_command: OnCommand | None
    ) -> None:
        self.connection = connection
        self._location = location
        self.patience = patience
        """How many seconds an answer may take."""
        self._on_command = on_command
        self._texts: dict[str, str] = {}

    @property
    def broken(self) -> bool:
        return self.connection.closed or self.connection.info.transaction_status != TransactionStatus.IDLE

    def announce(self, name: str) -> None:
        if self._on_command is not None:
            self._on_command(name)

    def rows(self, name: str, text: str, values: Values = ()) -> list[Row]:
        """Execute a statement, and return its rows."""
        self.announce(name)
        with self._translated([(text, values)]):
            return _fetched(self.connection.execute(self._own(text), values))

    def together(self, name: str, statements: Sequence[Statement]) -> list[list[Row]]:
        """Execute statements in one round trip, and return the rows of each. A failed one ends the
        sequence."""
        self.announce(name)
        with self._translated(statements):
            return [_fetched(cursor) for cursor in self._sent(statements)]

    def _sent(self, statements: Sequence[Statement]) -> list[psycopg.Cursor[Row]]:
        cursors: list[psycopg.Cursor[Row]] = []
        first: Exception | None = None
        try:
            with self.connection.pipeline():
                try:
                    for text, values in statements:
                        cursors.append(self.connection.execute(self._own(text), values))
                except Exception as error:
                    # Leaving the pipeline fails, too, but with another error, and psycopg logs it.
                    first = error
        except psycopg.Error as error:
            # After a timeout, leaving the pipeline waits for the answer again, and fails with another error.
            silence = error.__context__ if isinstance(error.__context__, TimedOut) else None
            raise first or silence or error from None
        if first is not None:
            raise first
        return cursors

    def _own(self, text: str) -> str:
        """Return the statement with the tables of this schema. The cache has one entry per operation."""
        own = self._texts.get(text)
        if own is None:
            own = self._texts[text] = self._location.own(text)
        return own

    @contextlib.contextmanager
    def _translated(self, statements: Sequence[Statement]) -> Iterator[None]:
        self.connection.deadline = time.monotonic() + self.patience
        self.connection.is_unreplicated = False
        try:
            yield
            if self.connection.is_unreplicated:
                raise Unreplicated("no synchronous standby has confirmed the commit")
        except (psycopg.Error, UnicodeEncodeError, OverflowError) as error:
            if isinstance(error, TimedOut):
                self.connection.close()
            raise translated(self._location.shown, error, _size(statements)) from error

    def roll_back(self) -> None:
        """Roll back the open transaction. If that fails, the connection is closed."""
        if self.connection.closed or self.connection.info.transaction_status == TransactionStatus.IDLE:
            return
        try:
            self.connection.deadline = time.monotonic() + self.patience
            self.connection.execute("ROLLBACK")
        except psycopg.Error:
            self.connection.close()


def _size(statements: Sequence[Statement]) -> int:
    """Count the characters of the values of statements."""
    size = 0
    for _, values in statements:
        given = values.values() if isinstance(values, Mapping) else values
        size += sum(len(value) for value in given if isinstance(value, str))
    return size


def _fetched(cursor: psycopg.Cursor[Row]) -> list[Row]:
    return cursor.fetchall() if cursor.description is not None else []


class Transaction:
    """Statements that take effect together, when ``commit`` returns, or not at all.

    BEGIN is sent together with the first statements.
    """

    def __init__(self, session: Session, settings: Values, clock: ServerClock) -> None:
        self._session = session
        self._settings = settings
        self._clock = clock
        self.now: Instant = 0
        """When the transaction began, by the store's clock."""
        self.begun = False
        self.committed = False

    def rows(self, name: str, text: str, values: Values = ()) -> list[Row]:
        return self.together(name, [(text, values)])[0]

    def together(self, name: str, statements: Sequence[Statement]) -> list[list[Row]]:
        if self.begun:
            return self._session.together(name, statements)
        self.begun = True
        sent = self._clock.mark()
        beginning: list[Statement] = [(sql.BEGIN, ()), (sql.SETTINGS, self._settings)]
        answers = self._session.together(name, [*beginning, *statements])
        self.now, servers = answers[1][0][:2]
        self._clock.update(servers, sent)
        return answers[2:]

    def commit(self, name: str, statements: Sequence[Statement]) -> list[list[Row]]:
        answers = self.together(name, [*statements, (sql.COMMIT, ())])
        self.committed = True
        return answers[:-1]
