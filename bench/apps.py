"""The app that the suites run: tasks on a store, as a user would write them.

``python -m bench.apps KIND STORE STARTS`` runs a node with the default settings until SIGTERM. Then it
writes the times that the ``stamp`` task recorded to the file STARTS.
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
from evenbeat import RunContext, Scheduler

Kind: TypeAlias = Literal["def", "async def", "stamp", "both", "behind", "flood"]
"""Which tasks there are: a no-op of one kind or the other, ``stamp``, a no-op of each kind, ``stamp`` and
``limited``, which keeps its slot, or ``stamp`` and a no-op."""

STARTS: list[tuple[float, float]] = []
"""(due, began) of each call of ``stamp`` in this process, in seconds since 1970. Kept in memory: writing
a file in each call would be measured along."""


def make(kind: Kind, store: Path | str) -> Scheduler:
    """Make the app. ``store`` is an SQLite file, or the URL of a store."""
    app = Scheduler(store if isinstance(store, str) else f"sqlite:///{store}")
    if kind in ("def", "both", "flood"):
        app.task(name="noop")(_noop)
    if kind in ("async def", "both"):
        app.task(name="noop" if kind == "async def" else "async-noop")(_async_noop)
    if kind in ("stamp", "behind", "flood"):
        app.task(name="stamp")(stamp)
    if kind == "behind":
        app.task(name="limited")(_keep_slot)
    return app


def _noop() -> None:
    pass


async def _async_noop() -> None:
    pass


def _keep_slot(run: RunContext) -> None:
    while not run.cancel_requested:
        time.sleep(0.05)


def stamp(due: float) -> None:
    STARTS.append((due, time.time()))


@contextmanager
def node(kind: Kind, store: Path | str, noted: Path | None = None) -> Iterator[int]:
    """Start a node, ticker and worker, in its own process; yield its pid.

    The node writes its times to ``noted``, by default a file beside the SQLite file.
    """
    url = store if isinstance(store, str) else f"sqlite:///{store}"
    noted = noted or Path(store).with_suffix(".starts")
    with process("-m", "bench.apps", kind, url, str(noted)) as child:
        yield child.pid


def starts(database: Path) -> list[tuple[float, float]]:
    """Return the times that ``stamp`` recorded in a node that has ended."""
    return read_starts(database.with_suffix(".starts"))


def read_starts(path: Path) -> list[tuple[float, float]]:
    return msgspec.json.decode(path.read_bytes(), type=list[tuple[float, float]])


def write_starts(path: Path) -> None:
    path.write_bytes(msgspec.json.encode(STARTS))


if __name__ == "__main__":
    # Imported by its name: this module is __main__ here, and has another list.
    from bench import apps

    chosen, url, file = sys.argv[1:]
    program = apps.make(msgspec.convert(chosen, Kind), url)
    program.run()
    apps.write_starts(Path(file))
