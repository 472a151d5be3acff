"""What is done to nodes, networks, servers and clocks. Each ends with the account of every tick.

Real time, because real signals, sockets and leases are the subject.
"""

from __future__ import annotations

import importlib.util
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from evenbeat.model import Execution, Run
from tests.faults.fleet import Account, Fleet, check, drain, fleet, opened, prepare, wait_until
from tests.faults.node import TIMEOUT
from tests.faults.proxy import Mode, Proxy
from tests.servers import Server

SCHEDULES = 20
LEASE_MS = 1000


class Ground(NamedTuple):
    """Where it happens: a store of one's own, and its server if there is one that may be harmed."""

    url: str
    folder: Path
    server: Server | None = None

    def at(self, port: int) -> str:
        """The store's URL through a proxy."""
        assert self.server is not None
        return self.url.replace(f":{self.server.port}/", f":{port}/")


class Outcome(NamedTuple):
    account: Account
    faults: int
    recovery: float | None = None
    """The longest time, in seconds, from the end of a fault to the next completion (or takeover)."""


Scene: TypeAlias = Callable[[Ground, int], Outcome]
"""Given a ground and how often something is to go wrong."""


def kills(ground: Ground, faults: int) -> Outcome:
    """Five nodes, killed and frozen at random: every fourth is frozen past its lease, and thawed."""
    chance = random.Random(7)
    prepare(ground.url, SCHEDULES)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(5):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            time.sleep(chance.uniform(0.05, 0.5))
            victim = chance.choice(list(nodes.alive))
            if at % 4 == 3:
                nodes.signal(victim, signal.SIGSTOP)
                time.sleep(LEASE_MS / 1000 + 0.3)
                nodes.signal(victim, signal.SIGCONT)
            else:
                nodes.kill(victim)
                nodes.start()
        return _end(ground, nodes, faults)


def failpoints(ground: Ground, faults: int) -> Outcome:
    """A node dies before each command that the store sends, and after its commits: first and later ones."""
    prepare(ground.url, SCHEDULES)
    commands = _commands(ground)
    died = 0
    with fleet(ground.url, ground.folder) as nodes:
        nodes.start()
        for nth in range(2, 2 + faults):
            for command in commands:
                nodes.start("--failpoint", f"{command}:{nth}")
                wait_until(nodes.bury, f"{command} was not sent {nth} times")
                died += 1
        return _end(ground, nodes, died)


def _commands(ground: Ground) -> list[str]:
    """Every command that nodes send again and again while they work."""
    folder = ground.folder / "recorded"
    folder.mkdir()
    with fleet(ground.url, folder) as nodes:
        nodes.start("--record")
        nodes.start()
        nodes.await_ready()
        time.sleep(3)
        nodes.stop()
        seen = next(report["names"] for report in nodes.reports(1) if report["what"] == "commands")
    return sorted(name for name, times in seen.items() if times >= 10)


def network(ground: Ground, faults: int) -> Outcome:
    """Four nodes behind two proxies; one pair's network breaks in every way while the other one's works."""
    assert ground.server is not None
    chance = random.Random(11)
    prepare(ground.url, SCHEDULES)
    proxies = [Proxy(ground.server.port) for _ in range(2)]
    count, longest = 0, 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for at in range(4):
            nodes.start(url=ground.at(proxies[at % 2].port))
        nodes.await_ready()
        for _ in range(faults):
            for fault in FAULTS:
                _break(chance.choice(proxies), fault)
                count += 1
                longest = max(longest, _next_completion(nodes))
        for broken in proxies:  # both at once: nobody can work, and everybody comes back
            broken.become("blackhole")
        time.sleep(2 * TIMEOUT)
        for broken in proxies:
            broken.become("pass")
        longest = max(longest, _next_completion(nodes))
        outcome = _end(ground, nodes, count + 1, longest)
    for proxy in proxies:
        proxy.close()
    return outcome


FAULTS: tuple[Mode | None, ...] = (None, "refuse", "blackhole", "delay", "lose replies")
"""Of a network; None: connections are reset, and new ones may be made at once."""


def _break(proxy: Proxy, fault: Mode | None) -> None:
    if fault is None:
        for _ in range(5):
            proxy.reset()
            time.sleep(0.1)
        return
    proxy.delay = 1.5 * TIMEOUT
    proxy.become(fault)
    time.sleep(2 * TIMEOUT if fault in ("blackhole", "delay") else 0.7)
    proxy.become("pass")


def server_kills(ground: Ground, faults: int) -> Outcome:
    """The server dies in the middle of the work and is started again."""
    assert ground.server is not None
    prepare(ground.url, SCHEDULES)
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start()
        nodes.await_ready()
        for _ in range(faults):
            time.sleep(2)
            ground.server.kill()
            time.sleep(0.5)
            ground.server.start()
            longest = max(longest, _next_completion(nodes))
        return _end(ground, nodes, faults, longest)


def clocks(ground: Ground, faults: int) -> Outcome:
    """Nodes whose clocks are five minutes ahead and behind, and one whose clock jumps by an hour and back."""
    prepare(ground.url, SCHEDULES)
    jumping = ground.folder / "clock"
    jumping.write_text("+0s\n")
    fake = _faketime()
    with fleet(ground.url, ground.folder) as nodes:
        nodes.start()
        nodes.start(environment={**fake, "FAKETIME": "+300s"})
        nodes.start(environment={**fake, "FAKETIME": "-300s"})
        nodes.start(environment={**fake, "FAKETIME_TIMESTAMP_FILE": str(jumping)})
        nodes.await_ready()
        for _ in range(faults):
            for offset in ("+3600s", "-60s", "+0s"):
                time.sleep(1.5)
                jumping.write_text(f"{offset}\n")
        time.sleep(1.5)
        started = [report for report in nodes.reports() if report["what"] == "started"]
        # A node needs a moment to start.
        apart = sorted(report["clock"] - report["really"] for report in started)
        assert apart[0] < -250, f"the clocks were not faked: {apart}"
        assert apart[-1] > 250, f"the clocks were not faked: {apart}"
        return _end(ground, nodes, 2 + 3 * faults)


def _faketime() -> dict[str, str]:
    found = importlib.util.find_spec("libfaketime")
    assert found is not None
    assert found.submodule_search_locations
    library = Path(found.submodule_search_locations[0]) / "vendor/libfaketime/src/libfaketime.so.1"
    assert library.exists()
    return {
        "LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip


def takeovers(ground: Ground, faults: int) -> Outcome:
    """A worker dies with a run in hand: how long until another one has it."""
    longest = 0.0
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(2):
            nodes.start()
        nodes.await_ready()
        with opened(ground.url) as store:
            for at in range(faults):
                run = Run(id=f"hold-{at}", task="hold", execution=Execution(crashes=9), run_at=store.now())
                store.add_runs([run])
                store.hint()
                (holder, _) = _held(nodes, run.id, 1)
                died = time.time()
                nodes.kill(holder)
                (_, again) = _held(nodes, run.id, 2)
                longest = max(longest, again - died)
                nodes.start()
                nodes.await_ready()
        return _end(ground, nodes, faults, longest)


def _held(nodes: Fleet, run: str, attempt: int) -> tuple[int, float]:
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


def _next_completion(nodes: Fleet) -> float:
    """Seconds until a node says that a run was completed, from now on."""
    start = time.monotonic()

    def done() -> int:
        return sum(1 for report in nodes.reports() if report["what"] == "done accepted")

    before = done()
    wait_until(lambda: done() > before, f"nothing was completed any more: {nodes.errors()}")
    return time.monotonic() - start


def _end(ground: Ground, nodes: Fleet, faults: int, recovery: float | None = None) -> Outcome:
    drain(ground.url)
    nodes.stop()
    return Outcome(check(ground.url, nodes.reports()), faults, recovery)


def is_caught(ground: Ground, kind: str) -> str | None:
    """Whether a broken store shows: what the account said, or None if it held."""
    return _is_late_result_caught(ground) if kind == "unfenced" else _is_unchecked_caught(ground)


def _is_late_result_caught(ground: Ground) -> str | None:
    """A worker is frozen in the middle of a run until another one has completed it, and thawed then."""
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(2):
            nodes.start("--broken", "unfenced")
        nodes.await_ready()
        with opened(ground.url) as store:
            store.add_runs([Run(id="nap", task="nap", execution=Execution(crashes=9), run_at=store.now())])
            store.hint()
            frozen, _ = _held(nodes, "nap", 1)
            nodes.signal(frozen, signal.SIGSTOP)
            _held(nodes, "nap", 2)
            wait_until(lambda: _completions(nodes) == 1, "nobody completed the run instead")
            nodes.signal(frozen, signal.SIGCONT)
            wait_until(lambda: _completions(nodes) == 2, "the late result was refused")
        nodes.stop()
        try:
            check(ground.url, nodes.reports())
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None


def _completions(nodes: Fleet) -> int:
    return sum(1 for report in nodes.reports() if report["what"] == "done accepted")


def _is_unchecked_caught(ground: Ground) -> str | None:
    chance = random.Random(3)
    prepare(ground.url, SCHEDULES)
    with fleet(ground.url, ground.folder) as nodes:
        for _ in range(4):
            nodes.start("--broken", "unchecked")
        nodes.await_ready()
        for _ in range(4):
            time.sleep(0.5)
            victim = chance.choice(list(nodes.alive))
            nodes.signal(victim, signal.SIGSTOP)
            time.sleep(LEASE_MS / 1000 + 0.7)
            nodes.signal(victim, signal.SIGCONT)
        time.sleep(0.5)
        try:
            _end(ground, nodes, 4)
        except AssertionError as error:
            return str(error).splitlines()[0]
    return None
