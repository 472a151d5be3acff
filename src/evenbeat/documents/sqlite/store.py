"""Documents in SQLite: the rows of a table of a file that is there already."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.documents import columns, indexes
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.columns import Table, quoted
from evenbeat.documents.refcount import RefCount
from evenbeat.documents.sqlite.connections import FileConnections, refusals
from evenbeat.documents.sqlite.table import RowTable, as_dict, count_places, instant_of
from evenbeat.documents.time_formats import TimeFormat, advice, check
from evenbeat.documents.unlockable import Unlockable
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.sqlite.session import Session

# In a condition: a text, a name or a comment, which are left as they are, or a place with a number or a name.
_PIECES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/
    | ( \?\d+ | [:@$][A-Za-z_]\w* )""",
    re.DOTALL | re.VERBOSE,
)

_log = logging.getLogger("evenbeat.documents")

# How often to look for other rows than those that could not be locked.
_LOOKS = 100

_FIND_TABLE = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE"
)
_FIND_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
_FIND_COLUMNS = """
SELECT name, upper(type) AS type, "notnull", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1
"""
_IS_STRICT = "SELECT 1 FROM pragma_table_list WHERE schema = 'main' AND name = ? AND strict"
_FIND_UNIQUE = """
SELECT parts.name FROM pragma_index_list(?) AS list, pragma_index_info(list.name) AS parts
WHERE list."unique" AND NOT list.partial GROUP BY list.name HAVING count(*) = 1
"""


# As the stores of schedules, and SQLAlchemy, name a file.
_URL = re.compile(r"sqlite(?:\+\w+)?://(?:[^/?]*/)?([^?]*)(?:\?.*)?", re.DOTALL)


class SqliteDocuments:
    """The rows of a table of an SQLite file. Nothing is added to it, and how it keeps its journal is not
    touched. What its foreign keys say is kept.

    ``key``: the column that a row is known by; it must be unique. ``sleep_until``: a time, as ``times`` says:
    a ``text`` as SQLite's own functions understand it (``2026-11-15 12:00:00``, with a T, a fraction, Z or
    an offset; UTC without one), or a number of ``seconds`` or ``milliseconds`` since 1970. What is no such
    time is never due. While a row is locked, seconds have a fraction. The columns ``interval``,
    ``repeat_until`` and ``auto_remove`` may be missing. ``condition``: SQL that a row must meet to be taken,
    with ``?`` for each of ``parameters``. ``busy_timeout``: how many seconds to wait for others who write.

    A table of more than some thousand rows wants an index, on texts and on numbers::

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
        self._table_name = _main_part(table)
        self._said = columns.check_names(key, sleep_until, interval, repeat_until, auto_remove)
        self._condition, self._parameters = columns.check_condition(condition, parameters)
        _check_places(self._condition)
        self._form = check(times)
        self._name = table
        self._clock = clock
        self._connections = FileConnections(self._path, busy_timeout, self._form)
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
        if not os.path.isfile(self._path):
            raise InvalidValue(
                f"there is no file {self._path}", field="path", value=self._path, hint="make it and its table"
            )
        self._refcount.open()
        try:
            with self._connections.write() as session:
                self._table = self._look(session)
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
            # What is due by the time that others have let us write.
            now = self._clock()
            found = self._lock(session, table, now, now + duration, limit)
            return Taken(found, table.next_due(session, now) if len(found) < limit else None)

    def _lock(
        self, session: Session, table: RowTable, now: Instant, until: Instant, limit: int
    ) -> list[Found]:
        """A row that can't be locked stands in nobody's way. Who asked is told if there was nothing else."""
        found: list[Found] = []
        refused: list[Any] = []
        reason: InvalidValue | None = None
        for look in range(_LOOKS):
            refused_before = len(refused)
            # They may be more than can be set aside: at last it is tried from the other end.
            from_end = look == _LOOKS - 1
            wanted = limit - len(found)
            for row in table.lockable(session, now, wanted, self._unlockable.ids, from_end=from_end):
                try:
                    with refusals():
                        found.append(table.lock(session, row, until))
                except InvalidValue as error:
                    self._unlockable.put([table.key(row)])
                    refused.append(table.key(row))
                    reason = reason or error
                    if not session.connection.in_transaction:  # RAISE(ROLLBACK): the others are not ours
                        found.clear()
                        break
            is_over = not session.connection.in_transaction
            if is_over or len(found) >= limit or len(refused) == refused_before:
                break
        if reason is not None:
            extra = {"component": "documents", "documents": self._name, "count": len(refused)}
            _log.error("rows can't be locked: %s", reason, extra=extra | {"document": shown(refused[0])})
            if not found:
                raise reason
        return found

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

    def _opened(self) -> RowTable:
        if self._table is None:
            raise StoreUnavailable(f"{self._path}: the documents are not open; call open() first")
        return self._table

    # What is there

    def _look(self, session: Session) -> RowTable:
        found = session.rows("look", _FIND_TABLE, [self._table_name])
        if not found:
            there = ", ".join(name for (name,) in session.rows("look", _FIND_TABLES)) or "none"
            raise InvalidValue(
                f"{self._path} has no table {shown(self._table_name)}",
                field="table",
                value=self._table_name,
                hint=f"its tables: {there}",
            )
        name, kind = found[0]
        if kind == "view":
            raise InvalidValue(
                f"{self._name} is a view, and can't be written to",
                field="table",
                value=self._table_name,
                hint="name the table that it is made of; condition=… says which of its rows are meant",
            )
        present = {row["name"]: row for row in map(as_dict, session.rows("look", _FIND_COLUMNS, [name]))}
        table = Table(self._name, present, str.lower)
        names = table.names(self._said)
        self._check_type(session, name, names.sleep_until, present[names.sleep_until]["type"])
        if present[names.sleep_until]["notnull"]:
            hint = "make the table anew, with the column declared without NOT NULL"
            raise columns.not_null(self._name, names.sleep_until, hint)
        self._check_unique(session, name, names.key, [row["name"] for row in present.values() if row["pk"]])
        looked_at = RowTable(quoted(name), table, names, self._form, self._condition, self._parameters)
        self._try(session, looked_at)
        if looked_at.misses_index(session):
            indexes.warn(self._name, looked_at.index)
        return looked_at

    def _check_type(self, session: Session, table: str, column: str, declared: str) -> None:
        """Refuse a column that would make something else of what is written."""
        is_integer = "INT" in declared
        is_text = not is_integer and any(word in declared for word in ("CHAR", "CLOB", "TEXT"))
        said = f"column {shown(column)} of {self._name} (sleep_until) is {declared}"
        if is_text and self._form != "text":
            raise InvalidValue(
                f"{said}, and has no numbers",
                field="times",
                value=self._form,
                hint='say times="text", or declare the column INTEGER',
            )
        if self._form == "milliseconds" or not self._is_strict(session, table):
            return
        if self._form == "text" and not is_text and declared != "ANY":
            raise InvalidValue(
                f"{said}, and the table is strict",
                field="times",
                value=self._form,
                hint='say times="seconds" or times="milliseconds"',
            )
        if self._form == "seconds" and is_integer:
            raise InvalidValue(
                f"{said}, the table is strict, and a lock needs milliseconds",
                field="times",
                value=self._form,
                hint="declare the column REAL, or keep milliseconds in it",
            )

    def _is_strict(self, session: Session, table: str) -> bool:
        # Before 3.37 there was neither this table of tables, nor were there strict ones.
        return sqlite3.sqlite_version_info >= (3, 37) and bool(session.rows("look", _IS_STRICT, [table]))

    def _check_unique(self, session: Session, table: str, key: str, primary: Sequence[str]) -> None:
        unique = {name for (name,) in session.rows("look", _FIND_UNIQUE, [table])}
        if key not in unique and list(primary) != [key]:
            raise InvalidValue(
                f"column {shown(key)} of {self._name} (key) is not unique",
                field="key",
                value=key,
                hint=f"name the primary key, or CREATE UNIQUE INDEX … ON {quoted(table)} ({quoted(key)})",
            )

    def _try(self, session: Session, table: RowTable) -> None:
        try:
            with refusals():
                table.lockable(session, 0, 0)
        except InvalidValue as error:
            if self._condition is None:
                raise
            places = count_places(error.__cause__)
            if places is not None:
                raise columns.miscounted(
                    self._condition, places, self._parameters, "write ? for each parameter"
                ) from error.__cause__
            raise InvalidValue(
                f"condition {shown(self._condition)} is refused: {error.__cause__}",
                field="condition",
                value=self._condition,
                hint="write ? for each parameter",
            ) from error.__cause__
        extra: dict[str, object] = {"component": "documents", "documents": self._name}
        unread, sample = table.unread_time(session), table.any_time(session)
        if unread is not None:
            # It would be a time elsewhere.
            key, time = map(shown, unread)
            _log.warning(
                "a row is never due: SQLite does not read %s as a time; write 2026-03-01 09:00:00, or with "
                "a T, with .5 as a fraction, and with Z or +01:00 at the end",
                time,
                extra=extra | {"document": key},
            )
        elif sample not in (None, "") and instant_of(sample, self._form) is None:
            # One row that says no time is its owner's matter; all of them would be a mistake.
            _log.warning(
                'a row is never due: %s is no time as times="%s" has them; %s',
                shown(sample),
                self._form,
                advice(sample),
                extra=extra,
            )


def _check_places(condition: str | None) -> None:
    """Refuse places with a number or a name: they would be filled with values of ours."""
    for found in _PIECES.finditer(condition or ""):
        if found[1]:
            raise InvalidValue(
                f"condition {shown(condition)} has the place {found[1]}",
                field="condition",
                value=condition,
                hint="write ? for each parameter, in their order",
            )


def _real_path(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidValue(
            f"path {shown(type(path).__name__)} is not that of a file",
            field="path",
            value=None,
            hint="name the file that has the table; connections are made of it",
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
            f"path {shown(text)} is not that of a file",
            field="path",
            value=text,
            hint="name the file that has the table",
        )
    # As it is meant now, whatever the working directory is later, and one name for one file.
    return os.path.realpath(text)


def _main_part(table: str) -> str:
    *schema, name = columns.split(table)
    if schema not in ([], ["main"]):
        raise InvalidValue(
            f"table {shown(table)} is in another database than the file's own",
            field="table",
            value=table,
            hint=f"name its file as the path, and {name} as the table",
        )
    return name
