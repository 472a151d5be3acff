"""What can be told of a file without opening the store, which would make or upgrade its tables."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from evenbeat.errors import StoreUnavailable
from evenbeat.stores.sqlite import schema
from evenbeat.stores.sqlite.commands import unavailable


class Facts(NamedTuple):
    schema: int
    """The version of its tables; 0: there are none."""
    journal: str
    """``wal`` where a store has opened the file."""
    size: int
    """Bytes, with those of the log that are not in the file yet."""


def facts(path: str) -> Facts | None:
    """The facts of the file; None if there is none. StoreUnavailable if it is no database."""
    if not os.path.exists(path):
        return None
    try:
        # Not read-only: a log that a crashed process left can be read only by who may also clear it.
        connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=rw", uri=True, timeout=5.0)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    try:
        journal = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
        found = None
        if connection.execute(schema.FIND_META).fetchone() is not None:
            found = connection.execute(schema.GET_VERSION).fetchone()
        version = 0 if found is None else int(found[0])
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    except ValueError:
        raise StoreUnavailable(f"{path}: schema version {found!r} is not a number") from None
    finally:
        connection.close()
    log = f"{path}-wal"
    return Facts(
        version, journal, os.path.getsize(path) + (os.path.getsize(log) if os.path.exists(log) else 0)
    )
