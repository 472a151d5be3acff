"""Connections to the user's database, and the meaning of its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from evenbeat.core.json_depth import check_depth
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.postgres.connections import Connections
from evenbeat.stores.postgres.failures import first_line
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.postgres.session import Session

# SQLSTATE classes of errors that concern the server, not a value, a row or a statement.
_OF_SERVER = ("08", "25", "28", "3D", "40", "53", "55006", "55P", "57", "58", "XX")
NO_TABLE, NOT_GRANTED, ROW_IS_LOCKED, SYNTAX = "42P01", "42501", "55P03", "42601"

# The styles of times and intervals that the driver reads.
_STYLES = {"DateStyle": "ISO", "IntervalStyle": "postgres"}


class _LenientCursor(psycopg.Cursor[dict[str, Any]]):
    """Returns a value that can't be read, such as the date ``infinity``, as its text. Otherwise the row,
    which is locked by then, would be locked again and again, and never processed."""

    def fetchall(self) -> list[dict[str, Any]]:
        try:
            return super().fetchall()
        except Exception:  # a loader may raise anything
            return self._fetch_one_by_one()

    def _fetch_one_by_one(self) -> list[dict[str, Any]]:
        result = self.pgresult
        assert result is not None
        transformer = Transformer(self)
        columns = [
            (column.name, transformer.get_loader(result.ftype(at), Format(result.fformat(at))).load)
            for at, column in enumerate(self.description or ())
        ]

        def value(row: int, at: int) -> Any:
            raw = result.get_value(row, at)
            if raw is None:
                return None
            try:
                return columns[at][1](raw)
            except Exception:
                return raw.decode(errors="replace")

        return [
            {name: value(row, at) for at, (name, _) in enumerate(columns)} for row in range(result.ntuples)
        ]


def _loads(text: str | bytes) -> Any:
    """Return a JSON value. Refuse one that is nested too deeply, even if this Python can read it."""
    value = json.loads(text)
    check_depth(text, value)
    return value


class TableConnections(Connections):
    """Connections that return rows as dicts, also those with values that can't be read."""

    def _connect(self) -> Session:
        session = super()._connect()
        link = cast("psycopg.Connection[Any]", session.connection)
        link.row_factory, link.cursor_factory = dict_row, _LenientCursor
        set_json_loads(_loads, link)
        for setting, wanted in _STYLES.items():
            # The driver reads no other style: rows that were locked could not be read.
            if (link.info.parameter_status(setting) or wanted).partition(",")[0] != wanted:
                try:
                    rows_of(session, f"SET {setting} TO {wanted}")
                except BaseException:
                    link.close()
                    raise
        return session


class _UsersDatabase(Location):
    """A database whose statements contain the user's SQL: no name in them is replaced."""

    def own(self, text: str) -> str:
        return text


def users_database(location: Location) -> _UsersDatabase:
    options = cast("dict[str, str]", conninfo_to_dict(location.conninfo))
    if options["application_name"] == "evenbeat":  # unless the user has set another
        options["application_name"] = "evenbeat documents"
    return _UsersDatabase(make_conninfo(**options), None, location.schema, location.shown)


def rows_of(session: Session, text: str, *values: object) -> list[dict[str, Any]]:
    return cast("list[Any]", session.rows("inspect", text, values))


@contextmanager
def refusals(is_of_rows: bool) -> Iterator[None]:
    """Raise ``InvalidValue`` in place of ``StoreUnavailable`` if the server refused a value or a row."""
    try:
        yield
    except StoreUnavailable as error:
        cause, state = error.__cause__, sqlstate_of(error)
        if state is None:
            # An error of the driver, about a value that it can't convert.
            is_refused = isinstance(cause, psycopg.ProgrammingError)
        else:
            # Triggers and functions raise codes of their own, so all other classes count as refusals.
            is_refused = not state.startswith(_OF_SERVER) and state != NO_TABLE
            is_refused = is_refused and (is_of_rows or state != NOT_GRANTED)
        if is_refused:
            assert cause is not None
            why = first_line(cause) if isinstance(cause, Exception) else str(cause)
            raise InvalidValue(f"the database refused a row: {why}", field="row", value=None) from cause
        raise


def sqlstate_of(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)
