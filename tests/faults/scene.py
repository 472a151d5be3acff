"""A scene: the faults of a fleet, on which stores and how often; and helpers of all scenes.

A module in ``tests/faults/scenes`` has ``SCENES`` and, where it breaks a store on purpose, ``MUTANTS``. Both
are found by themselves: the quick form (``test_stores.py``) and the full one (``python -m tests.faults``)
read the same table.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from tests import servers
from tests.faults.fleet import Account, Fleet, check, drain, wait_until
from tests.server_binaries import reachable

SERVERS = tuple(servers.KINDS)
STORES = ("sqlite", *SERVERS)
SCHEDULES = 20
LEASE_MS = 1000


class Ground(NamedTuple):
    """The store of a scene, and its server if there is one that the scene may kill."""

    url: str
    folder: Path
    server: servers.Server | None = None
    schedules: int = SCHEDULES

    def at(self, port: int) -> str:
        """Return the URL of the store through a proxy."""
        assert self.server is not None
        return self.url.replace(f":{self.server.port}/", f":{port}/")


class Outcome(NamedTuple):
    """The result of a scene. A broken promise raises AssertionError instead."""

    account: Account
    faults: int
    recovery: float | None = None
    """The longest time, in seconds, from the end of a fault to the next completion (or takeover)."""
    result: str = "0 lost, 0 doubled"


class Scene(NamedTuple):
    """A row of the table of faults for each of its stores."""

    name: str
    play: Callable[[Ground, int], Outcome]
    """Called with a ground and the number of faults, or of seconds."""
    what: str
    """A description in one line."""
    quick: int
    """The number of faults, or of seconds, in the tests; 0: only in ``make faults``."""
    full: int
    """The number of faults, or of seconds, in ``make faults``."""
    stores: tuple[str, ...] = STORES
    ground: Callable[[str, Path], AbstractContextManager[Ground]] | None = None
    """A ground of its own for a store and a folder, where an ordinary server will not do: a standby, three
    members, a small disk. ``Unavailable`` if it can't be had here."""


class Mutant(NamedTuple):
    """A store or node that is broken on purpose: the scene must find it."""

    name: str
    play: Callable[[Ground], str | None]
    """Returns the finding, or None if there was none."""
    says: str
    """A pattern that the finding matches."""
    stores: tuple[str, ...] = STORES
    quick: tuple[str, ...] = STORES
    """The stores of the quick form."""
    ground: Callable[[str, Path], AbstractContextManager[Ground]] | None = None


def end(ground: Ground, nodes: Fleet, faults: int, recovery: float | None = None) -> Outcome:
    """Let the fleet finish its runs, and account for every tick."""
    drain(ground.url)
    nodes.stop()
    return Outcome(check(ground.url, nodes.reports()), faults, recovery)


def caught(act: Callable[[], object]) -> str | None:
    """Return the first line of the promise that an act broke; None if it kept all."""
    try:
        act()
    except AssertionError as error:
        return str(error).splitlines()[0]
    return None


def completions(nodes: Fleet) -> int:
    return sum(1 for report in nodes.reports() if report["what"] == "done accepted")


def next_completion(nodes: Fleet) -> float:
    """Return the seconds from now until a node reports a completion."""
    start = time.monotonic()
    before = completions(nodes)
    wait_until(lambda: completions(nodes) > before, f"nothing was completed any more: {nodes.errors()}")
    return time.monotonic() - start


def held(nodes: Fleet, run: str, attempt: int) -> tuple[int, float]:
    """Return the node that holds the run, and since when."""
    found: list[tuple[int, float]] = []

    def is_done() -> bool:
        for number in nodes.alive:
            for report in nodes.reports(number):
                if report["what"] == "held" and (report["run"], report["attempt"]) == (run, attempt):
                    found.append((number, report["at"]))
        return bool(found)

    wait_until(is_done, f"no node took {run} for the {attempt}. time")
    return found[0]


def assert_no_overlap(reports: Sequence[dict[str, Any]], most: Mapping[str, int]) -> None:
    """Check, by the reports of the nodes, that at most so many runs of a schedule executed at the same
    time."""
    moments: dict[str, list[tuple[float, int, str]]] = {}
    for report in reports:
        if report["what"] == "spent" and report["schedule"] in most:
            # Sorted, an end comes before a beginning of the same instant.
            span = [(report["began"], 1, report["run"]), (report["ended"], -1, report["run"])]
            moments.setdefault(report["schedule"], []).extend(span)
    for name, changes in moments.items():
        present: set[str] = set()
        for _, change, run in sorted(changes):
            present = present | {run} if change > 0 else present - {run}
            assert len(present) <= most[name], f"{len(present)} runs of {name} overlapped: {sorted(present)}"


def faketime() -> dict[str, str]:
    """Return the environment of a process with the clock of FAKETIME, or of FAKETIME_TIMESTAMP_FILE."""
    found = importlib.util.find_spec("libfaketime")
    assert found is not None
    assert found.submodule_search_locations
    folder = reachable(Path(found.submodule_search_locations[0]) / "vendor/libfaketime/src")
    library = folder / "libfaketime.so.1"
    assert library.exists()
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
