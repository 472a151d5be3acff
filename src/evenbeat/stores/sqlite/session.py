"""Sends commands on a connection: announces each by name, and translates every error of the driver."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from evenbeat.errors import RowRefused, StoreUnavailable
from evenbeat.stores.rows import InvalidTextRow, Row
from evenbeat.stores.sqlite.lock_holder import write_lock_advice

OnCommand: TypeAlias = Callable[[str], None]

# Errors after which the connection is still usable. After any other error, the store replaces it.
_HARMLESS = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}

# Errors about the values of a row: a constraint, a RAISE of a trigger, a text that is too long.
_ABOUT_VALUES = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}

# The errors of a command: of the database, and of values that SQLite cannot store.
_REFUSED = (sqlite3.Error, OverflowError, UnicodeEncodeError)

_BETWEEN_TRIES = 0.002


class Session:
    """A connection that announces every command and translates every error of the driver."""

    def __init__(self, connection: sqlite3.Connection, path: str, on_command: OnCommand | None) -> None:
        self.connection = connection
        self.broken = False
        self._path = path
        self._on_command = on_command

    def announce(self, name: str) -> None:
        if self._on_command is not None:
            self._on_command(name)

    def begin(self, patience: float) -> None:
        """Begin a transaction that holds the write lock; wait for the lock for ``patience`` seconds.

        SQLite's own busy handler waits for up to 100 ms between two tries: while one process wrote without a
        pause, other processes did not get the lock for 5 s. With tries 2 ms apart, they get it.
        """
        self.announce("begin")
        try:
            deadline = time.monotonic() + patience
            self.connection.execute("PRAGMA busy_timeout = 0")
            try:
                while not self._begun(last_try=time.monotonic() >= deadline):
                    time.sleep(_BETWEEN_TRIES)
            finally:
                self.connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        except _REFUSED as error:
            raise self._translated(error) from error

    def _begun(self, last_try: bool) -> bool:
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if last_try or not is_busy(error):
                raise
            return False
        return True

    def run(self, name: str, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement, and return how many rows it changed."""
        self.announce(name)
        try:
            return self.connection.execute(sql, values).rowcount
        except _REFUSED as error:
            raise self._translated(error) from error

    def many(self, name: str, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a statement once per row; send nothing if there are none."""
        rows = rows if isinstance(rows, list) else list(rows)
        if rows:
            self.announce(name)
            try:
                self.connection.executemany(sql, rows)
            except _REFUSED as error:
                raise self._translated(error) from error

    def rows(self, name: str, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a query, and return all rows at once: an open cursor would keep its snapshot, and the WAL
        with it.

        Only for queries: the statement may be executed twice.
        """
        self.announce(name)
        try:
            try:
                return self.connection.execute(sql, values).fetchall()
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            return self._rows_with_invalid_text(sql, values)
        except _REFUSED as error:
            raise self._translated(error) from error

    def _rows_with_invalid_text(self, sql: str, values: Sequence[Any]) -> list[Row]:
        # One text that is not UTF-8 makes the whole fetch fail. So only such a query is repeated with bytes:
        # a text factory that accepts any text would cost every query 2 us a row.
        self.connection.text_factory = bytes
        try:
            return [_decoded(row) for row in self.connection.execute(sql, values)]
        finally:
            self.connection.text_factory = str

    def _translated(self, error: Exception) -> RowRefused | StoreUnavailable:
        """Return the error to raise instead. A context manager in its place costs each command 1.3 us."""
        if not isinstance(error, sqlite3.Error):
            return RowRefused(str(error), "SQLite cannot store a value")
        if error_code(error) & 0xFF in _ABOUT_VALUES:
            return RowRefused(str(error))
        self.broken = self.broken or (error_code(error) & 0xFF) not in _HARMLESS
        return unavailable(self._path, error)

    def roll_back(self) -> None:
        """Roll back the open transaction. If that fails, mark the connection as broken."""
        try:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.broken = True


def _decoded(row: Row) -> Row:
    try:
        return tuple(value.decode() if isinstance(value, bytes) else value for value in row)
    except UnicodeDecodeError:
        return InvalidTextRow(
            value.decode(errors="replace") if isinstance(value, bytes) else value for value in row
        )


def error_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", None) or 0


def is_busy(error: BaseException | None) -> bool:
    return isinstance(error, sqlite3.Error) and error_code(error) & 0xFF == sqlite3.SQLITE_BUSY


def unavailable(path: str, error: sqlite3.Error) -> StoreUnavailable:
    """Return the error to raise, with advice for users."""
    code = error_code(error) & 0xFF
    advice = {
        sqlite3.SQLITE_LOCKED: "another connection holds the write lock; try again",
        sqlite3.SQLITE_FULL: "the disk is full; make room and try again",
        sqlite3.SQLITE_READONLY: "the file, or its folder, is read-only; WAL needs to write beside the file",
        sqlite3.SQLITE_CORRUPT: "the file is damaged; restore it from a backup",
        sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; name another one",
        sqlite3.SQLITE_CANTOPEN: "the file can't be opened; is it there, with the right permissions?",
    }.get(code, write_lock_advice(path) if code == sqlite3.SQLITE_BUSY else None)
    return StoreUnavailable(f"{path}: {error}" + (f" ({advice})" if advice else ""))
