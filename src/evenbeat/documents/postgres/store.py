"""Documents in PostgreSQL: the rows of a table that is there already."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import psycopg

from evenbeat.core.instants import Instant
from evenbeat.documents import columns, indexes
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.columns import Table, quoted
from evenbeat.documents.postgres import table as sql
from evenbeat.documents.postgres.conditions import HOW_TO_PLACE, count_places, with_named_places
from evenbeat.documents.postgres.connections import (
    NOT_GRANTED,
    ROW_IS_HELD,
    SYNTAX,
    TableConnections,
    anywhere,
    refusals,
    rows_of,
    sqlstate_of,
)
from evenbeat.documents.postgres.table import Column, RowTable, check_key, check_time
from evenbeat.documents.refcount import RefCount
from evenbeat.documents.unlockable import Unlockable
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.postgres.connections import Patience
from evenbeat.stores.postgres.failures import first_line
from evenbeat.stores.postgres.location import read_location
from evenbeat.stores.postgres.session import Statement
from evenbeat.stores.postgres.statements import DURABLE
from evenbeat.stores.server_clock import ServerClock
from evenbeat.stores.urls import without_password

T = TypeVar("T")

_log = logging.getLogger("evenbeat.documents")

# Seconds to wait for a row that another transaction has written to, and is about to commit; and once
# that was not so, for each row alone.
_LOCK_TIMEOUT = 1.0
_SHORT_LOCK_TIMEOUT = 0.05

# How many rows to lock one by one at least, where some can't be.
_WINDOW = 100

_KINDS = {"r": "table", "p": "partitioned table", "v": "view"}

# What SQLAlchemy calls a database.
_WITH_DRIVER = re.compile(r"(postgres(?:ql)?)(\+\w+)(?=://)")

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_COMMIT = "COMMIT"
_CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock"

# These settings end with the transaction. A lock that was handed out survives a crash of the server. A table
# of jobs is never what the planner believes: it is kept from reading all of one, or all that is due, to sort
# it, wherever there is an index.
_SETTINGS = f"""
{_CLOCK}, {DURABLE},
    set_config('TimeZone', 'UTC', true),
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)
"""


class PostgresDocuments:
    """The rows of a table of PostgreSQL. Nothing is added to it: neither a column nor an index.

    ``table``: its name, with its schema or without: ``reminders``, ``shop.reminders``. ``key``: the column
    that a row is known by; it must be unique. ``sleep_until``: a ``timestamptz``, or a ``timestamp`` in UTC.
    The columns ``interval``, ``repeat_until`` and ``auto_remove`` may be missing. ``condition``: SQL that
    a row must meet to be taken, with ``%s`` for each of ``parameters``. ``timeout``: how many seconds to wait
    for a connection, and for an answer. ``clock`` stands in for the server's, in tests.

    A table of more than some thousand rows wants an index::

        CREATE INDEX ON reminders (sleep_until) WHERE sleep_until IS NOT NULL

    What a handler reads and writes are Python's values; in columns of json, whatever JSON can say. A
    value that Python has none for, such as the date ``infinity``, is read as its text.
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
        self._parts = columns.split(table)
        self._name = table
        self._said = columns.check_names(key, sleep_until, interval, repeat_until, auto_remove)
        self._said_condition, values = columns.check_condition(condition, parameters)
        self._condition = with_named_places(self._said_condition, values)
        self._parameters = {f"p{number}": value for number, value in enumerate(values)}
        self._place = anywhere(read_location(_url(url), None, "off", timeout))
        self._patience = Patience(timeout, _LOCK_TIMEOUT)
        self._haste = Patience(timeout, _SHORT_LOCK_TIMEOUT)
        self._given_clock = clock
        self._clock = ServerClock(self._ask_clock)
        self._connections = TableConnections(self._place, self._patience, self._clock, None)
        self._table: RowTable | None = None
        self._unlockable = Unlockable()
        self._refcount = RefCount(self._connections.open, self._connections.close)

    @property
    def name(self) -> str:
        return self._name

    @property
    def reserved(self) -> frozenset[str]:
        return self._said.reserved

    def open(self) -> None:
        self._refcount.open()
        try:
            self._table = self._look()
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
            return Taken(found, now)  # they are ours; whoever asks again is told
        return Taken(found, table.due(rows[0]) if rows else None)

    def _lock(self, table: RowTable, now: Instant, until: Instant, limit: int) -> list[Found]:
        """A row that can't be locked stands in nobody's way. Who asked is told if there was nothing else."""
        refused = _Refused()
        found: list[Found] = []
        try:
            locking = table.lock(now, until, limit, self._parameters, self._unlockable.ids)
            found += self._seen(table, self._transaction([locking])[0], until, refused)
        except InvalidValue as error:
            refused.reason = error
        if refused.reason is not None and len(found) < limit:
            try:
                is_all = self._lock_one_by_one(table, now, until, limit, found, refused)
                if not is_all and not found:
                    # They may be more than can be set aside: at last it is tried from the other end.
                    self._lock_one_by_one(table, now, until, limit, found, refused, from_end=True)
            except StoreUnavailable:
                if not found:
                    raise
                # Those that were found are ours, and are not kept back for the others.
        if refused.keys:
            extra = {"component": "documents", "documents": self._name, "count": len(refused.keys)}
            extra["document"] = shown(refused.keys[0])
            _log.error("rows can't be locked: %s", refused.reason, extra=extra)
            if not found:
                assert refused.reason is not None
                raise refused.reason
        # A join answers in any order.
        return sorted(found, key=lambda document: document.sleep_until)

    def _lock_one_by_one(
        self,
        table: RowTable,
        now: Instant,
        until: Instant,
        limit: int,
        found: list[Found],
        refused: _Refused,
        *,
        from_end: bool = False,
    ) -> bool:
        """Whether these were all."""
        window = max(limit, _WINDOW)
        looking = table.candidates(now, window, self._parameters, self._unlockable.ids, from_end=from_end)
        (candidates,) = self._transaction([looking], is_of_rows=False)
        for candidate in candidates:
            key = str(candidate["key"])
            try:
                locking = table.lock(now, until, 1, self._parameters, key=key)
                found += self._seen(table, self._transaction([locking])[0], until, refused)
            except InvalidValue as error:
                self._set_aside(key, refused, error)
            if len(found) >= limit:
                return False
        return len(candidates) < window

    def _seen(
        self, table: RowTable, rows: Sequence[dict[str, Any]], until: Instant, refused: _Refused
    ) -> list[Found]:
        """Those that have their lock."""
        for row in rows:
            if not table.has_lock(row, until):
                error = InvalidValue(
                    "a row does not have the time that was written to it",
                    field="row",
                    value=None,
                    hint="does a trigger change it, or keep the row as it was?",
                )
                self._set_aside(table.key(row), refused, error)
        return [table.found(row, until) for row in rows if table.has_lock(row, until)]

    def _set_aside(self, key: str, refused: _Refused, error: InvalidValue) -> None:
        self._unlockable.put([key])
        refused.keys.append(key)
        refused.reason = refused.reason or error

    def update(self, changes: Sequence[Change]) -> list[bool | None]:
        return self._written(changes, self._opened().updates)

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool | None]:
        return self._written(locks, self._opened().removal)

    def _written(
        self, items: Sequence[T], statements: Callable[[Sequence[T]], list[Statement]]
    ) -> list[bool | None]:
        try:
            return self._answered(len(items), statements(items), self._patience)
        except StoreUnavailable as error:
            if sqlstate_of(error) != ROW_IS_HELD:
                raise
        # A forgotten transaction on one row must not keep the others waiting until their locks end.
        return [self._written_alone(statements([item])) for item in items]

    def _written_alone(self, statements: Sequence[Statement]) -> bool | None:
        try:
            return self._answered(1, statements, self._haste)[0]
        except StoreUnavailable as error:
            if sqlstate_of(error) != ROW_IS_HELD:
                raise
            return None

    def _answered(self, count: int, statements: Sequence[Statement], patience: Patience) -> list[bool | None]:
        """Which were met, by what the statements return: their places."""
        answers = self._transaction(statements, patience) if statements else []
        met = {row["place"] for rows in answers for row in rows}
        return [place in met for place in range(count)]

    def _opened(self) -> RowTable:
        if self._table is None:
            raise StoreUnavailable(f"{self._place.shown}: the documents are not open; call open() first")
        return self._table

    def _transaction(
        self, statements: Sequence[Statement], patience: Patience | None = None, *, is_of_rows: bool = True
    ) -> list[list[dict[str, Any]]]:
        """The rows of each statement: in one transaction, and in one round trip. ``is_of_rows``: whether a
        refusal may be one of a single row, as by a policy of row level security, which has the code of
        a missing grant."""
        settings = (patience or self._patience).settings
        beginning: list[Statement] = [(_BEGIN, ()), (_SETTINGS, settings)]
        with self._connections.read() as session:
            sent = self._clock.mark()
            try:
                with refusals(is_of_rows):
                    answers = session.together("documents", [*beginning, *statements, (_COMMIT, ())])
            finally:
                session.roll_back()
        rows = cast("list[list[dict[str, Any]]]", answers)
        self._clock.heard(rows[1][0]["clock"], sent)
        return rows[2:-1]

    def _ask_clock(self) -> Instant:
        with self._connections.read() as session:
            return int(rows_of(session, _CLOCK)[0]["clock"])

    # What is there

    def _look(self) -> RowTable:
        with self._connections.read() as session:
            found = rows_of(session, sql.FIND_TABLE, quoted(*self._parts))
            if not found:
                raise self._no_table(
                    [row["name"] for row in rows_of(session, sql.NEAR_TABLES, self._parts[-1])]
                )
            oid, kind = found[0]["oid"], found[0]["kind"]
            columns = {row["name"]: Column(**row) for row in rows_of(session, sql.FIND_COLUMNS, oid)}
            table = Table(self._name, columns)
            names = table.names(self._said)
            check_time(columns[names.sleep_until], self._name)
            check_key(columns[names.key], self._name)
            self._check_kind(kind)
            if not rows_of(session, sql.FIND_UNIQUE, oid, names.key):
                self._not_unique(kind, names.key)
            if rows_of(session, sql.FIND_INDEX_MISSED, oid, indexes.MANY, names.sleep_until):
                due = quoted(names.sleep_until)
                remedy = f"CREATE INDEX CONCURRENTLY ON {self._name} ({due}) WHERE {due} IS NOT NULL"
                indexes.warn(self._name, remedy)
        looked_at = RowTable(
            quoted(found[0]["space"], found[0]["name"]), table, columns, names, self._condition
        )
        self._try(looked_at)
        return looked_at

    def _try(self, table: RowTable) -> None:
        """Take nothing: to see whether the condition can be understood, and the role may do all that."""
        try:
            self._transaction([table.lock(0, 0, 0, self._parameters)])
        except (InvalidValue, StoreUnavailable) as error:
            cause = error.__cause__
            why = first_line(cause if isinstance(cause, psycopg.Error) else error)
            if sqlstate_of(error) == NOT_GRANTED:
                raise InvalidValue(
                    f"{self._name} can't be worked on: {why}",
                    field="table",
                    value=self._name,
                    hint="grant the role SELECT, UPDATE and, for rows that remove themselves, DELETE",
                ) from cause
            if isinstance(error, StoreUnavailable):
                raise
            places = count_places(self._said_condition or "")
            if sqlstate_of(error) == SYNTAX and places and not self._parameters:
                raise columns.miscounted(self._said_condition, places, (), HOW_TO_PLACE) from cause
            asked = f"condition {shown(self._said_condition)}" if self._said_condition else self._name
            raise InvalidValue(
                f"{asked} is refused: {why}",
                field="condition" if self._said_condition else "table",
                value=self._said_condition or self._name,
            ) from cause

    def _no_table(self, near: Sequence[str]) -> InvalidValue:
        return InvalidValue(
            f"there is no table {self._name} in {self._place.shown}",
            field="table",
            value=self._name,
            hint=f"did you mean {' or '.join(near)}?" if near else "make it first, or name its schema, too",
        )

    def _check_kind(self, kind: str) -> None:
        if kind not in _KINDS:
            raise InvalidValue(
                f"{self._name} is neither a table nor a view",
                field="table",
                value=self._name,
                hint="foreign tables and materialized views can't be locked row by row",
            )

    def _not_unique(self, kind: str, key: str) -> None:
        """Of a view, and across partitions, the server can't tell: the user has to know."""
        if kind == "r":
            raise InvalidValue(
                f"column {shown(key)} of {self._name} (key) has no unique index",
                field="key",
                value=key,
                hint=f"name the primary key, or CREATE UNIQUE INDEX ON {self._name} ({quoted(key)})",
            )
        _log.warning(
            "nothing says that the key of this %s is unique; rows that share one are taken for each other",
            _KINDS[kind],
            extra={"component": "documents", "documents": self._name},
        )


class _Refused:
    """Rows that could not be locked in one call."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.reason: InvalidValue | None = None
        """The first one."""


def _url(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidValue(
            f"url {shown(type(url).__name__)} is not a text",
            field="url",
            value=None,
            hint="give a URL: postgresql://user:password@host:5432/database; connections are made of it",
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
