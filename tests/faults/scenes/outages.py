"""A server that is away for longer than a lease: living workers keep their runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from unittest import mock

from evenbeat import RunContext, Scheduler
from evenbeat.core.records import RunRecord as RunRecord
from evenbeat.node import reaper
from evenbeat.stores.base import Lost, RunQuery, Store
from tests.faults.fleet import Account, opened, wait_until
from tests.faults.node import make_store
from tests.faults.proxy import Proxy
from tests.faults.scene import SERVERS, Ground, Mutant, Outcome, Scene, caught

LEASE = "5s"
JOBS = 10
LARGE = 100
SIZE = 700_000


class Nodes:
    """A node that works and one that only reaps, each behind a proxy of its own."""

    def __init__(self, store: Store, ground: Ground, proxies: list[Proxy]) -> None:
        self._store = store
        self.working, self.watching = proxies
        self.go = threading.Event()
        self._reaped = 0
        """How often the second node has asked for lost runs and got an answer."""
        self.worker = Scheduler(
            make_store(ground.at(self.working.port)), lease=LEASE, thread_concurrency=JOBS
        )
        watched = self._counted(make_store(ground.at(self.watching.port)))
        self.watcher = Scheduler(watched, lease=LEASE)

        @self.worker.task
        def wait(run: RunContext) -> None:
            """Run until the scene ends it."""
            while not self.go.wait(0.1):
                run.raise_if_cancelled()

    def _counted(self, store: Store) -> Store:
        lost_runs = store.lost_runs

        def counted(ended_by: int, limit: int) -> Lost:
            answer = lost_runs(ended_by, limit)
            self._reaped += 1
            return answer

        store.lost_runs = counted  # type: ignore[method-assign]
        return store

    def runs(self) -> tuple[RunRecord, ...]:
        """What the server knows, by a way that nothing happens to."""
        return self._store.find_runs(RunQuery(task="wait")).items

    def until_state(self, state: str) -> None:
        wait_until(lambda: {run.state for run in self.runs()} == {state}, f"runs are not {state}")

    def await_reaping(self) -> None:
        before = self._reaped
        wait_until(lambda: self._reaped > before, "no node reaps")

    def until_leases(self, condition: Callable[[int], bool]) -> None:
        """Until the ends of all leases are so, in ms from now; a run that was taken over has none."""

        def come_true() -> bool:
            now, runs = self._store.now(), self.runs()
            taken = [run.id for run in runs if run.attempt > 1 or run.crashes]
            assert not taken, f"{len(taken)} runs were taken from a living worker"
            return all(run.lease_until is not None and condition(run.lease_until - now) for run in runs)

        wait_until(come_true, "leases don't become so")


@contextmanager
def started(ground: Ground) -> Iterator[Nodes]:
    assert ground.server is not None
    with ExitStack() as stack:
        proxies = [stack.enter_context(closing(Proxy(ground.server.port))) for _ in range(2)]
        nodes = Nodes(stack.enter_context(opened(ground.url)), ground, proxies)
        for app, works in ((nodes.worker, True), (nodes.watcher, False)):
            app.start(worker=works)
            stack.callback(app.close)
            stack.callback(app.stop, "0s")
        stack.callback(nodes.go.set)
        for proxy in proxies:
            stack.callback(proxy.become, "pass")
        yield nodes


def outage(ground: Ground, faults: int) -> Outcome:
    """The server refuses everybody until all leases have ended; the node that could take runs comes first."""
    with started(ground) as nodes:
        nodes.worker.enqueue_many(["wait"] * JOBS)
        nodes.until_state("running")
        for _ in range(faults):
            nodes.await_reaping()
            for proxy in (nodes.working, nodes.watching):
                proxy.become("refuse")
            nodes.until_leases(lambda left: left < -200)
            nodes.watching.become("pass")
            nodes.await_reaping()
            nodes.working.become("pass")
            nodes.until_leases(lambda left: left > 0)
        nodes.await_reaping()
        nodes.go.set()
        nodes.until_state("succeeded")
        assert {(run.attempt, run.crashes, run.failures) for run in nodes.runs()} == {(1, 0, 0)}
    return Outcome(Account(0, JOBS, JOBS), faults, result="0 taken from a living worker")


def large_results(ground: Ground, faults: int) -> Outcome:
    """Many runs end with large results while the server is away: all of them are recorded when it is back."""
    assert ground.server is not None
    with ExitStack() as stack:
        proxy = stack.enter_context(closing(Proxy(ground.server.port)))
        store = stack.enter_context(opened(ground.url))
        app = Scheduler(make_store(ground.at(proxy.port)), async_concurrency=LARGE)
        stack.callback(app.close)
        gate = threading.Event()
        begun: list[str] = []
        ended: list[str] = []

        @app.task
        async def grow(run: RunContext) -> str:
            begun.append(run.id)
            while not gate.is_set():
                await asyncio.sleep(0.05)
            ended.append(run.id)
            return "x" * SIZE

        def states() -> set[str]:
            return {run.state for run in store.find_runs(RunQuery(task="grow", limit=10_000)).items}

        app.start()
        stack.callback(app.stop, "0s")
        for _ in range(faults):
            begun.clear()
            ended.clear()
            app.enqueue_many([grow] * LARGE)
            wait_until(lambda: len(begun) == LARGE, "nothing was begun")
            proxy.become("refuse")
            gate.set()
            wait_until(lambda: len(ended) == LARGE, "the functions don't end")
            proxy.become("pass")
            wait_until(lambda: states() == {"succeeded"}, "ends are not recorded")
            gate.clear()
    return Outcome(Account(0, LARGE * faults, LARGE * faults), faults, result="all recorded")


def hasty(ground: Ground) -> str | None:
    """A reaper that takes what it finds, also right after an outage."""

    class Hasty(reaper.Reaper):
        def step(self, now: int) -> int:
            self._grace = 0
            return super().step(now)

    with mock.patch("evenbeat.node.node.Reaper", Hasty):
        return caught(lambda: outage(ground, 1))


LARGE_RESULTS = "100 results of 700 kB; the server away when they come"
SCENES = (
    Scene("outage", outage, "10 runs; the server away until their leases have ended", 1, 5, SERVERS),
    Scene("large", large_results, LARGE_RESULTS, 1, 3, ("mongo",)),
    Scene("large", large_results, LARGE_RESULTS, 0, 3, ("postgres", "valkey")),
)
MUTANTS = (Mutant("hasty", hasty, "taken from a living worker", SERVERS, quick=("valkey",)),)
