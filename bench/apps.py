"""The program whose nodes the suites start: tasks on a store, as a user would write it.

``python -m bench.apps KIND STORE STARTS`` runs a node with the default settings until SIGTERM, and then
writes what the ``stamp`` task has noted to the file STARTS.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from bench.processes import process
from evenbeat import Scheduler

Kind: TypeAlias = Literal["def", "async def", "stamp", "both"]
"""Which tasks there are: a no-op of one kind or the other, ``stamp``, or a no-op of each kind."""

STARTS: list[tuple[float, float]] = []
"""(due, began) of each call of ``stamp`` in this process, in seconds since 1970. Kept in memory: writing
a file in each call would be measured along."""


def make(kind: Kind, store: Path | str) -> Scheduler:
    """``store`` is an SQLite file, or the URL of a store."""
    app = Scheduler(store if isinstance(store, str) else f"sqlite:///{store}")
    if kind in ("def", "both"):
        app.task(name="noop")(_noop)
    if kind in ("async def", "both"):
        app.task(name="noop" if kind == "async def" else "async-noop")(_async_noop)
    if kind == "stamp":
        app.task(name="stamp")(stamp)
    return app


def _noop() -> None:
    pass


async def _async_noop() -> None:
    pass


def stamp(due: float) -> None:
    STARTS.append((due, time.time()))


@contextmanager
def node(kind: Kind, store: Path | str, noted: Path | None = None) -> Iterator[int]:
    """A node as a process of its own, ticker and worker; its pid. What it notes goes to a file, which stands
    beside the SQLite file unless it is named."""
    url = store if isinstance(store, str) else f"sqlite:///{store}"
    noted = noted or Path(store).with_suffix(".starts")
    with process("-m", "bench.apps", kind, url, str(noted)) as child:
        yield child.pid


def starts(database: Path) -> list[tuple[float, float]]:
    """What ``stamp`` noted in a node that has ended."""
    return read_starts(database.with_suffix(".starts"))


def read_starts(path: Path) -> list[tuple[float, float]]:
    return msgspec.json.decode(path.read_bytes(), type=list[tuple[float, float]])


def write_starts(path: Path) -> None:
    path.write_bytes(msgspec.json.encode(STARTS))


if __name__ == "__main__":
    # By its importable name: this module is __main__ here, and its list would be another one.
    from bench import apps

    chosen, url, file = sys.argv[1:]
    program = apps.make(msgspec.convert(chosen, Kind), url)
    program.run()
    apps.write_starts(Path(file))
