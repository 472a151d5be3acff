"""How soon every node fires again after its store was away, with the timeouts that nodes have by default."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.fleet import Fleet, fleet, prepare, wait_until
from tests.faults.scene import SERVERS, Ground, Outcome, Scene, end

NODES = 5


def server_restarts(ground: Ground, faults: int) -> Outcome:
    """The server is killed, stays away for three seconds, and is started again."""
    server = ground.server
    assert server is not None

    def away() -> None:
        server.kill()
        time.sleep(3)
        server.start()  # returns when it answers

    return _recovery(ground, faults, away)


def file_is_locked(ground: Ground, faults: int) -> Outcome:
    """Another program holds the write lock of the file for longer than a node waits for it."""
    file = Path(ground.url.removeprefix("sqlite:///"))

    def away() -> None:
        connection = sqlite3.connect(file, isolation_level=None, timeout=30)
        connection.execute("begin immediate")
        time.sleep(8)
        connection.execute("rollback")
        connection.close()

    return _recovery(ground, faults, away)


def _recovery(ground: Ground, faults: int, away: Callable[[], None]) -> Outcome:
    prepare(ground.url, ground.schedules)
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(NODES):
            nodes.start("--fires", "--timeout", "5", "--lease", "30s")
        nodes.await_ready()
        for _ in range(faults):
            _all_fire(nodes, time.time())
            away()
            longest = max(longest, _all_fire(nodes, time.time()))
        return end(ground, nodes, faults, longest)


def _all_fire(nodes: Fleet, since: float) -> float:
    """Wait until every node has fired after ``since``; return how many seconds after it the last one did."""
    first: dict[int, float] = {}

    def have_fired() -> bool:
        for number in nodes.alive.keys() - first.keys():
            fires = (each["at"] for each in nodes.reports(number) if each["what"] == "fired")
            if (at := next((at for at in fires if at > since), None)) is not None:
                first[number] = at
        return len(first) == len(nodes.alive)

    wait_until(have_fired, lambda: f"{len(first)} of {len(nodes.alive)} nodes fire: {nodes.errors()}", 120)
    return max(first.values()) - since


_WHAT = f"{NODES} nodes with %s; recovery is until all of them fire again"

SCENES = (
    Scene(
        "recovery",
        file_is_locked,
        _WHAT % "half of the default timeout; the file locked for 8 s",
        0,
        3,
        ("sqlite",),
    ),
    Scene(
        "recovery",
        server_restarts,
        _WHAT % "the default timeouts; the server SIGKILLed, started after 3 s",
        1,
        5,
        SERVERS,
    ),
)
