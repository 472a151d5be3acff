"""A node: the duties of one process, each in its thread, on one store."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.node.duties import PeriodicDuties
from evenbeat.node.leases import LeaseKeeper
from evenbeat.node.loop import LONGEST_BACKOFF, Loop
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.pruner import Pruner
from evenbeat.node.reaper import Reaper
from evenbeat.node.settings import NodeSettings
from evenbeat.node.ticker import Ticker
from evenbeat.node.worker import Lane, Worker
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.events import EventKind, Events
from evenbeat.observe.health import patience
from evenbeat.observe.status_files import NodeStatus, StatusWriter
from evenbeat.processes import begun
from evenbeat.processes.descriptors import DescriptorProbe
from evenbeat.stores.base import Store
from evenbeat.tasks.task import ExecutorKind, Task, Tasks

# After the deadline of a drain, what was interrupted gets this long to end by itself.
_LAST_WORDS = 1.0
# How long the last acts are tried on a store that does not answer.
_LAST_TRIES = 5.0
# Seconds between two tries to renew leases while the store is away.
_RENEW_AGAIN = 0.25
# Seconds in which the store begins to listen.
_FIRST_WAIT = 0.05
_CLOSED = (
    "somebody closed all files of this process (os.closerange?), also those of the database; "
    "start a new process, and close only what is yours"
)

_log = logging.getLogger("evenbeat.node.node")


def node_name() -> str:
    """Readable, and never that of another node: two containers may share a host name and a pid."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


def installed_version() -> str:
    """That of this package; nothing where it is used without being installed."""
    from importlib import metadata  # a tenth of what importing all of Evenbeat takes

    try:
        return metadata.version("evenbeat")
    except metadata.PackageNotFoundError:
        return ""


def slots_of(settings: NodeSettings) -> dict[ExecutorKind, int]:
    """How many runs a node executes at once, by the way of executing them."""
    return {
        "thread": settings.thread_concurrency,
        "async": settings.async_concurrency,
        "process": settings.process_concurrency,
    }


def make_lane(kind: ExecutorKind, settings: NodeSettings) -> Lane:
    """A lane for one way to execute. Executors are imported when a task needs them."""
    slots = slots_of(settings)[kind]
    if kind == "async":
        from evenbeat.executors.coroutines import CoroutineExecutor

        return Lane(CoroutineExecutor(slots), slots)
    if kind == "process":
        from evenbeat.executors.processes import ProcessExecutor

        return Lane(ProcessExecutor(slots), slots)
    from evenbeat.executors.threads import ThreadExecutor

    return Lane(ThreadExecutor(slots), slots)


class Node:
    """A ticker, a worker or both, with what keeps them going. Made, started and stopped once."""

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        events: Events,
        settings: NodeSettings,
        *,
        ticker: bool = True,
        worker: bool = True,
        name: str | None = None,
    ) -> None:
        self.name = name or node_name()
        self.pid = os.getpid()
        self._probe = DescriptorProbe()
        self._store = store
        self._events = events
        self._settings = settings
        self._loops: list[Loop] = []
        self._ticker_loop: Loop | None = None
        self._worker_loop: Loop | None = None
        self._leases_loop: Loop | None = None
        self._worker: Worker | None = None
        self._hurry = threading.Event()
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="evenbeat-listener", daemon=True)
        if worker:
            self._worker = Worker(
                store,
                tasks,
                events,
                lambda kind: make_lane(kind, settings),
                name=self.name,
                queues=settings.queues,
                lease=settings.lease,
                wake=self._wake_worker,
                claimed=self._wake_leases,
            )
            self._worker_loop = self._loop("worker", self._worker.step)
            keeper = LeaseKeeper(store, self._worker, settings.lease)
            # Well below the third of a lease for which reapers wait after an outage, also those of nodes with
            # shorter leases.
            backoff = min(_RENEW_AGAIN, settings.lease / 12_000)
            self._leases_loop = self._loop("leases", keeper.step, backoff)
        if ticker:
            self._ticker_loop = self._loop(
                "ticker", Ticker(store, events, self._wake_worker, name=self.name).step
            )
        now = store.now()
        info = NodeInfo(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=installed_version(),
            started_at=now,
            seen_at=now,
            ticker=ticker,
            worker=worker,
            tasks={task.name: task.executor for task in tasks} if worker else {},
            queues=list(settings.queues),
            slots=slots_of(settings) if worker else {},
        )
        self._presence = Presence(store, info)
        self._duties_loop = self._loop(
            "duties",
            PeriodicDuties(
                [self._presence, Reaper(store, events, settings.lease), Pruner(store, settings.retention)]
            ).step,
        )
        self._status_writer = StatusWriter(
            "node", self.name, patience(settings.lease), lambda: ((), (self.status(),))
        )

    def _loop(
        self, name: str, step: Callable[[int], int | None], max_backoff: float = LONGEST_BACKOFF
    ) -> Loop:
        loop = Loop(
            name, step, self._now, self._settings.poll_interval, self._events, max_backoff=max_backoff
        )
        self._loops.append(loop)
        return loop

    def _now(self) -> Instant:
        """The store's clock, which every step asks first."""
        self._check_descriptors()
        return self._store.now()

    def _check_descriptors(self) -> None:
        """Do nothing any more in a process whose descriptors were closed: two connections may have the same
        one by now, and take each other's replies."""
        if not self._probe.is_intact():
            raise StoreUnavailable(_CLOSED)

    @property
    def is_processing(self) -> bool:
        return self._worker is not None and self._worker.is_processing

    @property
    def worker(self) -> Worker | None:
        return self._worker

    def status(self) -> NodeStatus:
        """What ``evenbeat health`` goes by."""
        loops = tuple(status for loop in self._loops if (status := loop.status) is not None)
        broken = None if self._probe.is_intact() else _CLOSED
        return NodeStatus(self.name, self.pid, loops, broken)

    def learn(self, task: Task[..., Any]) -> None:
        """Execute this one, too, from now on."""
        if self._worker is not None:
            self._worker.learn(task)
            self._presence.learn(task.name, task.executor)
            self._wake_worker()

    def start(self) -> None:
        start_capture()
        self._tell("node_started")
        for loop in self._loops:
            loop.start()
        self._listener.start()
        if begun.here is None:  # else a supervisor watches this process, and reports for it
            self._status_writer.start()
        _log.info("started", extra={"component": "node", "node": self.name})

    def hurry(self) -> None:
        """While it drains: the deadline is now."""
        self._hurry.set()

    def stop(self, drain: int | None = None) -> bool:
        """Drain and stop: no new claims, running jobs get ``drain`` ms, the rest is handed back.

        Return whether every run in hand came to its end.
        """
        deadline = time.monotonic() + (self._settings.drain_timeout if drain is None else drain) / 1000
        self._tell("node_stopping")
        for loop in (self._ticker_loop, self._duties_loop):
            if loop is not None:
                loop.stop()
        is_drained = self._worker is None or self._drain(self._worker, deadline)
        self._closing.set()
        for loop in self._loops:
            loop.stop()
        # Wakes the listener, which sits in the store.
        self._attempt(self._store.hint)
        for loop in self._loops:
            if not loop.join(_LAST_TRIES):
                _log.warning("a loop does not end", extra={"component": loop.name})
        if self._worker is not None and self._worker_loop is not None and self._worker_loop.join(0):
            # What ended while the loop did.
            worker = self._worker
            self._attempt(lambda: worker.step(self._now()))
        self._listener.join(_LAST_TRIES)
        self._attempt(self._presence.leave)
        stop_capture()
        self._tell("node_stopped")
        self._status_writer.stop()
        self._probe.close()
        _log.info("stopped", extra={"component": "node", "node": self.name})
        return is_drained

    def _drain(self, worker: Worker, deadline: float) -> bool:
        worker.drain()
        self._until(
            lambda: (worker.is_drained and not worker.is_processing) or self._hurry.is_set(), deadline
        )
        left = [attempt for attempt in worker.running() if not attempt.settled]
        if left:
            _log.warning(
                "jobs are still running at the deadline and are handed back",
                extra={"component": "node", "jobs": len(left), "tasks": sorted({a.run.task for a in left})},
            )
            for attempt in left:
                worker.interrupt(attempt, "stopping")
            self._until(lambda: not worker.is_processing, time.monotonic() + _LAST_WORDS)
            for attempt in worker.running():
                worker.give_up(attempt, "released")
        self._until(lambda: not worker.is_processing, time.monotonic() + _LAST_TRIES)
        worker.stop()
        return not left

    def _until(self, condition: Callable[[], bool], deadline: float) -> None:
        # Without descriptors nothing can be recorded, however long it waits.
        while not condition() and self._probe.is_intact() and (left := deadline - time.monotonic()) > 0:
            # Not only hurried: the condition may come true meanwhile.
            self._closing.wait(min(left, 0.02))

    def _attempt(self, act: Callable[[], object]) -> None:
        with contextlib.suppress(StoreUnavailable):
            self._check_descriptors()
            act()

    def _listen(self) -> None:
        """Pass on the store's hints. One thread waits there, whatever the number of loops."""
        poll = self._settings.poll_interval / 1000
        # What was said before the first wait was heard by nobody: it is short, and taken for a hint.
        is_first = True
        while not self._closing.is_set():
            try:
                self._check_descriptors()
                hinted = self._store.wait(_FIRST_WAIT if is_first else poll) or is_first
                is_first = False
            except Exception:
                # Hints save latency, and nothing depends on them.
                _log.debug("waiting for hints failed", exc_info=True)
                self._closing.wait(1.0)
                hinted = True
            if hinted:
                for loop in (self._ticker_loop, self._worker_loop):
                    if loop is not None:
                        loop.wake()

    def _wake_worker(self) -> None:
        if self._worker_loop is not None:
            self._worker_loop.wake()

    def _wake_leases(self) -> None:
        if self._leases_loop is not None:
            self._leases_loop.wake()

    def _tell(self, kind: EventKind) -> None:
        if self._events:
            self._attempt(lambda: self._events.tell(kind, self._now()))
