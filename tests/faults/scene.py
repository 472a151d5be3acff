"""A scene: what is done to a fleet, on which stores, how often; and what scenes share.

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

SERVERS = tuple(servers.KINDS)
STORES = ("sqlite", *SERVERS)
SCHEDULES = 20
LEASE_MS = 1000


class Ground(NamedTuple):
    """Where it happens: a store of one's own, and its server if there is one that may be harmed."""

    url: str
    folder: Path
    server: servers.Server | None = None

    def at(self, port: int) -> str:
        """The store's URL through a proxy."""
        assert self.server is not None
        return self.url.replace(f":{self.server.port}/", f":{port}/")


class Outcome(NamedTuple):
    """What a scene found; a promise that was broken is an AssertionError instead."""

    account: Account
    faults: int
    recovery: float | None = None
    """The longest time, in seconds, from the end of a fault to the next completion (or takeover)."""
    result: str = "0 lost, 0 doubled"


class Scene(NamedTuple):
    """A row of the table of faults for each of its stores."""

    name: str
    play: Callable[[Ground, int], Outcome]
    """Given a ground and how often something is to go wrong, or for how many seconds it is to go on."""
    what: str
    """What is done, in a line."""
    quick: int
    """How often, or for how many seconds, in the tests; 0: in ``make faults`` alone."""
    full: int
    """How often, or for how many seconds, in ``make faults``."""
    stores: tuple[str, ...] = STORES
    ground: Callable[[str, Path], AbstractContextManager[Ground]] | None = None
    """A ground of its own for a store and a folder, where an ordinary server will not do: a standby, three
    members, a small disk. ``servers.Unavailable`` if it can't be had here."""


class Mutant(NamedTuple):
    """A store or node that is broken on purpose: a scene must notice."""

    name: str
    play: Callable[[Ground], str | None]
    """Answers what was noticed, or None if nothing was."""
    says: str
    """A part of what must be noticed."""
    stores: tuple[str, ...] = STORES
    quick: tuple[str, ...] = STORES
    """The stores that the quick form looks at."""
    ground: Callable[[str, Path], AbstractContextManager[Ground]] | None = None


def end(ground: Ground, nodes: Fleet, faults: int, recovery: float | None = None) -> Outcome:
    """Let the fleet finish what is due, and account for every tick."""
    drain(ground.url)
    nodes.stop()
    return Outcome(check(ground.url, nodes.reports()), faults, recovery)


def caught(act: Callable[[], object]) -> str | None:
    """The first line of what an act was found to break; None if it held."""
    try:
        act()
    except AssertionError as error:
        return str(error).splitlines()[0]
    return None


def completions(nodes: Fleet) -> int:
    return sum(1 for report in nodes.reports() if report["what"] == "done accepted")


def next_completion(nodes: Fleet) -> float:
    """Seconds until a node says that a run was completed, from now on."""
    start = time.monotonic()
    before = completions(nodes)
    wait_until(lambda: completions(nodes) > before, f"nothing was completed any more: {nodes.errors()}")
    return time.monotonic() - start


def held(nodes: Fleet, run: str, attempt: int) -> tuple[int, float]:
    """Which node holds the run, and since when."""
    found: list[tuple[int, float]] = []

    def look() -> bool:
        for number in nodes.alive:
            for report in nodes.reports(number):
                if report["what"] == "held" and (report["run"], report["attempt"]) == (run, attempt):
                    found.append((number, report["at"]))
        return bool(found)

    wait_until(look, f"nobody took {run} for the {attempt}. time")
    return found[0]


def assert_no_overlap(reports: Sequence[dict[str, Any]], most: Mapping[str, int]) -> None:
    """By what the nodes say, no more runs of a schedule than this were ever executed at the same time."""
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
    """The environment of a process whose clock is FAKETIME's, or what FAKETIME_TIMESTAMP_FILE says."""
    found = importlib.util.find_spec("libfaketime")
    assert found is not None
    assert found.submodule_search_locations
    library = Path(found.submodule_search_locations[0]) / "vendor/libfaketime/src/libfaketime.so.1"
    assert library.exists()
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
