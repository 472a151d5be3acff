"""A server that is away for longer than a lease: living workers keep their runs.

Real time, because real leases and connections are the subject; the tests wait for events, never for a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from evenbeat import Run, Scheduler
from evenbeat.model import Run as RunRecord
from evenbeat.stores.base import Lost, RunQuery, Store
from evenbeat.testing.places import own_place
from tests import servers
from tests.faults.fleet import opened, wait_until
from tests.faults.node import make_store
from tests.faults.proxy import Proxy

LEASE = "5s"
JOBS = 10


class Outage:
    """A node that works and one that only looks for lost runs, each behind a proxy of its own."""

    def __init__(self, store: Store, proxies: list[Proxy], urls: list[str]) -> None:
        self.store = store
        self.working, self.watching = proxies
        self.go = threading.Event()
        self.looks = 0
        """How often the second node has asked for lost runs and got an answer."""
        worker_url, watcher_url = urls
        self.worker = Scheduler(make_store(worker_url), lease=LEASE, threads=JOBS)
        self.watcher = Scheduler(self._counted(make_store(watcher_url)), lease=LEASE)

        @self.worker.task
        def wait(run: Run) -> None:
            """Until it is told to end."""
            while not self.go.wait(0.1):
                run.check()

    def _counted(self, store: Store) -> Store:
        lost_runs = store.lost_runs

        def counted(ended_by: int, limit: int) -> Lost:
            answer = lost_runs(ended_by, limit)
            self.looks += 1
            return answer

        store.lost_runs = counted  # type: ignore[method-assign]
        return store

    def runs(self) -> tuple[RunRecord, ...]:
        """What the server knows, by a way that nothing happens to."""
        return self.store.find_runs(RunQuery(task="wait")).items

    def until_looked(self) -> None:
        before = self.looks
        wait_until(lambda: self.looks > before, "nobody looks for lost runs")

    def until_leases(self, condition: Callable[[int], bool]) -> None:
        """Until the ends of all leases are so, in ms from now."""

        def come_true() -> bool:
            now = self.store.now()
            return all(
                run.lease_until is not None and condition(run.lease_until - now) for run in self.runs()
            )

        wait_until(come_true, f"leases don't become so: {self.runs()}")


@contextmanager
def outage(kind: str) -> Iterator[Outage]:
    try:
        server = servers.shared(kind)
    except servers.Unavailable as error:
        pytest.skip(f"no {kind}: {error}")
    if isinstance(server, servers.Running):
        pytest.skip("the server is named by its URL alone")
    with ExitStack() as stack:
        url = stack.enter_context(own_place(server.url))
        proxies = [stack.enter_context(closing(Proxy(server.port))) for _ in range(2)]
        store = stack.enter_context(opened(url))
        urls = [url.replace(f":{server.port}/", f":{proxy.port}/") for proxy in proxies]
        scene = Outage(store, proxies, urls)
        for app, works in ((scene.worker, True), (scene.watcher, False)):
            app.start(worker=works)
            stack.callback(app.close)
            stack.callback(app.stop, "0s")
        stack.callback(scene.go.set)
        for proxy in proxies:
            stack.callback(proxy.become, "pass")
        yield scene


@pytest.mark.parametrize("kind", servers.KINDS)
def test_runs_of_living_workers_stay_theirs_when_the_server_is_away_for_longer_than_a_lease(
    kind: str,
) -> None:
    with outage(kind) as scene:
        scene.worker.enqueue_many(["wait"] * JOBS)
        wait_until(lambda: {run.state for run in scene.runs()} == {"running"}, "nothing was begun")
        scene.until_looked()
        for proxy in (scene.working, scene.watching):
            proxy.become("refuse")
        scene.until_leases(lambda left: left < -200)
        # The one that could take them is back first.
        scene.watching.become("pass")
        scene.until_looked()
        scene.working.become("pass")
        scene.until_leases(lambda left: left > 0)
        scene.until_looked()
        scene.go.set()
        wait_until(lambda: {run.state for run in scene.runs()} == {"succeeded"}, "runs did not end")
        assert {(run.attempt, run.crashes, run.failures) for run in scene.runs()} == {(1, 0, 0)}
