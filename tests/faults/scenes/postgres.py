"""PostgreSQL that fails over to a standby, and nodes that reach it through a PgBouncer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.fleet import Fleet, check, drain, fleet, prepare
from tests.faults.scene import Ground, Outcome, Scene, end, next_completion
from tests.isolation import own_place
from tests.postgres_servers import Pair, PgBouncer
from tests.servers import Postgres, Server

BEHIND = 0.3
"""Seconds that a standby lags when it takes over."""


@contextmanager
def _running(server: Server) -> Iterator[None]:
    try:
        server.start()
        yield
    finally:
        server.stop()


@contextmanager
def synchronous(_store: str, folder: Path) -> Iterator[Ground]:
    pair = Pair(is_synchronous=True)
    with _running(pair), own_place(pair.url) as url:
        yield Ground(url, folder, pair)


@contextmanager
def asynchronous(_store: str, folder: Path) -> Iterator[Ground]:
    pair = Pair(is_synchronous=False)
    with _running(pair), own_place(pair.url) as url:
        yield Ground(url, folder, pair)


class Behind(PgBouncer):
    """A pooler in front of a server; the scene kills both."""

    def __init__(self, server: Postgres) -> None:
        super().__init__(server, "transaction")
        self.server = server


@contextmanager
def pooled(_store: str, folder: Path) -> Iterator[Ground]:
    server = Postgres()
    with _running(server):
        pooler = Behind(server)
        with _running(pooler), own_place(server.url) as url:
            yield Ground(url.replace(f":{server.port}/", f":{pooler.port}/"), folder, pooler)


def fail_over(ground: Ground, faults: int) -> Outcome:
    """Every commit that was answered is there afterwards."""
    with fleet(ground.url, ground.folder) as nodes:
        longest = _replace_primaries(ground, nodes, faults)
        return end(ground, nodes, faults, longest)


def fail_over_behind(ground: Ground, faults: int) -> Outcome:
    """What is left is in order; what was undone, and had been answered, happens again."""
    with fleet(ground.url, ground.folder) as nodes:
        longest = _replace_primaries(ground, nodes, faults)
        drain(ground.url)
        nodes.stop()
        reports = nodes.reports()
    done = Counter(report["run"] for report in reports if report["what"] == "done accepted")
    again = sum(times - 1 for times in done.values())
    account = check(ground.url, [])._replace(completions=len(done))
    result = f"0 lost, 0 doubled in what was left; {again} completions undone and done again"
    return Outcome(account, faults, longest, result)


def _replace_primaries(ground: Ground, nodes: Fleet, times: int) -> float:
    """Four nodes with both hosts in their URL; answers the longest time until they went on."""
    assert isinstance(ground.server, Pair)
    prepare(ground.url, ground.schedules)
    longest = 0.0
    for _ in range(4):
        nodes.start()
    nodes.await_ready()
    for _ in range(times):
        time.sleep(1)
        ground.server.fail_over(BEHIND)
        longest = max(longest, next_completion(nodes))
    return longest


def pooler_kills(ground: Ground, faults: int) -> Outcome:
    """Four nodes behind a pooler, which dies and comes back; then the server behind it does."""
    assert isinstance(ground.server, Behind)
    prepare(ground.url, ground.schedules)
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            time.sleep(1)
            victim: Server = ground.server.server if at % 2 else ground.server
            victim.kill()
            time.sleep(0.3)
            victim.start()
            longest = max(longest, next_completion(nodes))
        return end(ground, nodes, faults, longest)


ONLY = ("postgres",)

SCENES = (
    Scene(
        "failover",
        fail_over,
        "4 nodes; the primary SIGKILLed, its synchronous standby promoted",
        1,
        3,
        ONLY,
        synchronous,
    ),
    Scene(
        "failover, async",
        fail_over_behind,
        f"4 nodes; the primary SIGKILLed, a standby that is {BEHIND:g} s behind promoted",
        1,
        3,
        ONLY,
        asynchronous,
    ),
    Scene(
        "PgBouncer",
        pooler_kills,
        "4 nodes; a PgBouncer by transaction and its server SIGKILLed in turn",
        2,
        6,
        ONLY,
        pooled,
    ),
)
