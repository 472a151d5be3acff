"""huey on an SQLite file, and its consumer: the peer that executes.

``fsync=True`` is ``synchronous=FULL``, as Evenbeat has it. huey's default leaves SQLite's own, which is
FULL as well unless SQLite was built otherwise (``durability`` says what it is). Its wait for SQLite's lock
is longer than its default of 5 s, after which it lost the result of a task on a busy machine.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey import SqliteHuey

from bench import apps
from bench.processes import process

LOCK_TIMEOUT = 60

_FILE, _KEEP, _STARTS = "BENCH_HUEY_FILE", "BENCH_HUEY_KEEP", "BENCH_HUEY_STARTS"


def noop() -> None:
    apps.STARTS.append((0.0, 0.0))


def make(database: Path, keep: bool = False) -> Any:
    """A queue. ``keep``: also the results None are kept, so that there is a record of each success."""
    made = SqliteHuey("bench", filename=str(database), fsync=True, timeout=LOCK_TIMEOUT, store_none=keep)
    made.noop = made.task()(noop)
    made.stamp = made.task()(apps.stamp)
    return made


@contextmanager
def consumer(database: Path, keep: bool = False) -> Iterator[None]:
    """Its consumer as a process of its own: four threads, the rest as it is by default."""
    environment = {
        _FILE: str(database), _KEEP: "1" if keep else "", _STARTS: str(database.with_suffix(".starts"))
    }  # fmt: skip
    options = ("-w", "4", "-k", "thread", "-q", "-g", "TERM")
    with process("-m", "huey.bin.huey_consumer", "bench.huey_app.huey", *options, environment=environment):
        yield


def durability(database: Path) -> tuple[int, int]:
    """SQLite's ``synchronous`` as measured here and as huey has it by default: 2 is FULL."""
    found = []
    for options in ({"fsync": True}, {}):
        storage = SqliteHuey("bench", filename=str(database), **options).storage
        found.append(storage.sql("PRAGMA synchronous", results=True)[0][0])
        storage.close()
    return found[0], found[1]


if _FILE in os.environ:
    huey = make(Path(os.environ[_FILE]), bool(os.environ[_KEEP]))
    atexit.register(apps.write_starts, Path(os.environ[_STARTS]))
