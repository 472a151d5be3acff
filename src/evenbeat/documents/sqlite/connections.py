"""Connections to the user's file, and the meaning of its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenbeat.core.instants import Instant
from evenbeat.documents.sqlite.table import instant_of
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.sqlite.connections import Connections
from evenbeat.stores.sqlite.session import Session, error_code, unavailable


class FileConnections(Connections):
    """Connections to the user's file, which they neither create nor change."""

    def __init__(self, path: str, busy_timeout: float, form: TimeFormat) -> None:
        super().__init__(path, busy_timeout, None)
        self._timeout = busy_timeout
        self._form = form

    def open(self) -> None:
        self._check_stranded()
        self._opened = True

    def _connect(self, create: bool) -> Session:
        self._check_stranded()
        if not self._opened:
            raise StoreUnavailable(f"{self.path}: the documents are not open; call open() first")
        try:
            connection = sqlite3.connect(
                f"{Path(self.path).as_uri()}?mode=rw",
                uri=True,
                timeout=self._timeout,
                isolation_level=None,  # Connections begins transactions
                check_same_thread=False,  # Connections has a lock for that
            )
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error
        connection.row_factory = sqlite3.Row
        # A text that is not UTF-8 must not prevent its row, and those found with it, from being read.
        connection.text_factory = _as_text
        session = Session(connection, self.path, None)
        try:
            connection.create_function("evenbeat_instant", 1, self._instant, deterministic=True)
            session.run("set up", "PRAGMA synchronous = FULL")
            session.run("set up", "PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return session

    def _instant(self, value: object) -> Instant | None:
        return instant_of(value, self._form)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise ``InvalidValue`` in place of ``StoreUnavailable`` if SQLite refused a value or a statement."""
    try:
        yield
    except StoreUnavailable as error:
        cause = error.__cause__
        # An error of the driver, about a value that it can't convert, has no code.
        is_of_driver = isinstance(
            cause, sqlite3.InterfaceError | sqlite3.ProgrammingError | sqlite3.DataError
        )
        if isinstance(cause, sqlite3.Error) and (
            is_of_driver or error_code(cause) & 0xFF == sqlite3.SQLITE_ERROR
        ):
            raise InvalidValue(f"the database refused a row: {cause}", field="row", value=None) from cause
        raise


def _as_text(raw: bytes) -> str:
    return raw.decode(errors="replace")
