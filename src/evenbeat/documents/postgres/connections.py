"""Connections to a database of the user's, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import psycopg
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format
from psycopg.rows import dict_row

from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.postgres.connections import Connections
from evenbeat.stores.postgres.failures import first_line
from evenbeat.stores.postgres.location import Location
from evenbeat.stores.postgres.session import Session

# What the server says of itself, as opposed to: of a value, a row or a statement. By classes of SQLSTATE.
_OF_ITSELF = ("08", "25", "28", "3D", "40", "53", "55006", "55P", "57", "58", "XX")
NO_TABLE, NOT_GRANTED, ROW_IS_HELD, SYNTAX = "42P01", "42501", "55P03", "42601"

# How the driver reads times and intervals.
_STYLES = {"DateStyle": "ISO", "IntervalStyle": "postgres"}


class _LenientCursor(psycopg.Cursor[dict[str, Any]]):
    """A value that can't be read, as ``infinity`` among dates, comes as its text: the row was locked by
    then, and would be again, without ever getting anywhere."""

    def fetchall(self) -> list[dict[str, Any]]:
        try:
            return super().fetchall()
        except Exception:  # also of loaders that are not ours: RecursionError of very deep JSON
            return self._fetched_one_by_one()

    def _fetched_one_by_one(self) -> list[dict[str, Any]]:
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


class TableConnections(Connections):
    """Connections whose rows are dicts, and come whatever is in them."""

    def _connect(self) -> Session:
        session = super()._connect()
        link = cast("psycopg.Connection[Any]", session.link)
        link.row_factory, link.cursor_factory = dict_row, _LenientCursor
        for setting, wanted in _STYLES.items():
            # It reads no others: what was locked could not be handed out.
            if (link.info.parameter_status(setting) or wanted).partition(",")[0] != wanted:
                try:
                    rows_of(session, f"SET {setting} TO {wanted}")
                except BaseException:
                    link.close()
                    raise
        return session


class _Anywhere(Location):
    """A database whose statements are the user's as well: no name in them is replaced."""

    def own(self, text: str) -> str:
        return text


def anywhere(place: Location) -> _Anywhere:
    options = cast("dict[str, str]", conninfo_to_dict(place.conninfo))
    if options["application_name"] == "evenbeat":  # as long as the user does not say another
        options["application_name"] = "evenbeat documents"
    return _Anywhere(make_conninfo(**options), None, place.schema, place.shown)


def rows_of(session: Session, text: str, *values: object) -> list[dict[str, Any]]:
    return cast("list[Any]", session.rows("look", text, values))


@contextmanager
def refusals(is_of_rows: bool) -> Iterator[None]:
    """Tell what the server says of a value from what it says of itself."""
    try:
        yield
    except StoreUnavailable as error:
        cause, state = error.__cause__, sqlstate_of(error)
        if state is None:
            # The driver's own, about a value that it does not know.
            is_refused = isinstance(cause, psycopg.ProgrammingError)
        else:
            # Triggers and functions have codes of their own.
            is_refused = not state.startswith(_OF_ITSELF) and state != NO_TABLE
            is_refused = is_refused and (is_of_rows or state != NOT_GRANTED)
        if is_refused:
            assert cause is not None
            said = first_line(cause) if isinstance(cause, Exception) else str(cause)
            raise InvalidValue(f"the database refused a row: {said}", field="row", value=None) from cause
        raise


def sqlstate_of(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)
