"""A node: ticker, worker and periodic duties of one process, each in its own thread, on one store."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.node.backfills import Backfiller
from evenbeat.node.calendar_copies import CalendarCheck
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.descriptor_needs import shortage
from evenbeat.node.duties import Duty, PeriodicDuties
from evenbeat.node.fallback import Fallback
from evenbeat.node.fallback_ticker import FallbackTicker
from evenbeat.node.lanes import Lane
from evenbeat.node.leases import LeaseRenewer
from evenbeat.node.loop import LONGEST_BACKOFF, Loop
from evenbeat.node.metered_store import metered
from evenbeat.node.owed_successes import OwedSuccesses, without_rows
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.node.pruner import Pruner
from evenbeat.node.reaper import Reaper
from evenbeat.node.rollups import Rollups
from evenbeat.node.self_check import SelfCheck
from evenbeat.node.settings import NodeSettings
from evenbeat.node.signals import Signals
from evenbeat.node.ticker import Ticker
from evenbeat.node.unique_records import UniqueRecords
from evenbeat.node.worker import Worker
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.events import EventKind, Events
from evenbeat.observe.health import patience
from evenbeat.observe.status_files import NodeStatus, ProcessStatus, StatusWriter
from evenbeat.processes import begun
from evenbeat.processes.descriptors import DescriptorProbe, descriptor_limit
from evenbeat.stores.base import Store
from evenbeat.tasks.task import ExecutorKind, Task, Tasks
from evenbeat.timeline import RebuildPolicy

if TYPE_CHECKING:
    from evenbeat.executors.coroutine_pool import CoroutinePool

# Seconds that an interrupted function gets to end by itself after the deadline of a drain.
_INTERRUPT_GRACE = 1.0
# Seconds that a stopping node keeps trying to record and clean up in a store that does not answer.
_STOP_PATIENCE = 5.0
# Seconds between two tries to renew leases while the store is unavailable.
_RENEW_AGAIN = 0.25
# Seconds of the first wait for hints. During this wait, the store begins to listen.
_FIRST_WAIT = 0.05
_DESCRIPTORS_CLOSED = (
    "a task or library closed all file descriptors of this process (os.closerange?), also those of the "
    "database; start a new process, and close only descriptors that your code opened"
)

_log = logging.getLogger("evenbeat.node.node")


def node_name() -> str:
    """Return a readable name that no other node has: two containers may share a host name and a pid."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"


def installed_version() -> str:
    """Return the version of this package; an empty text if the package is not installed."""
    from importlib import (
        metadata,
    )  # importing it takes a tenth of the time that importing all of Evenbeat takes

    try:
        return metadata.version("evenbeat")
    except metadata.PackageNotFoundError:
        return ""


def slots_of(settings: NodeSettings) -> dict[ExecutorKind, int]:
    """Return how many runs a node executes at once, by executor."""
    return {
        "thread": settings.thread_concurrency,
        "async": settings.async_concurrency,
        "process": settings.process_concurrency,
    }


def make_lane(kind: ExecutorKind, settings: NodeSettings) -> Lane:
    """Create the lane of one executor. Its module is imported only when a task needs it."""
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
    """A ticker, a worker or both, with the loops that call them. A node starts and stops once."""

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
        signals: Signals | None = None,
        on_hint: Callable[[], None] = lambda: None,
        declared: Iterable[tuple[str, str]] = (),
        code_only: Iterable[ScheduleRecord] = (),
    ) -> None:
        """``declared`` names the schedules of the code that have a row, ``code_only`` has the others."""
        self.name = name or node_name()
        self.pid = os.getpid()
        self._probe = DescriptorProbe()
        self.counting = Counting()
        self._events = events
        self.settings = settings
        used = {task.executor for task in tasks} if worker else set()
        self._slots = {kind: most for kind, most in slots_of(settings).items() if kind in used}
        self._loops: list[Loop] = []
        self._ticker_loop: Loop | None = None
        self._code_loop: Loop | None = None
        self._worker_loop: Loop | None = None
        self._leases_loop: Loop | None = None
        self._worker: Worker | None = None
        self._signals = Signals() if signals is None else signals
        self._on_hint = on_hint
        """Called when something in the store may have changed."""
        self._hurry = threading.Event()
        self._closing = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="evenbeat-listener", daemon=True)
        counted = metered(store, self.counting)
        self._fallback = Fallback(
            counted, events, declared if ticker else (), self._wake_code_ticker, self._wake_owed
        )
        self._store = without_rows(counted, lambda: self._fallback.is_failing, self._wake_owed)
        self._code_ticker = CodeTicker(
            self._store,
            events,
            self._fallback,
            code_only if ticker else (),
            policy=RebuildPolicy(period=settings.timeline_period, lookahead=settings.timeline_lookahead),
            wake_worker=self._wake_worker,
            name=self.name,
            counting=self.counting,
        )
        self._fallback_ticker = FallbackTicker(
            self._store,
            events,
            self._fallback,
            wake_worker=self._wake_worker,
            name=self.name,
            counting=self.counting,
        )
        if worker:
            self._add_worker(store, tasks)
        if ticker:
            self._add_ticker()
        self._presence = Presence(
            self._store,
            self._info(tasks, ticker=ticker, worker=worker),
            running=lambda: self._running,
            fallback_since=lambda: self._fallback.since,
        )
        self._rollups = Rollups(self._store, self.counting, self.name, ticker=ticker, worker=worker)
        reaper = Reaper(self._store, events, settings.lease, counting=self.counting, signals=self._signals)
        self._backfiller = Backfiller(self._store)
        duties: list[Duty] = [
            self._presence,
            reaper,
            UniqueRecords(self._store, settings.retention),
            Pruner(self._store, settings.retention),
            self._rollups,
            SelfCheck(self._store, events, self.name),
            self._fallback,
            self._backfiller,
            CalendarCheck(self._store),
        ]
        # A node that fires nothing does not notice when the rows can be used again.
        self._owed = OwedSuccesses(self._store, lambda: self._fallback.is_failing) if ticker else None
        if self._owed is not None:
            duties.append(self._owed)
        self._duties = PeriodicDuties(duties)
        self._duties_loop = self._loop("duties", self._duties.step)
        self._status_writer = StatusWriter(
            "node", self.name, patience(settings.lease), lambda: ((), (self.status(),))
        )

    def _add_ticker(self) -> None:
        firing = Ticker(
            self._store,
            self._events,
            self._wake_worker,
            name=self.name,
            counting=self.counting,
            signals=self._signals,
            fallback=self._fallback,
        )
        self._ticker_loop = self._loop("ticker", firing.step)
        self._code_loop = self._loop("code-ticker", self._fire_from_memory)

    def _fire_from_memory(self, now: Instant) -> Instant | None:
        try:
            first = self._code_ticker.step(now)
        finally:
            second = self._fallback_ticker.step(now)
        return first if second is None else second if first is None else min(first, second)

    def _add_worker(self, store: Store, tasks: Tasks) -> None:
        settings = self.settings
        self._worker = Worker(
            self._store,
            tasks,
            self._events,
            lambda kind: make_lane(kind, settings),
            name=self.name,
            queues=settings.queues,
            lease=settings.lease,
            wake=self._wake_worker,
            wake_leases=self._wake_leases,
            wake_backfills=self._wake_backfills,
            counting=self.counting,
            signals=self._signals,
            retention=settings.retention,
        )
        self._worker_loop = self._loop("worker", self._worker.step)
        renewer = LeaseRenewer(
            metered(store, self.counting, settle_runs="heartbeat"), self._worker, settings.lease
        )
        # After an outage, reapers wait for a third of their lease. Retry much sooner, so that this node
        # renews first, also if other nodes have shorter leases.
        backoff = min(_RENEW_AGAIN, settings.lease / 12_000)
        self._leases_loop = self._loop("leases", renewer.step, backoff)

    def _info(self, tasks: Tasks, *, ticker: bool, worker: bool) -> NodeInfo:
        now = self._store.now()
        return NodeInfo(
            name=self.name,
            host=socket.gethostname(),
            pid=self.pid,
            version=installed_version(),
            started_at=now,
            seen_at=now,
            ticker=ticker,
            worker=worker,
            tasks={task.name: task.executor for task in tasks} if worker else {},
            queues=list(self.settings.queues),
            slots=slots_of(self.settings) if worker else {},
            code_only=self._code_ticker.names,
        )

    def _loop(
        self, name: str, step: Callable[[int], int | None], max_backoff: float = LONGEST_BACKOFF
    ) -> Loop:
        loop = Loop(name, step, self.now, self.settings.poll_interval, self._events, max_backoff=max_backoff)
        self._loops.append(loop)
        return loop

    def now(self) -> Instant:
        """Return the time of the store's clock. Every step begins with this call."""
        self.counting.note_alive()
        self._check_descriptors()
        return self._store.now()

    def _check_descriptors(self) -> None:
        """Raise if a job has closed the descriptors of this process: two connections may share one by now,
        and receive each other's replies."""
        if not self._probe.is_intact():
            raise StoreUnavailable(_DESCRIPTORS_CLOSED)

    @property
    def is_processing(self) -> bool:
        return self._worker is not None and self._worker.is_processing

    @property
    def _running(self) -> int:
        return 0 if self._worker is None else len(self._worker.held)

    @property
    def worker(self) -> Worker | None:
        return self._worker

    def status(self) -> NodeStatus:
        """Return the state that ``evenbeat health`` judges."""
        loops = tuple(status for loop in self._loops if (status := loop.status) is not None)
        broken = None if self._probe.is_intact() else _DESCRIPTORS_CLOSED
        return NodeStatus(self.name, self.pid, loops, broken)

    def process_status(self) -> ProcessStatus:
        """Return the status of this process, for readiness probes."""
        return self._status_writer.status()

    def add_task(self, task: Task[..., Any]) -> None:
        """Start to execute the runs of this task, too."""
        if self._worker is not None:
            self._worker.add_task(task)
            self._presence.add_task(task.name, task.executor)
            self._wake_worker()

    def add_schedule(self, key: tuple[str, str], code_only: ScheduleRecord | None) -> None:
        """Cover a schedule of the code that was registered while the node runs."""
        if self._ticker_loop is None:
            return
        if code_only is None:
            self._fallback.add(key)
        else:
            self._code_ticker.add(code_only)
            self._presence.add_code_only(key[1])
            self._wake_code_ticker()

    def start(self) -> None:
        if (few := shortage(self._slots, descriptor_limit())) is not None:
            _log.warning(few, extra={"component": "node", "node": self.name})
        start_capture()
        self._notify("node_started")
        for loop in self._loops:
            loop.start()
        self._listener.start()
        if begun.here is None:  # otherwise the supervisor of this process writes the status
            self._status_writer.start()
        _log.info("started", extra={"component": "node", "node": self.name})

    def hurry(self) -> None:
        """End a drain that is under way: set its deadline to now."""
        self._hurry.set()

    def holds(self, run: RunRecord) -> bool:
        """Return whether this node executes this attempt of a run."""
        return self._worker is not None and (run.id, run.attempt, run.claim) in self._worker.held

    @property
    def event_loop(self) -> CoroutinePool[Any, Any] | None:
        """The event loop of async tasks; None if the node has none."""
        from evenbeat.executors.coroutine_pool import CoroutinePool

        executor: object = None if self._worker is None else self._worker.executor("async")
        return executor if isinstance(executor, CoroutinePool) else None

    def stop(self, drain: int | None = None, drained: Callable[[], object] | None = None) -> bool:
        """Stop claiming, give running jobs ``drain`` ms to end, hand back the rest, and stop all loops.

        ``drained`` is called after the hand-back, while the event loop of async tasks still runs. Return
        whether all running jobs ended by themselves. An exception, such as KeyboardInterrupt, ends the wait
        for jobs, and is raised when everything has stopped.
        """
        deadline = time.monotonic() + (self.settings.drain_timeout if drain is None else drain) / 1000
        self._notify("node_stopping")
        for loop in (self._ticker_loop, self._code_loop, self._duties_loop):
            if loop is not None:
                loop.stop()
        try:
            is_drained = self._drain(deadline)
        except BaseException:
            self._drain(time.monotonic())
            raise
        finally:
            try:
                if drained is not None:
                    drained()
            finally:
                self._stop_threads()
        return is_drained

    def _stop_threads(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._closing.set()
        for loop in self._loops:
            loop.stop()
        # Wakes the listener thread, which waits in the store.
        self._try(self._store.hint)
        for loop in self._loops:
            if not loop.join(_STOP_PATIENCE):
                _log.warning("a loop did not stop in time", extra={"component": loop.name})
        if self._worker is not None and self._worker_loop is not None and self._worker_loop.join(0):
            # Records the attempts that ended while the loop stopped.
            worker = self._worker
            self._try(lambda: worker.step(self.now()))
        self._listener.join(_STOP_PATIENCE)
        if self._duties_loop.join(0):
            self._try(lambda: self._rollups.write(self.now(), is_last=True))
        self._try(self._presence.leave)
        stop_capture()
        self._notify("node_stopped")
        self._status_writer.stop()
        self._probe.close()
        _log.info("stopped", extra={"component": "node", "node": self.name})

    def _drain(self, deadline: float) -> bool:
        worker = self._worker
        if worker is None:
            return True
        worker.drain()
        self._wait_until(
            lambda: (worker.is_drained and not worker.is_processing) or self._hurry.is_set(), deadline
        )
        left = [attempt for attempt in worker.running() if not attempt.is_decided]
        if left:
            _log.warning(
                "jobs are still running at the deadline and are handed back",
                extra={"component": "node", "jobs": len(left), "tasks": sorted({a.run.task for a in left})},
            )
            for attempt in left:
                worker.interrupt(attempt, "stopping")
            self._wait_until(lambda: not worker.is_processing, time.monotonic() + _INTERRUPT_GRACE)
            for attempt in worker.running():
                worker.give_up(attempt, "released")
        self._wait_until(lambda: not worker.is_processing, time.monotonic() + _STOP_PATIENCE)
        return not left

    def _wait_until(self, condition: Callable[[], bool], deadline: float) -> None:
        # Without descriptors the worker cannot record anything, so waiting is useless.
        while not condition() and self._probe.is_intact() and (left := deadline - time.monotonic()) > 0:
            # Wait in short slices, to check the condition again.
            self._closing.wait(min(left, 0.02))

    def _try(self, action: Callable[[], object]) -> None:
        """Call ``action``; ignore a store that is unavailable."""
        with contextlib.suppress(StoreUnavailable):
            self._check_descriptors()
            action()

    def _listen(self) -> None:
        """Wake the loops when the store gives a hint. One thread waits in the store for all loops."""
        poll = self.settings.poll_interval / 1000
        # Hints that came before the first wait are lost: that wait is short, and its end counts as a hint.
        is_first = True
        while not self._closing.is_set():
            try:
                self._check_descriptors()
                hinted = self._store.wait(_FIRST_WAIT if is_first else poll) or is_first
                is_first = False
            except Exception:
                # A lost hint costs latency and nothing else.
                _log.debug("waiting for hints failed", exc_info=True)
                self._closing.wait(1.0)
                hinted = True
            if hinted:
                self._fallback.hint()
                self._code_ticker.hint()
                for loop in (self._ticker_loop, self._code_loop, self._worker_loop):
                    if loop is not None:
                        loop.wake()
                self._on_hint()

    def _wake_worker(self) -> None:
        if self._worker_loop is not None:
            self._worker_loop.wake()

    def _wake_code_ticker(self) -> None:
        if self._code_loop is not None:
            self._code_loop.wake()

    def _wake_leases(self) -> None:
        if self._leases_loop is not None:
            self._leases_loop.wake()

    def _wake_owed(self) -> None:
        if self._owed is not None:
            self._duties.wake(self._owed)
            self._duties_loop.wake()

    def _wake_backfills(self) -> None:
        self._duties.wake(self._backfiller)
        self._duties_loop.wake()

    def _notify(self, kind: EventKind) -> None:
        if self._events:
            self._try(lambda: self._events.publish(kind, self.now()))
