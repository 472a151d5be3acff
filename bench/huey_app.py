"""huey on an SQLite file or on a Redis or Valkey server, and its consumer.

The peer that executes tasks on both. ``fsync=True`` is ``synchronous=FULL``, as Evenbeat has it. huey by
default keeps SQLite's own setting, which is also FULL unless SQLite was built otherwise (``durability``
returns it). Its wait for SQLite's lock is longer than its default of 5 s, with which it lost the result of a
task on a busy machine.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huey import RedisHuey, SqliteHuey

from bench import apps
from bench.processes import process

LOCK_TIMEOUT = 60

_PLACE, _KEEP, _STARTS = "BENCH_HUEY_PLACE", "BENCH_HUEY_KEEP", "BENCH_HUEY_STARTS"


def noop() -> None:
    apps.STARTS.append((0.0, 0.0))


def make(place: Path | str, keep: bool = False) -> Any:
    """Make a queue on an SQLite file, or on a server by its URL.

    ``keep`` stores None results, too, so that each success leaves a record.
    """
    if isinstance(place, str):
        made = RedisHuey("bench", url=place, store_none=keep)
    else:
        made = SqliteHuey("bench", filename=str(place), fsync=True, timeout=LOCK_TIMEOUT, store_none=keep)
    made.noop = made.task()(noop)
    made.stamp = made.task()(apps.stamp)
    return made


@contextmanager
def consumer(place: Path | str, keep: bool = False, noted: Path | None = None) -> Iterator[None]:
    """Start its consumer in its own process: four threads, and defaults for the rest."""
    noted = noted or Path(place).with_suffix(".starts")
    environment = {_PLACE: str(place), _KEEP: "1" if keep else "", _STARTS: str(noted)}
    options = ("-w", "4", "-k", "thread", "-q", "-g", "TERM")
    with process("-m", "huey.bin.huey_consumer", "bench.huey_app.huey", *options, environment=environment):
        yield


def durability(database: Path) -> tuple[int, int]:
    """Return SQLite's ``synchronous``, as measured here and by huey's default: 2 is FULL."""
    found = []
    for options in ({"fsync": True}, {}):
        storage = SqliteHuey("bench", filename=str(database), **options).storage
        found.append(storage.sql("PRAGMA synchronous", results=True)[0][0])
        storage.close()
    return found[0], found[1]


if _PLACE in os.environ:
    asked = os.environ[_PLACE]
    huey = make(asked if "://" in asked else Path(asked), bool(os.environ[_KEEP]))
    atexit.register(apps.write_starts, Path(os.environ[_STARTS]))
