"""Checks of a table when it is opened: that it can be used as documents, and has an index."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from evenbeat.documents import columns, indexes
from evenbeat.documents.columns import Names, Table, quoted
from evenbeat.documents.sqlite.connections import refusals
from evenbeat.documents.sqlite.table import SqliteTable, as_dict, count_places, instant_of
from evenbeat.documents.time_formats import TimeFormat, advice
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.sqlite.session import Session

# In a condition: a text, a name or a comment, which stay as they are; or a placeholder with a number or
# a name.
_PIECES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] | --[^\n]* | /\*.*?\*/
    | ( \?\d+ | [:@$][A-Za-z_]\w* )""",
    re.DOTALL | re.VERBOSE,
)

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

_log = logging.getLogger("evenbeat.documents")


class TableInspection:
    """The table as the user has named it: its columns, the format of its times, and the condition."""

    def __init__(
        self,
        name: str,
        path: str,
        names: Names,
        form: TimeFormat,
        condition: str | None,
        parameters: Sequence[Any],
    ) -> None:
        self._name = name
        self._path = path
        self._names = names
        self._form = form
        self._condition = condition
        self._parameters = parameters

    def inspect(self, session: Session) -> SqliteTable:
        """Return the table. ``InvalidValue`` if it can't be used; a warning if rows are never due, or if it
        lacks an index."""
        real_name = self._find_table(session, columns.split(self._name)[-1])
        known = {
            row["name"]: row for row in map(as_dict, session.rows("inspect", _FIND_COLUMNS, [real_name]))
        }
        table = Table(self._name, known, str.lower)
        names = table.names(self._names)
        self._check_type(session, real_name, names.sleep_until, known[names.sleep_until]["type"])
        if known[names.sleep_until]["notnull"]:
            hint = "create the table anew, with the column declared without NOT NULL"
            raise columns.not_null(self._name, names.sleep_until, hint)
        primary = [row["name"] for row in known.values() if row["pk"]]
        self._check_unique(session, real_name, names.key, primary)
        inspected = SqliteTable(
            quoted(real_name), table, names, self._form, self._condition, self._parameters
        )
        self._check_condition(session, inspected)
        self._warn_of_times(session, inspected)
        if inspected.misses_index(session):
            indexes.warn(self._name, inspected.index)
        return inspected

    def _find_table(self, session: Session, name: str) -> str:
        """Return the name of the table as SQLite has it."""
        found = session.rows("inspect", _FIND_TABLE, [name])
        if not found:
            there = ", ".join(other for (other,) in session.rows("inspect", _FIND_TABLES)) or "none"
            raise InvalidValue(
                f"{self._path} has no table {shown(name)}",
                field="table",
                value=name,
                hint=f"its tables: {there}",
            )
        real_name, kind = found[0]
        if kind == "view":
            raise InvalidValue(
                f"{self._name} is a view, and can't be written to",
                field="table",
                value=name,
                hint="name the table that it selects from; condition=… selects among its rows",
            )
        return str(real_name)

    def _check_type(self, session: Session, table: str, column: str, declared: str) -> None:
        """Refuse a column that would convert the times that are written to it."""
        is_integer = "INT" in declared
        is_text = not is_integer and any(word in declared for word in ("CHAR", "CLOB", "TEXT"))
        described = f"column {shown(column)} of {self._name} (sleep_until) is {declared}"
        if is_text and self._form != "text":
            raise InvalidValue(
                f"{described}, and can't hold numbers",
                field="times",
                value=self._form,
                hint='set times="text", or declare the column INTEGER',
            )
        if self._form == "milliseconds" or not _is_strict(session, table):
            return
        if self._form == "text" and not is_text and declared != "ANY":
            raise InvalidValue(
                f"{described}, and the table is strict",
                field="times",
                value=self._form,
                hint='set times="seconds" or times="milliseconds"',
            )
        if self._form == "seconds" and is_integer:
            raise InvalidValue(
                f"{described}, the table is strict, and a lock needs milliseconds",
                field="times",
                value=self._form,
                hint="declare the column REAL, or keep milliseconds in it",
            )

    def _check_unique(self, session: Session, table: str, key: str, primary: Sequence[str]) -> None:
        unique = {name for (name,) in session.rows("inspect", _FIND_UNIQUE, [table])}
        if key not in unique and list(primary) != [key]:
            raise InvalidValue(
                f"column {shown(key)} of {self._name} (key) is not unique",
                field="key",
                value=key,
                hint=f"name the primary key, or CREATE UNIQUE INDEX … ON {quoted(table)} ({quoted(key)})",
            )

    def _check_condition(self, session: Session, table: SqliteTable) -> None:
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

    def _warn_of_times(self, session: Session, table: SqliteTable) -> None:
        """Warn of a time that SQLite's functions can't read, or of times in another format."""
        extra: dict[str, object] = {"component": "documents", "documents": self._name}
        unread, sample = table.unread_time(session), table.any_time(session)
        if unread is not None:
            # Other databases read it as a time.
            key, time = map(shown, unread)
            _log.warning(
                "a row is never due: SQLite does not read %s as a time; write 2026-03-01 09:00:00, or with "
                "a T, with .5 as a fraction, and with Z or +01:00 at the end",
                time,
                extra=extra | {"document": key},
            )
        elif sample not in (None, "") and instant_of(sample, self._form) is None:
            _log.warning(
                'a row is never due: %s is not a time in the format times="%s"; %s',
                shown(sample),
                self._form,
                advice(sample),
                extra=extra,
            )


def check_placeholders(condition: str | None) -> None:
    """Refuse placeholders with a number or a name: Evenbeat's own values would be put there."""
    for found in _PIECES.finditer(condition or ""):
        if found[1]:
            raise InvalidValue(
                f"condition {shown(condition)} has the placeholder {found[1]}",
                field="condition",
                value=condition,
                hint="write ? for each parameter, in their order",
            )


def _is_strict(session: Session, table: str) -> bool:
    # SQLite before 3.37 has neither strict tables nor pragma_table_list.
    return sqlite3.sqlite_version_info >= (3, 37) and bool(session.rows("inspect", _IS_STRICT, [table]))
