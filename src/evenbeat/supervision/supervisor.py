"""The supervisor: starts nodes in child processes, watches them and replaces them (``evenbeat run``).

It executes no job itself, so that no job can keep it from these duties:

- it renews the leases of a child that is silent because a job holds the interpreter lock;
- it hands back the runs of a child that died, at once, and replaces the child;
- it kills a child in which a run exceeds its timeout and which does not end the run itself;
- it starts the successor of a child whose threads are stuck before that child ends.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Literal

import msgspec
from msgspec.structs import replace

from evenbeat.app.scheduler import Scheduler
from evenbeat.core.durations import write_duration
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.node.counting import Counting
from evenbeat.node.lanes import MOST_AHEAD
from evenbeat.node.node import node_name
from evenbeat.node.rollups import Rollups
from evenbeat.node.worker import SETTLE_BATCH
from evenbeat.observe.health import SILENT
from evenbeat.observe.health_server import HealthServer
from evenbeat.observe.logs import start_new_line
from evenbeat.observe.status_files import LoopStatus, NodeStatus, StatusWriter
from evenbeat.processes.signals import KILL, describe_exit, end_group, stop_signals
from evenbeat.supervision.children import Child, Children, Messages, backoff, kill
from evenbeat.supervision.dead_child_runs import DeadChildRuns, HandBack
from evenbeat.supervision.node_process import Begin, Drain, Failed, FromChild, Hurry, Recycling, Started
from evenbeat.supervision.silent_children import SilentChildren

# Seconds that a child gets after the deadline of its drain, to hand back its runs and to end.
EXIT_GRACE = 8.0
# Seconds that the supervisor tries, at its end, to hand back runs to a store that does not answer.
_STOP_PATIENCE = 5.0
# The longest pause, in seconds, between two calls of a store that is unavailable at the start.
_LONGEST_PAUSE = 2.0
# How many characters of an error a status contains.
_SHOWN = 200

_log = logging.getLogger("evenbeat.supervision.supervisor")


class Supervisor:
    """Keeps ``processes`` nodes of an app running. ``run`` does everything in the main thread."""

    def __init__(
        self,
        app: Scheduler,
        begin: Begin,
        processes: int = 1,
        *,
        wait_for_store: int = 60_000,
        health_address: tuple[str, int] | None = None,
    ) -> None:
        """``health_address`` is the host and the port of a ``HealthServer``; None: there is none."""
        settings = app.node_settings(**begin.options)
        self._app = app
        self._drain_timeout = settings.drain_timeout
        self._silent_children = SilentChildren(settings.lease)
        self._messages: Messages = SimpleQueue()
        self._name = node_name()
        slots = settings.thread_concurrency + settings.async_concurrency + settings.process_concurrency
        # Between the end of a function and its record, a child begins at most all attempts that it has and
        # those of one more claim: twice the slots and the attempts claimed ahead. Add the slots and stuck
        # threads.
        places = 4 * slots + 2 * 3 * MOST_AHEAD + SETTLE_BATCH
        begin = replace(begin, beat=min(1.0, self._silent_children.check_every / 3))
        self._children = Children(self._name, begin, processes, places, self._messages)
        self._counting = Counting()
        self._hand_back = HandBack(app, self._counting)
        self._signals = 0
        self._handled_signals = 0
        self._came_up = False
        """Whether any child has ever worked."""
        self._first_failure: str | None = None
        self._was_store_unavailable = False
        """Whether the last child that ended did so because the store did not answer."""
        self._wait_for_store = wait_for_store
        self._store_deadline = time.monotonic() + wait_for_store / 1000
        """Until then, a store that is unavailable at the start is not an error."""
        self._stepped = time.monotonic()
        self._failing: tuple[float, str] | None = None
        """Since when the supervisor's own calls of the store fail, and the last error."""
        self._status_writer = StatusWriter("supervisor", self._name, SILENT, self._status)
        self._health_server = (
            None if health_address is None else HealthServer(*health_address, self._status_writer.status)
        )

    def run(self) -> int:
        """Run until a signal comes and all children have drained; return the exit code."""
        for number in stop_signals():
            signal.signal(number, self._on_signal)
        if self._health_server is not None:
            self._health_server.start()
        self._status_writer.start()
        try:
            return self._run()
        finally:
            self._status_writer.stop()
            if self._health_server is not None:
                self._health_server.stop()

    def _run(self) -> int:
        if not self._await_store():
            return 0 if self._signals else 1
        self._check_store()
        check_at = time.monotonic()
        try:
            while True:
                self._stepped = time.monotonic()
                self._receive()
                self._handle_signals()
                self._reap()
                failure = self._start_failure()
                if failure is not None:
                    _log.error("no process could be started: %s", failure)
                    return 1
                if self._signals and not any(self._children):
                    return 0
                self._fill_slots()
                if time.monotonic() >= check_at:
                    self._check_runs()
                    check_at = time.monotonic() + self._silent_children.check_every
        finally:
            self._stop()

    # -- the store at the start ----------------------------------------------------------------------------

    def _await_store(self) -> bool:
        """Wait until the store answers; return False if it does not in time, or a signal comes first."""
        failures, patience = 0, write_duration(self._wait_for_store)
        while not self._signals:
            self._stepped = time.monotonic()
            try:
                self._app.store.now()
            except StoreUnavailable as error:
                self._note_store(error)
                if time.monotonic() >= self._store_deadline:
                    _log.error(
                        "the store did not answer within %s: %s; wait longer with --wait-for-store",
                        patience,
                        error,
                    )
                    return False
                if not failures:
                    _log.warning("the store is unavailable, waiting up to %s for it: %s", patience, error)
                failures += 1
            else:
                self._note_store(None)
                if failures:
                    _log.info("the store is available", extra={"failures": failures})
                return True
            self._pause(min(backoff(failures), _LONGEST_PAUSE))
        return False

    def _pause(self, seconds: float) -> None:
        """Wait for so long, or until a signal comes."""
        with contextlib.suppress(Empty):
            self._messages.get(timeout=seconds)

    def _check_store(self) -> None:
        """Refuse a store that the children could not share."""
        from evenbeat.stores.memory import MemoryStore

        processes = len(self._children.slots)
        if isinstance(self._app.store, MemoryStore) and processes > 1:
            raise InvalidValue(
                "each process would have a memory store of its own",
                field="processes",
                value=processes,
                hint="name a store that processes can share, as in sqlite:///evenbeat.db",
            )

    # -- status, messages and signals ----------------------------------------------------------------------

    def _status(self) -> tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]:
        """Return the status for ``evenbeat health``. The status writer's thread calls this."""
        nodes = []
        for child in self._children:
            status = child.status
            if child.deadline is not None:
                continue  # it ends, and is killed if it does not
            if status.last_message is not None and time.monotonic() - status.last_message > SILENT / 2:
                try:
                    status = status._replace(executing=child.begun.snapshot().is_executing)
                except ValueError:
                    continue  # the shared memory is closed: the child has just ended
            nodes.append(status)
        since, error = self._failing or (None, None)
        return (LoopStatus("supervisor", self._stepped, since, error),), tuple(nodes)

    def _note_store(self, error: StoreUnavailable | None) -> None:
        """Note for the status whether the last call of the store failed."""
        if error is None:
            self._failing = None
        else:
            self._failing = (self._failing[0] if self._failing else time.monotonic(), str(error)[:_SHOWN])

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._messages.put(None)

    def _receive(self) -> None:
        """Handle the messages of children; return in time for the next check."""
        timeout = min(self._silent_children.check_every, 0.25)
        try:
            message = self._messages.get(timeout=timeout)
            while True:
                if message is not None:
                    self._handle(*message)
                message = self._messages.get_nowait()
        except Empty:
            return

    def _handle(self, child: Child, message: FromChild | None) -> None:
        child.last_message = time.monotonic()
        if isinstance(message, Started):
            child.up = self._came_up = True
            self._status_writer.wake()
            _log.info("a process is up", extra={"node": child.name, "pid": child.process.pid})
        elif isinstance(message, Failed):
            child.failure, child.store_unavailable = message.error, message.store_unavailable
        elif isinstance(message, Recycling):
            # The next child starts at once, so that stuck threads cost no capacity.
            self._children.vacate(child)
            child.deadline = time.monotonic() + self._drain_timeout / 1000 + EXIT_GRACE

    def _handle_signals(self) -> None:
        """Drain after the first signal, hurry after the second, kill after the third."""
        now = time.monotonic()
        while self._handled_signals < self._signals:
            self._handled_signals += 1
            is_first = self._handled_signals == 1
            message: msgspec.Struct = Drain(self._drain_timeout) if is_first else Hurry()
            wait = {1: self._drain_timeout / 1000 + EXIT_GRACE, 2: EXIT_GRACE}.get(self._handled_signals, 0.0)
            if is_first:
                _log.info("stopping", extra={"drain": write_duration(self._drain_timeout)})
            for child in self._children:
                if child.deadline is None or not is_first:
                    child.deadline = now + wait
                child.channel.send(message)

    # -- starting and reaping children ---------------------------------------------------------------------

    def _fill_slots(self) -> None:
        """Start a child in each empty slot whose backoff is over."""
        for slot in self._children.slots:
            if slot.child is not None or self._signals or time.monotonic() < slot.start_at:
                continue
            # As long as no child has worked, each slot is tried once: if all fail, the failure is final.
            if self._came_up or not slot.short_lives or self._is_waiting_for_store():
                self._children.start(slot)

    def _reap(self) -> None:
        """Remove children that have ended, and kill those that are past their deadline."""
        now = time.monotonic()
        for child in tuple(self._children):
            if child.process.poll() is not None:
                self._reap_ended(child)
            elif child.deadline is not None and now >= child.deadline:
                _log.error("a process does not stop and is killed", extra={"node": child.name})
                self._kill(child, DeadChildRuns(child.name, "released", "it did not stop"))

    def _reap_ended(self, child: Child) -> None:
        exit_text = describe_exit(child.process.returncode)
        fields = {"node": child.name, "pid": child.process.pid}
        why = f"its process died with {exit_text}"
        # Not by the exit code, which a job may choose.
        is_orderly = child.begun.has_left()
        if not is_orderly:
            # The processes that its jobs have started end, too: the runs begin again elsewhere.
            end_group(child.process, KILL)
            start_new_line()
        if child.begun.has_lost_descriptors():
            why = "a job closed file descriptors of its process that it had not opened"
            _log.error(
                "a job closed file descriptors that it had not opened, its process is replaced", extra=fields
            )
        if child.failure is None:
            level = logging.INFO if is_orderly else logging.ERROR
            _log.log(level, "a process has ended", extra={**fields, "exit": exit_text.split()[-1]})
        else:
            _log.error("a process could not start: %s", child.failure, extra={"node": child.name})
        # A child that ended in order holds no runs, unless the store did not accept them back.
        how: Literal["crashed", "released"] = "released" if is_orderly else "crashed"
        dead = DeadChildRuns(child.name, how, why, child.begun.snapshot())
        self._remove(child)
        self._hand_back.add(dead)

    def _kill(self, child: Child, dead: DeadChildRuns) -> None:
        kill(child)
        start_new_line()
        self._remove(child, at_once=True)
        self._hand_back.add(dead)

    def _remove(self, child: Child, *, at_once: bool = False) -> None:
        # A job may have ended the process before it could report that it was up.
        self._came_up = self._came_up or child.begun.is_used()
        self._children.remove(child, at_once=at_once)
        if not child.up and not self._came_up:
            self._was_store_unavailable = child.store_unavailable
            self._first_failure = child.failure or f"it ended with {describe_exit(child.process.returncode)}"

    def _start_failure(self) -> str | None:
        """Return why no child has ever worked, once this is final: retrying forever would only hide it."""
        if self._came_up or self._signals or any(self._children) or self._is_waiting_for_store():
            return None
        return self._first_failure

    def _is_waiting_for_store(self) -> bool:
        """Return whether the children wait for a store that became unavailable before the first was up."""
        return self._was_store_unavailable and time.monotonic() < self._store_deadline

    def _stop(self) -> None:
        """Kill the children that are left, and hand back their runs."""
        for child in tuple(self._children):
            self._kill(child, DeadChildRuns(child.name, "released", "the supervisor stops"))
        deadline = time.monotonic() + _STOP_PATIENCE
        while self._hand_back and time.monotonic() < deadline:
            time.sleep(0.2)
            with contextlib.suppress(StoreUnavailable):
                self._hand_back.step()
        for dead in self._hand_back:
            _log.error(
                "runs could not be handed back, their leases have to expire", extra={"node": dead.name}
            )
        with contextlib.suppress(StoreUnavailable):
            self._rollups.write(self._app.store.now(), is_last=True)
        self._app.close()

    # -- runs ----------------------------------------------------------------------------------------------

    @property
    def _rollups(self) -> Rollups:
        return Rollups(self._app.store, self._counting, self._name, ticker=False, worker=False)

    def _check_runs(self) -> None:
        """Hand back runs of dead children, and check silent ones. The next check retries after a failure."""
        self._silent_children.forgive_pause(self._children)
        try:
            self._hand_back.step()
            store = self._app.store
            now = store.now()
            for child in tuple(self._children):
                overdue = self._silent_children.check(store, child, now)
                if overdue:
                    keys = frozenset(run.attempt_identity for run in overdue)
                    why = "another run of its process exceeded its timeout"
                    self._kill(child, DeadChildRuns(child.name, "released", why, overdue=keys))
            self._rollups.write(now)
        except StoreUnavailable as error:
            self._note_store(error)
            _log.error("the store is unavailable, retrying: %s", error)
        else:
            self._note_store(None)
