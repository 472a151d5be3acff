"""Documents in SQLite: the rows of a table in a file that the user has already."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.documents import columns
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.locking import DocumentLocker, Locking
from evenbeat.documents.refcount import RefCount
from evenbeat.documents.sqlite.connections import FileConnections, refusals
from evenbeat.documents.sqlite.inspection import TableInspection, check_placeholders
from evenbeat.documents.sqlite.table import SqliteTable
from evenbeat.documents.time_formats import TimeFormat, check
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.sqlite.session import Session

# How often to search for other rows than those that can't be locked.
_PASSES = 100

# A URL as the stores of schedules, and SQLAlchemy, have it.
_URL = re.compile(r"sqlite(?:\+\w+)?://(?:[^/?]*/)?([^?]*)(?:\?.*)?", re.DOTALL)


class SqliteDocuments:
    """The rows of a table in an SQLite file. Evenbeat adds nothing to the file, and leaves its journal mode
    as it is. Foreign keys are enforced.

    ``key``: a unique column that identifies a row. ``sleep_until``: a time in the format ``times``:
    a ``text`` as SQLite's own functions read it (``2026-11-15 12:00:00``, with a T, a fraction, Z or
    an offset; UTC without one), or a number of ``seconds`` or ``milliseconds`` since 1970. A row with any
    other value is never due. While a row is locked, seconds have a fraction. The columns ``interval``,
    ``repeat_until`` and ``auto_remove`` may be missing. ``condition``: SQL that a row must meet to be a job,
    with ``?`` for each of ``parameters``. ``busy_timeout``: how many seconds to wait while others write.

    A table of more than some thousand rows needs an index, on texts or on numbers::

        CREATE INDEX reminders_due ON reminders (julianday(sleep_until)) WHERE sleep_until IS NOT NULL
        CREATE INDEX reminders_due ON reminders (sleep_until) WHERE sleep_until IS NOT NULL
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        *,
        key: str = "id",
        sleep_until: str = Fields().sleep_until,
        interval: str = Fields().interval,
        repeat_until: str = Fields().repeat_until,
        auto_remove: str = Fields().auto_remove,
        condition: str | None = None,
        parameters: Sequence[Any] = (),
        times: TimeFormat = "text",
        clock: Callable[[], Instant] = wall_clock,
        busy_timeout: float = 5.0,
    ) -> None:
        self._path = _real_path(path)
        _check_schema(table)
        self._name = table
        self._names = columns.check_names(key, sleep_until, interval, repeat_until, auto_remove)
        checked_condition, values = columns.check_condition(condition, parameters)
        check_placeholders(checked_condition)
        form = check(times)
        self._inspection = TableInspection(table, self._path, self._names, form, checked_condition, values)
        self._clock = clock
        self._connections = FileConnections(self._path, busy_timeout, form)
        self._table: SqliteTable | None = None
        self._locker = DocumentLocker(table, _PASSES)
        self._refcount = RefCount(self._connections.open, self._connections.close)

    @property
    def name(self) -> str:
        return self._name

    @property
    def reserved(self) -> frozenset[str]:
        return self._names.reserved

    def open(self) -> None:
        if not os.path.isfile(self._path):
            raise InvalidValue(
                f"there is no file {self._path}",
                field="path",
                value=self._path,
                hint="create it and its table",
            )
        self._refcount.open()
        try:
            with self._connections.write() as session:
                self._table = self._inspection.inspect(session)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._refcount.close()

    def now(self) -> Instant:
        return self._clock()

    def lock_next(self, duration: int, limit: int) -> Taken:
        table = self._opened()
        with self._connections.write() as session, refusals():
            # The time after the wait for others that write.
            now = self._clock()
            found = self._lock(session, table, now, now + duration, limit)
            return Taken(found, table.next_due(session, now) if len(found) < limit else None)

    def _lock(
        self, session: Session, table: SqliteTable, now: Instant, until: Instant, limit: int
    ) -> list[Found]:
        def lock_pass(locking: Locking) -> bool:
            """Lock rows one by one. Return whether some were refused, and others may be behind them."""
            refused_before = len(locking.refused)
            due = table.lockable(session, now, locking.wanted, locking.left_out, from_end=locking.from_end)
            for row in due:
                try:
                    with refusals():
                        locking.found.append(table.lock(session, row, until))
                except InvalidValue as error:
                    locking.refuse([table.key(row)], error)
                    if not session.connection.in_transaction:
                        # A trigger called RAISE(ROLLBACK): no row is locked any more.
                        locking.found.clear()
                        return False
            return len(locking.refused) > refused_before

        return self._locker.lock(limit, lock_pass)

    def update(self, changes: Sequence[Change]) -> list[bool]:
        table = self._opened()
        if not changes:
            return []
        with self._connections.write() as session, refusals():
            return [table.update(session, change) for change in changes]

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        table = self._opened()
        if not locks:
            return []
        with self._connections.write() as session, refusals():
            return [table.remove(session, lock) for lock in locks]

    def _opened(self) -> SqliteTable:
        if self._table is None:
            raise StoreUnavailable(f"{self._path}: the documents are not open; call open() first")
        return self._table


def _real_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidValue(
            f"path {shown(type(path).__name__)} is not the path of a file",
            field="path",
            value=None,
            hint="name the file that has the table; Evenbeat opens its own connections to it",
        )
    if found := _URL.fullmatch(text):
        raise InvalidValue(
            f"path {shown(text)} is a URL",
            field="path",
            value=text,
            hint=f"give the path: {found[1]}" if found[1] else "name the file that has the table",
        )
    if text in ("", ":memory:") or "\0" in text:
        raise InvalidValue(
            f"path {shown(text)} is not the path of a file",
            field="path",
            value=text,
            hint="name the file that has the table",
        )
    # Independent of later changes of the working directory, and one name for one file.
    return os.path.realpath(text)


def _check_schema(table: str) -> None:
    *schema, name = columns.split(table)
    if schema not in ([], ["main"]):
        raise InvalidValue(
            f"table {shown(table)} is in another database than the file's own",
            field="table",
            value=table,
            hint=f"name its file as the path, and {name} as the table",
        )
