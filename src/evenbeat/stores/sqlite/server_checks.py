"""Checks of a file, also of one that no store has opened, and of the connections in use."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Setting
from evenbeat.stores.sqlite import schema
from evenbeat.stores.sqlite.session import Session, unavailable

_SYNCHRONOUS = ("off", "normal", "full", "extra")
_RISK = "a power cut may lose commits"


def schema_version(path: str) -> int:
    """Read the version of the tables in the file; 0 if there are none, or no file.

    Creates and upgrades nothing. Raises StoreUnavailable if the file is not a database.
    """
    if not os.path.exists(path):
        return 0
    try:
        # Not read-only: reading the log of a crashed process needs the right to clear it.
        connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=rw", uri=True, timeout=5.0)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    try:
        found = None
        if connection.execute(schema.FIND_META).fetchone() is not None:
            found = connection.execute(schema.GET_VERSION).fetchone()
        return 0 if found is None else int(found[0])
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    except ValueError:
        raise StoreUnavailable(f"{path}: schema version {found!r} is not a number") from None
    finally:
        connection.close()


def is_made(path: str) -> bool:
    """Whether the file has its tables and its write-ahead log already. Never waits for a lock."""
    try:
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=rw", uri=True, timeout=0)) as connection:
            return (
                connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
                and connection.execute(schema.FIND_META).fetchone() is not None
                and connection.execute(schema.GET_VERSION).fetchone() == (str(schema.KNOWN),)
            )
    except sqlite3.Error:
        return False


def settings(session: Session) -> list[Setting]:
    """Return the settings of the connections that decide what survives a power cut."""
    ((journal,),) = session.rows("select settings", "PRAGMA journal_mode")
    ((synchronous,),) = session.rows("select settings", "PRAGMA synchronous")
    is_wal, is_full = journal == "wal", synchronous >= _SYNCHRONOUS.index("full")
    return [
        Setting(
            name="journal_mode",
            value=str(journal),
            level="ok" if is_wal else "warn",
            hint=None if is_wal else f"{_RISK}: wal",
        ),
        Setting(
            name="synchronous",
            value=_SYNCHRONOUS[synchronous],
            level="ok" if is_full else "warn",
            hint=None if is_full else f"{_RISK}: full",
        ),
    ]
