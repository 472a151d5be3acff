"""Another Valkey server takes over: behind one address, by sentinels, and in a cluster.

Replication is asynchronous, and a failover may lose what was acknowledged. In all scenes but one nothing is:
before a primary is killed it stops answering, and its replica catches up. So every tick has to be accounted
for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from tests import servers
from tests.faults.fleet import Fleet, check, drain, fleet, prepare, wait_until
from tests.faults.proxy import Proxy
from tests.faults.scene import Ground, Outcome, Scene, end, next_completion

SERVICE = "jobs"
# Long enough for any test, and never reached: a paused server is killed or replaced.
_PAUSE_MS = 60_000
# A primary waits for 5 s for more replicas before it sends its data to the first.
QUICK = {"repl-diskless-sync-delay": "0"}


@contextmanager
def client(server: servers.Server) -> Iterator[Any]:
    with redis.Redis(
        port=server.port, decode_responses=True, socket_timeout=20, retry=Retry(NoBackoff(), 0)
    ) as made:
        yield made


def replication(server: servers.Server) -> dict[str, Any]:
    # A server that changes its role may end connections.
    with redis.Redis(port=server.port, socket_timeout=20, retry=Retry(NoBackoff(), 3)) as asked:
        found: dict[str, Any] = asked.info("replication")
        return found


def start(stack: ExitStack, server: servers.Server) -> None:
    stack.callback(server.stop)
    server.start()


def follow(replica: servers.Server, primary: servers.Server) -> None:
    """Have a server be a replica, and wait until it has everything."""
    with client(replica) as asked:
        asked.execute_command("REPLICAOF", "127.0.0.1", primary.port)
    wait_until(lambda: replication(replica)["master_link_status"] == "up", "the replica did not follow")


def hand_over(primary: servers.Server, replica: servers.Server) -> None:
    """Make a replica the primary and the primary its replica, without a loss."""
    with client(primary) as asked:
        asked.execute_command("FAILOVER", "TO", "127.0.0.1", replica.port, "TIMEOUT", 30_000)
    wait_until(lambda: replication(replica)["role"] == "master", "the replica did not take over")
    wait_until(lambda: replication(primary)["role"] == "slave", "the primary did not step down")


def kill_without_loss(primary: servers.Server, replica: servers.Server) -> None:
    """Kill a primary whose replica has all that was acknowledged."""
    with client(primary) as asked:
        asked.execute_command("CLIENT", "PAUSE", _PAUSE_MS, "WRITE")
        offset = asked.info("replication")["master_repl_offset"]
    wait_until(lambda: replication(replica)["slave_repl_offset"] >= offset, "the replica did not catch up")
    primary.kill()


class Pair:
    """Two servers, one of which follows the other, behind one address."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary: servers.Server = servers.Valkey(QUICK)
        self.replica: servers.Server = servers.Valkey(QUICK)
        for server in (self.primary, self.replica):
            start(stack, server)
        follow(self.replica, self.primary)
        self.proxy = Proxy(self.primary.port)
        stack.callback(self.proxy.close)

    @property
    def url(self) -> str:
        return self.primary.url_at(self.proxy.port)

    def swap(self) -> None:
        """The old primary is alive and refuses writes; its clients stay connected to it."""
        self._revive()
        hand_over(self.primary, self.replica)
        self._switch()

    def kill(self) -> None:
        """The old primary dies. It comes back as a replica, when one is needed."""
        self._revive()
        kill_without_loss(self.primary, self.replica)
        with client(self.replica) as asked:
            asked.execute_command("REPLICAOF", "NO", "ONE")
        self._switch()

    def kill_with_loss(self) -> None:
        """The same, but half a second of what the primary has answered never reaches the replica."""
        self._revive()
        with client(self.replica) as asked:
            asked.execute_command("REPLICAOF", "NO", "ONE")
        time.sleep(0.5)
        self.primary.kill()
        self._switch()

    def _revive(self) -> None:
        if not self.replica.is_alive:
            self.replica.start()
        follow(self.replica, self.primary)

    def _switch(self) -> None:
        self.primary, self.replica = self.replica, self.primary
        self.proxy.lead_to(self.primary.port)


def behind_one_address(ground: Ground, faults: int) -> Outcome:
    """The server behind an address changes: every other time the old one is alive, else it is killed."""
    with ExitStack() as stack:
        pair = Pair(stack)
        acts = [pair.swap, pair.kill]
        return _played(ground._replace(url=pair.url), [acts[at % 2] for at in range(faults)])


def with_loss(ground: Ground, faults: int) -> Outcome:
    """What is left is in order; what was lost, and had been answered, happens again."""
    with ExitStack() as stack:
        pair = Pair(stack)
        place = ground._replace(url=pair.url)
        with fleet(place.url, place.folder) as nodes:
            longest = _fail_over(place, nodes, [pair.kill_with_loss] * faults)
            drain(place.url)
            nodes.stop()
            reports = nodes.reports()
        done = Counter(report["run"] for report in reports if report["what"] == "done accepted")
        again = sum(times - 1 for times in done.values())
        account = check(place.url, [])._replace(completions=len(done))
    result = f"0 lost, 0 doubled in what was left; {again} completions undone and done again"
    return Outcome(account, faults, longest, result)


def by_sentinels(ground: Ground, faults: int) -> Outcome:
    with ExitStack() as stack:
        pair = Pair(stack)
        sentinels = [servers.Sentinel(SERVICE, pair.primary.port, 2) for _ in range(3)]
        for sentinel in sentinels:
            start(stack, sentinel)
        for sentinel in sentinels:
            wait_until(lambda sentinel=sentinel: _is_ready(sentinel), "the sentinels did not find each other")  # type: ignore[misc]  # a default binds it

        def kill() -> None:
            old, new = pair.primary, pair.replica
            if not new.is_alive:
                new.start()
                # It comes back as a primary, and the sentinels make a replica of it.
                wait_until(lambda: replication(new).get("master_link_status") == "up", "it was not demoted")
                for sentinel in sentinels:
                    wait_until(lambda sentinel=sentinel: _is_ready(sentinel), "the sentinels disagree")  # type: ignore[misc]  # a default binds it
            kill_without_loss(old, new)
            # It must not come back before all sentinels know: one that does not know yet would name it.
            for sentinel in sentinels:
                wait_until(lambda sentinel=sentinel: _names(sentinel, new), "the sentinels did not act")  # type: ignore[misc]  # a default binds it
            pair.primary, pair.replica = new, old

        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels)
        url = f"redis+sentinel://{places}/{SERVICE}"
        return _played(ground._replace(url=url), [kill] * faults)


def _is_ready(sentinel: servers.Server) -> bool:
    with client(sentinel) as asked:
        known = asked.sentinel_masters()[SERVICE]
        return bool(known["num-other-sentinels"] == 2 and known["num-slaves"] == 1)


def _names(sentinel: servers.Server, primary: servers.Server) -> bool:
    with client(sentinel) as asked:
        return bool(asked.sentinel_get_master_addr_by_name(SERVICE) == ("127.0.0.1", primary.port))


class Cluster:
    """Three nodes with the slots in thirds, and a replica of the one that has our keys."""

    def __init__(self, stack: ExitStack, prefix: str = "evenbeat") -> None:
        self.slot = key_slot(f"{{{prefix}}}:meta".encode())
        settings = QUICK | {
            "cluster-enabled": "yes",
            "cluster-node-timeout": "2000",
            "cluster-replica-validity-factor": "0",
        }
        self.nodes = [
            servers.Valkey({**settings, "cluster-port": str(servers.free_port())}) for _ in range(4)
        ]
        for node in self.nodes:
            start(stack, node)
        for at, node in enumerate(self.nodes[:3]):
            with client(node) as asked:
                last = 16383 if at == 2 else 5461 * (at + 1) - 1
                asked.execute_command("CLUSTER", "ADDSLOTSRANGE", 5461 * at, last)
                asked.execute_command("CLUSTER", "SET-CONFIG-EPOCH", at + 1)
        with client(self.nodes[0]) as asked:
            for node in self.nodes[1:]:
                port = node.settings["cluster-port"]
                asked.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, port)
        for node in self.nodes:
            wait_until(lambda node=node: self._knows_all(node), "the nodes did not meet")  # type: ignore[misc]  # a default binds it
        self.owner: servers.Server = self.nodes[min(self.slot // 5461, 2)]
        self.replica: servers.Server = self.nodes[3]
        with client(self.owner) as asked:
            name = asked.execute_command("CLUSTER", "MYID")
        with client(self.replica) as asked:
            asked.execute_command("CLUSTER", "REPLICATE", name)
        self._await_replica()

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3] if node is not self.owner)
        return f"redis+cluster://{places}"

    def _await_replica(self) -> None:
        wait_until(lambda: replication(self.replica).get("master_link_status") == "up", "no replica followed")

    def _knows_all(self, node: servers.Server) -> bool:
        with client(node) as asked:
            found = asked.execute_command("CLUSTER INFO")
            return bool(found["cluster_state"] == "ok" and int(found["cluster_known_nodes"]) == 4)

    def hand_over(self) -> None:
        """The replica takes the slots over; the old owner is alive, and answers MOVED."""
        self._revive()
        with client(self.replica) as asked:
            asked.execute_command("CLUSTER", "FAILOVER")
        wait_until(lambda: replication(self.replica)["role"] == "master", "the replica did not take over")
        self.owner, self.replica = self.replica, self.owner

    def kill(self) -> None:
        self._revive()
        kill_without_loss(self.owner, self.replica)
        wait_until(lambda: replication(self.replica)["role"] == "master", "the cluster did not act")
        self.owner, self.replica = self.replica, self.owner

    def _revive(self) -> None:
        if not self.replica.is_alive:
            self.replica.start()
        self._await_replica()


def in_a_cluster(ground: Ground, faults: int) -> Outcome:
    with ExitStack() as stack:
        cluster = Cluster(stack)
        acts = [cluster.kill, cluster.hand_over]
        return _played(ground._replace(url=cluster.url), [acts[at % 2] for at in range(faults)])


def _played(ground: Ground, acts: Sequence[Callable[[], None]]) -> Outcome:
    with fleet(ground.url, ground.folder) as nodes:
        longest = _fail_over(ground, nodes, acts)
        return end(ground, nodes, len(acts), longest)


def _fail_over(ground: Ground, nodes: Fleet, acts: Sequence[Callable[[], None]]) -> float:
    """Three nodes; answers the longest time until they went on."""
    prepare(ground.url, ground.schedules)
    longest = 0.0
    for _ in range(3):
        nodes.start()
    nodes.await_ready()
    for act in acts:
        next_completion(nodes)
        act()
        longest = max(longest, next_completion(nodes))
    # Nodes that were idle must reconnect, too: all three, not only the quickest one.
    for number in nodes.alive:
        before = len(nodes.reports(number))
        wait_until(
            lambda number=number, before=before: len(nodes.reports(number)) > before,  # type: ignore[misc]  # defaults bind them
            f"node {number} did not come back: {nodes.errors()}",
        )
    return longest


@contextmanager
def nowhere(_: str, folder: Path) -> Iterator[Ground]:
    """The scenes start servers of their own."""
    yield Ground("", folder)


SCENES = (
    Scene(
        "failover, one address",
        behind_one_address,
        "3 nodes; a replica takes over behind the same address; the old primary stays as a replica, or dies",
        2,
        6,
        ("valkey",),
        nowhere,
    ),
    Scene(
        "failover, replica behind",
        with_loss,
        "3 nodes; the primary SIGKILLed half a second after its replica was cut off, which takes over",
        1,
        4,
        ("valkey",),
        nowhere,
    ),
    Scene(
        "failover, Sentinel",
        by_sentinels,
        "3 nodes, 3 sentinels; the primary SIGKILLed",
        1,
        3,
        ("valkey",),
        nowhere,
    ),
    Scene(
        "failover, Cluster",
        in_a_cluster,
        "3 nodes on a cluster of 3 masters; the one with the keys SIGKILLed, or its replica takes over",
        1,
        6,
        ("valkey",),
        nowhere,
    ),
)
