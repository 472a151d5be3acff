"""Another member of a MongoDB replica set becomes the primary, and the old one comes back.

Writes are acknowledged by a majority, so that a failover loses none: every tick has to be accounted for.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests import servers
from tests.faults.fleet import fleet, prepare, wait_until
from tests.faults.scene import Ground, Outcome, Scene, end, next_completion

MEMBERS = 3
# Three members of a set on one machine write everything three times.
_SCHEDULES = 3
# Quick elections: a test waits for each of them.
_SETTINGS = {"electionTimeoutMillis": 2000, "heartbeatIntervalMillis": 500}


class Member(servers.Mongo):
    """One of several: it does not initiate a set by itself."""

    name = "mongo_member"

    def _ready(self) -> None:
        ask(self, {"ping": 1})


def ask(member: servers.Server, command: dict[str, Any]) -> dict[str, Any]:
    with MongoClient[dict[str, Any]](
        member.url, serverSelectionTimeoutMS=2000, socketTimeoutMS=5000
    ) as client:
        return client.admin.command(command)


class ReplicaSet:
    """Three members, each of which can be harmed."""

    def __init__(self, stack: ExitStack) -> None:
        self.members = [Member() for _ in range(MEMBERS)]
        for member in self.members:
            stack.callback(member.stop)
        # All of them before it is initiated: it takes a majority to elect.
        for member in self.members:
            member.start()
        hosts = [{"_id": at, "host": f"127.0.0.1:{member.port}"} for at, member in enumerate(self.members)]
        ask(self.members[0], {"replSetInitiate": {"_id": "rs0", "members": hosts, "settings": _SETTINGS}})
        self.await_health()

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"mongodb://{places}/?replicaSet=rs0"

    def primary(self, besides: Member | None = None) -> Member | None:
        for member in self.members:
            if member is not besides:
                try:
                    if ask(member, {"hello": 1})["isWritablePrimary"]:
                        return member
                except PyMongoError:
                    continue
        return None

    def await_primary(self, besides: Member | None = None) -> Member:
        found: list[Member] = []

        def is_done() -> bool:
            primary = self.primary(besides)
            if primary is not None:
                found.append(primary)
            return bool(found)

        wait_until(is_done, "no member was elected")
        return found[0]

    def await_health(self) -> None:
        """Until there are a primary and two that follow: before, the set does not survive the next loss."""
        wait_until(lambda: sorted(self._states()) == [1, 2, 2], f"the set is {self._states()}")

    def _states(self) -> list[int]:
        primary = self.primary()
        if primary is None:
            return []
        try:
            return [member["state"] for member in ask(primary, {"replSetGetStatus": 1})["members"]]
        except PyMongoError:
            return []

    def kill(self) -> Callable[[], None]:
        """The primary dies. It comes back as one of the others."""
        old = self.await_primary()
        old.kill()
        self.await_primary(besides=old)
        return old.start

    def freeze(self) -> Callable[[], None]:
        """The primary is frozen until another one is elected. It comes back and takes itself for the primary,
        with requests of its clients in its sockets."""
        old = self.await_primary()
        os.kill(old.pid, signal.SIGSTOP)
        self.await_primary(besides=old)
        return partial(os.kill, old.pid, signal.SIGCONT)

    def step_down(self) -> Callable[[], None]:
        """Ask the primary to step down."""
        old = self.await_primary()
        ask(old, {"replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 10})
        self.await_primary(besides=old)
        return lambda: None


def failovers(ground: Ground, faults: int) -> Outcome:
    with ExitStack() as stack:
        members = ReplicaSet(stack)
        acts = [members.step_down, members.freeze, members.kill]
        ground = ground._replace(url=members.url)
        prepare(ground.url, _SCHEDULES)
        longest = 0.0
        nodes = stack.enter_context(fleet(ground.url, ground.folder))
        for _ in range(3):
            nodes.start()
        nodes.await_ready()
        for at in range(faults):
            next_completion(nodes)
            bring_back = acts[at % len(acts)]()
            # With two members, and again with the old primary among them.
            longest = max(longest, next_completion(nodes))
            bring_back()
            longest = max(longest, next_completion(nodes))
            members.await_health()
        # All of them have to come back, not the quickest one.
        for number in nodes.alive:
            before = len(nodes.reports(number))
            wait_until(
                lambda number=number, before=before: len(nodes.reports(number)) > before,  # type: ignore[misc]  # defaults bind them
                f"node {number} did not come back: {nodes.errors()}",
            )
        return end(ground, nodes, faults, longest)


@contextmanager
def nowhere(_: str, folder: Path) -> Iterator[Ground]:
    """The scene starts servers of its own."""
    yield Ground("", folder)


SCENES = (
    Scene(
        "failover",
        failovers,
        "3 nodes, a replica set of 3; the primary steps down, is SIGSTOPped until another one is elected, "
        "SIGKILLed; it comes back",
        3,
        9,
        ("mongo",),
        nowhere,
    ),
)
