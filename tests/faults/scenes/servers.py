"""Servers that die, networks that fail, and nodes whose clocks are wrong."""

from __future__ import annotations

import random
import time

from tests.faults.fleet import fleet, prepare
from tests.faults.node import TIMEOUT
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import SERVERS, Ground, Outcome, Scene, end, faketime, next_completion


def network(ground: Ground, faults: int) -> Outcome:
    """Four nodes behind two proxies; one pair's network breaks in every way while the other one's works."""
    assert ground.server is not None
    chance = random.Random(11)
    prepare(ground.url, ground.schedules)
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
                longest = max(longest, next_completion(nodes))
        for broken in proxies:  # both at once: no node can work, and all of them recover
            broken.become("blackhole")
        time.sleep(2 * TIMEOUT)
        for broken in proxies:
            broken.become("pass")
        longest = max(longest, next_completion(nodes))
        outcome = end(ground, nodes, count + 1, longest)
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
    prepare(ground.url, ground.schedules)
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
            longest = max(longest, next_completion(nodes))
        return end(ground, nodes, faults, longest)


def clocks(ground: Ground, faults: int) -> Outcome:
    """Nodes whose clocks are five minutes ahead and behind, and one whose clock jumps by an hour and back."""
    prepare(ground.url, ground.schedules)
    jumping = ground.folder / "clock"
    jumping.write_text("+0s\n")
    fake = faketime()
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
        return end(ground, nodes, 2 + 3 * faults)


SCENES = (
    Scene("network", network, "4 nodes; reset, refuse, black hole, delay, replies lost", 1, 4, SERVERS),
    Scene("server", server_kills, "4 nodes; the server SIGKILLed and started again", 1, 3, SERVERS),
    Scene(
        "clocks", clocks, "4 nodes; clocks 5 min ahead and behind, one jumps by 1 h and back", 1, 4, SERVERS
    ),
)
