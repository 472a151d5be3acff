"""Documents in PostgreSQL: the rows of a table that the user has already."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from evenbeat.core.instants import Instant
from evenbeat.documents import columns
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.locking import DocumentLocker, Locking
from evenbeat.documents.postgres.conditions import with_named_places
from evenbeat.documents.postgres.connections import (
    ROW_IS_LOCKED,
    TableConnections,
    refusals,
    rows_of,
    sqlstate_of,
    users_database,
)
from evenbeat.documents.postgres.inspection import inspect, refusal
from evenbeat.documents.postgres.table import PostgresTable
from evenbeat.documents.refcount import RefCount
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.postgres.connections import Timeouts
from evenbeat.stores.postgres.location import read_location
from evenbeat.stores.postgres.session import Statement
from evenbeat.stores.postgres.statements import DURABLE
from evenbeat.stores.server_clock import ServerClock
from evenbeat.stores.urls import without_password

T = TypeVar("T")

# Seconds to wait for rows that another transaction has locked; and, if it does not commit in that time, for
# each row alone.
_LOCK_TIMEOUT = 1.0
_SHORT_LOCK_TIMEOUT = 0.05

# Of how many rows at least to lock one by one, if the server refuses some.
_WINDOW = 100
# Lock rows in one statement; one by one; and one by one from the other end.
_PASSES = 3

# SQLAlchemy's URLs name a driver.
_WITH_DRIVER = re.compile(r"(postgres(?:ql)?)(\+\w+)(?=://)")

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_COMMIT = "COMMIT"
_CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock"

# These settings end with the transaction. A lock that was returned survives a crash of the server. The
# planner's statistics of a table of jobs are always out of date: it is kept from reading and sorting the
# whole table, or all due rows, wherever there is an index.
_SETTINGS = f"""
{_CLOCK}, {DURABLE},
    set_config('TimeZone', 'UTC', true),
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)
"""


class PostgresDocuments:
    """The rows of a PostgreSQL table. Evenbeat adds neither a column nor an index to it.

    ``table``: its name, with its schema or without: ``reminders``, ``shop.reminders``. ``key``: a unique
    column that identifies a row. ``sleep_until``: a ``timestamptz``, or a ``timestamp`` in UTC. The columns
    ``interval``, ``repeat_until`` and ``auto_remove`` may be missing. ``condition``: SQL that a row must meet
    to be a job, with ``%s`` for each of ``parameters``. ``timeout``: how many seconds to wait for
    a connection, and for an answer. ``clock`` replaces the server's, in tests.

    A table of more than some thousand rows needs an index::

        CREATE INDEX ON reminders (sleep_until) WHERE sleep_until IS NOT NULL

    A handler reads and writes Python values; in json columns, any JSON value. A value without a Python
    type, such as the date ``infinity``, is read as its text.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        key: str = "id",
        sleep_until: str = Fields().sleep_until,
        interval: str = Fields().interval,
        repeat_until: str = Fields().repeat_until,
        auto_remove: str = Fields().auto_remove,
        condition: str | None = None,
        parameters: Sequence[Any] = (),
        clock: Callable[[], Instant] | None = None,
        timeout: float = 5.0,
    ) -> None:
        columns.split(table)  # refuses a text that is not a name
        self._name = table
        self._names = columns.check_names(key, sleep_until, interval, repeat_until, auto_remove)
        self._given_condition, values = columns.check_condition(condition, parameters)
        self._condition = with_named_places(self._given_condition, values)
        self._parameters = {f"p{number}": value for number, value in enumerate(values)}
        self._location = users_database(read_location(_url(url), None, "off", timeout))
        self._timeouts = Timeouts(timeout, _LOCK_TIMEOUT)
        self._short_timeouts = Timeouts(timeout, _SHORT_LOCK_TIMEOUT)
        self._given_clock = clock
        self._clock = ServerClock(self._read_clock)
        self._connections = TableConnections(self._location, self._timeouts, self._clock, None)
        self._table: PostgresTable | None = None
        self._locker = DocumentLocker(table, _PASSES)
        self._refcount = RefCount(self._connections.open, self._connections.close)

    @property
    def name(self) -> str:
        return self._name

    @property
    def reserved(self) -> frozenset[str]:
        return self._names.reserved

    def open(self) -> None:
        self._refcount.open()
        try:
            self._table = self._inspect()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._refcount.close()

    def now(self) -> Instant:
        return self._clock.now() if self._given_clock is None else self._given_clock()

    def lock_next(self, duration: int, limit: int) -> Taken:
        table, now = self._opened(), self.now()
        found = self._lock(table, now, now + duration, limit)
        if len(found) >= limit:
            return Taken(found, None)
        try:
            (rows,) = self._transaction([table.next_due(now, self._parameters)])
        except StoreUnavailable:
            if not found:
                raise
            return Taken(found, now)  # they are locked; the next call raises
        return Taken(found, table.due(rows[0]) if rows else None)

    def _lock(self, table: PostgresTable, now: Instant, until: Instant, limit: int) -> list[Found]:
        one_by_one = False

        def lock_pass(locking: Locking) -> bool:
            """Lock rows in one statement. If the server refuses one of them, lock them one by one."""
            nonlocal one_by_one
            if one_by_one:
                return self._lock_one_by_one(table, now, until, limit, locking)
            statement = table.lock(now, until, limit, self._parameters, locking.left_out)
            try:
                self._add_locked(table, self._transaction([statement])[0], until, locking)
            except InvalidValue as error:
                locking.reason = error
            one_by_one = locking.reason is not None
            return one_by_one

        found = self._locker.lock(limit, lock_pass)
        # A join returns rows in any order.
        return sorted(found, key=lambda document: document.sleep_until)

    def _lock_one_by_one(
        self, table: PostgresTable, now: Instant, until: Instant, limit: int, locking: Locking
    ) -> bool:
        """Return whether there are more rows, if none of these could be locked."""
        window = max(limit, _WINDOW)
        search = table.candidates(now, window, self._parameters, locking.left_out, from_end=locking.from_end)
        try:
            (candidates,) = self._transaction([search], is_of_rows=False)
            for candidate in candidates:
                key = str(candidate["key"])
                try:
                    statement = table.lock(now, until, 1, self._parameters, key=key)
                    self._add_locked(table, self._transaction([statement])[0], until, locking)
                except InvalidValue as error:
                    locking.refuse([key], error)
                if locking.wanted <= 0:
                    return False
        except StoreUnavailable:
            if not locking.found:
                raise
            return False  # return the rows that were locked before
        return len(candidates) == window and not locking.found

    def _add_locked(
        self, table: PostgresTable, rows: Sequence[dict[str, Any]], until: Instant, locking: Locking
    ) -> None:
        """Add the rows that have their lock."""
        for row in rows:
            if table.has_lock(row, until):
                locking.found.append(table.found(row, until))
            else:
                error = InvalidValue(
                    "a row does not have the time that was written to it",
                    field="row",
                    value=None,
                    hint="does a trigger change it, or keep the row as it was?",
                )
                locking.refuse([table.key(row)], error)

    def update(self, changes: Sequence[Change]) -> list[bool | None]:
        return self._written(changes, self._opened().updates)

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool | None]:
        return self._written(locks, self._opened().removal)

    def _written(
        self, items: Sequence[T], statements: Callable[[Sequence[T]], list[Statement]]
    ) -> list[bool | None]:
        try:
            return self._answered(len(items), statements(items), self._timeouts)
        except StoreUnavailable as error:
            if sqlstate_of(error) != ROW_IS_LOCKED:
                raise
        # A transaction that was left open on one row must not delay the others until their locks end.
        return [self._written_alone(statements([item])) for item in items]

    def _written_alone(self, statements: Sequence[Statement]) -> bool | None:
        try:
            return self._answered(1, statements, self._short_timeouts)[0]
        except StoreUnavailable as error:
            if sqlstate_of(error) != ROW_IS_LOCKED:
                raise
            return None

    def _answered(self, count: int, statements: Sequence[Statement], timeouts: Timeouts) -> list[bool | None]:
        """Return for each place whether a row was written; the statements return the places of those."""
        answers = self._transaction(statements, timeouts) if statements else []
        met = {row["place"] for rows in answers for row in rows}
        return [place in met for place in range(count)]

    def _opened(self) -> PostgresTable:
        if self._table is None:
            raise StoreUnavailable(f"{self._location.shown}: the documents are not open; call open() first")
        return self._table

    def _transaction(
        self, statements: Sequence[Statement], timeouts: Timeouts | None = None, *, is_of_rows: bool = True
    ) -> list[list[dict[str, Any]]]:
        """Return the rows of each statement. They are sent in one transaction, and in one round trip.

        ``is_of_rows``: whether the server may refuse a single row: a policy of row level security has the
        same error code as a missing grant.
        """
        settings = (timeouts or self._timeouts).settings
        beginning: list[Statement] = [(_BEGIN, ()), (_SETTINGS, settings)]
        with self._connections.read() as session:
            sent = self._clock.mark()
            try:
                with refusals(is_of_rows):
                    answers = session.together("documents", [*beginning, *statements, (_COMMIT, ())])
            finally:
                session.roll_back()
        rows = cast("list[list[dict[str, Any]]]", answers)
        self._clock.update(rows[1][0]["clock"], sent)
        return rows[2:-1]

    def _read_clock(self) -> Instant:
        with self._connections.read() as session:
            return int(rows_of(session, _CLOCK)[0]["clock"])

    def _inspect(self) -> PostgresTable:
        with self._connections.read() as session:
            table = inspect(session, self._name, self._location.shown, self._names, self._condition)
        try:
            # Lock no row, to check the condition and the grants of the role.
            self._transaction([table.lock(0, 0, 0, self._parameters)])
        except (InvalidValue, StoreUnavailable) as error:
            raised = refusal(error, self._name, self._given_condition, self._parameters)
            if raised is error:
                raise
            raise raised from error.__cause__
        return table


def _url(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidValue(
            f"url {shown(type(url).__name__)} is not a text",
            field="url",
            value=None,
            hint="give a URL: postgresql://user:password@host:5432/database",
        )
    if found := _WITH_DRIVER.match(url):
        visible = without_password(url)
        raise InvalidValue(
            f"url {shown(visible)} names a driver",
            field="url",
            value=visible,
            hint=f'drop "{found[2]}": {found[1]}://…',
        )
    return url
