"""The supervisor: nodes in processes of their own, kept alive, watched and replaced (``evenbeat run``).

It executes nothing itself, so that no job can keep it from doing this:

- leases of a process that gives no sign of life (a job keeps the interpreter to itself) are renewed;
- runs of a process that died are handed back at once, and the process is replaced;
- a run that takes too long in a process that can't see to it ends with that process;
- a process whose threads are stuck is replaced before it ends.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from evenbeat.app.scheduler import Scheduler
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.node.settling import settle_in_parts
from evenbeat.node.worker import MOST_AHEAD, SETTLE_BATCH
from evenbeat.observe.health import SILENT
from evenbeat.observe.logs import run_fields
from evenbeat.observe.status_files import LoopStatus, NodeStatus, StatusWriter
from evenbeat.processes.begun import Begun, Snapshot, make_file
from evenbeat.processes.channel import Channel
from evenbeat.processes.signals import KILL, describe_exit, end_group, stop_signals
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery
from evenbeat.supervision.node_process import (
    Alive,
    Begin,
    Drain,
    Failed,
    FromChild,
    Hurry,
    Recycling,
    Started,
)

# A run that has taken so much longer than it may, in a process that has been silent for as long, is ended.
GRACE = 5.0
# After the deadline of a drain, the last acts of a process may take so long.
LAST_ACTS = 8.0
# Between the death of a process and the start of the next: doubled each time, until one has lived.
FIRST_BACKOFF, LONGEST_BACKOFF, LIVED = 0.5, 30.0, 30.0
# How long runs are tried to be handed back, at the end, to a store that does not answer.
_LAST_TRIES = 5.0
_BATCH = 500
# Between two questions to a store that is away at the start.
_LONGEST_PAUSE = 2.0

_decoder: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)
_log = logging.getLogger("evenbeat.supervision.supervisor")


class Child:
    """A node in a process of its own. All times are by ``time.monotonic``."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], channel: Channel[FromChild], begun: Begun
    ) -> None:
        self.name = name
        self.process = process
        self.channel = channel
        self.begun = begun
        self.started = self.heard = time.monotonic()
        self.up = False
        self.failure: str | None = None
        """Why it could not be started."""
        self.away = False
        """That was because the store did not answer."""
        self.deadline: float | None = None
        """It has been told to stop, or does by itself: it is killed if it is still there then."""
        self.kept = False
        """Its leases are renewed here."""
        self.status = NodeStatus(name, process.pid, up=False, heard=self.heard)
        """As it said last; written by the thread that listens."""


class Slot:
    """A place for a process: one of so many that should be there."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.start_at = 0.0
        self.deaths = 0
        """In a row, none of which had lived for long."""


class DeadChildRuns(NamedTuple):
    """What a process that is gone has left: its runs, to be handed back."""

    name: str
    how: Literal["crashed", "released"]
    """Whether it counts as a crash of the runs that it had begun."""
    why: str
    begun: Snapshot = Snapshot()
    overdue: frozenset[tuple[str, int]] = frozenset()
    """Those for whose sake it was killed: they have timed out."""

    def blames(self, run: RunRecord) -> bool:
        """Whether the end of the process counts as a crash of this run.

        What was over can't have caused it, as long as something else was going on, and may be done again,
        unless that is just what must not be. With nothing else going on, recording it may be the cause.
        """
        state = self.begun.state(run.id, run.attempt) if self.how == "crashed" else "claimed"
        if state == "ended":
            return run.execution.on_crash == "fail" or not self.begun.is_executing
        return state == "executing"


class Supervisor:
    """Keeps ``processes`` nodes of an app running. ``run`` has the main thread, and does everything in it."""

    def __init__(
        self, app: Scheduler, begin: Begin, processes: int = 1, *, wait_for_store: int = 60_000
    ) -> None:
        settings = app.node_settings(**begin.options)
        self._app = app
        self._drain = settings.drain_timeout
        self._lease = settings.lease
        slots = settings.thread_concurrency + settings.async_concurrency + settings.process_concurrency
        # Between the end of a function and its record at most all that is in hand is begun, and what one more
        # claim brings: twice the slots and what is claimed ahead. The slots themselves, and stuck threads.
        self._places = 4 * slots + 2 * 3 * MOST_AHEAD + SETTLE_BATCH
        # Short enough that a renewal that is missed by a process is made up for twice over.
        self._look = settings.lease / 1000 / 6
        self._begin = replace(begin, beat=min(1.0, self._look / 3))
        self._slots = [Slot() for _ in range(processes)]
        self._leaving: list[Child] = []
        """Replaced already, or not to be replaced; still there."""
        self._dead_children: list[DeadChildRuns] = []
        self._words: SimpleQueue[tuple[Child, FromChild | None] | None] = SimpleQueue()
        """Of children, None at their end; None of a signal."""
        self._signals = 0
        self._heeded = 0
        self._came_up = False
        self._first_failure: str | None = None
        self._was_away = False
        """The last process that ended did so because the store did not answer."""
        self._looked = time.monotonic()
        self._wait_for_store = wait_for_store
        self._store_deadline = time.monotonic() + wait_for_store / 1000
        """Until then a store that is away at the start is not an error."""
        self._name = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"
        self._count = 0
        self._stepped = time.monotonic()
        self._status_writer = StatusWriter("supervisor", self._name, SILENT, self._status)

    def run(self) -> int:
        """Until a signal comes and all processes have drained; the answer is the exit code."""
        for number in stop_signals():
            signal.signal(number, self._signalled)
        self._status_writer.start()
        try:
            return self._run()
        finally:
            self._status_writer.stop()

    def _run(self) -> int:
        if not self._await_store():
            return 0 if self._signals else 1
        self._check()
        look_at = time.monotonic()
        try:
            while True:
                self._stepped = time.monotonic()
                self._hear()
                self._heed_signals()
                self._reap()
                failure = self._failure()
                if failure is not None:
                    _log.error("no process could be started: %s", failure)
                    return 1
                if self._signals and not any(self._children()):
                    return 0
                self._fill()
                if time.monotonic() >= look_at:
                    self._look_after()
                    look_at = time.monotonic() + self._look
        finally:
            self._leave()

    def _await_store(self) -> bool:
        """Wait for a store that is away: False if it does not come, or somebody wants to stop meanwhile."""
        failures, patience = 0, write_duration(self._wait_for_store)
        while not self._signals:
            self._stepped = time.monotonic()
            try:
                self._app.store.now()
            except StoreUnavailable as error:
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
                if failures:
                    _log.info("the store is available", extra={"failures": failures})
                return True
            self._pause(min(backoff(failures), _LONGEST_PAUSE))
        return False

    def _pause(self, seconds: float) -> None:
        """Until then, or the next signal."""
        with contextlib.suppress(Empty):
            self._words.get(timeout=seconds)

    def _check(self) -> None:
        from evenbeat.stores.memory import MemoryStore

        if isinstance(self._app.store, MemoryStore) and len(self._slots) > 1:
            raise InvalidValue(
                "each process would have a memory of its own",
                field="processes",
                value=len(self._slots),
                hint="name a store that processes can share, as in sqlite:///evenbeat.db",
            )

    def _status(self) -> tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]:
        """For ``evenbeat health``; called by a thread of its own."""
        nodes = []
        for child in tuple(self._children()):
            status = child.status
            if child.deadline is not None:
                continue  # it leaves, and is killed if it does not
            if status.heard is not None and time.monotonic() - status.heard > SILENT / 2:
                try:
                    status = status._replace(executing=child.begun.snapshot().is_executing)
                except ValueError:
                    continue  # closed: it has just ended
            nodes.append(status)
        return (LoopStatus("supervisor", self._stepped),), tuple(nodes)

    # -- hearing -------------------------------------------------------------------------------------------

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        self._words.put(None)

    def _hear(self) -> None:
        """What children say; comes back in time for the next look."""
        timeout = min(self._look, 0.25)
        try:
            word = self._words.get(timeout=timeout)
            while True:
                if word is not None:
                    self._understand(*word)
                word = self._words.get_nowait()
        except Empty:
            return

    def _understand(self, child: Child, message: FromChild | None) -> None:
        child.heard = time.monotonic()
        if isinstance(message, Started):
            child.up = self._came_up = True
            self._status_writer.wake()
            _log.info("a process is up", extra={"node": child.name, "pid": child.process.pid})
        elif isinstance(message, Failed):
            child.failure, child.away = message.error, message.away
        elif isinstance(message, Recycling):
            # Its slot is free for the next at once: what is stuck must not cost capacity.
            for slot in self._slots:
                if slot.child is child:
                    slot.child, slot.start_at = None, 0.0
                    self._leaving.append(child)
            child.deadline = time.monotonic() + self._drain / 1000 + LAST_ACTS

    def _heed_signals(self) -> None:
        """The first drains, the second hurries, a third one kills."""
        now = time.monotonic()
        while self._heeded < self._signals:
            self._heeded += 1
            message: msgspec.Struct = Drain(self._drain) if self._heeded == 1 else Hurry()
            wait = {1: self._drain / 1000 + LAST_ACTS, 2: LAST_ACTS}.get(self._heeded, 0.0)
            if self._heeded == 1:
                _log.info("stopping", extra={"drain": write_duration(self._drain)})
            for child in self._children():
                if child.deadline is None or self._heeded > 1:
                    child.deadline = now + wait
                child.channel.send(message)

    # -- life and death ------------------------------------------------------------------------------------

    def _children(self) -> Iterator[Child]:
        for slot in self._slots:
            if slot.child is not None:
                yield slot.child
        yield from tuple(self._leaving)

    def _fill(self) -> None:
        """Start what is missing, and due."""
        for slot in self._slots:
            if slot.child is not None or self._signals or time.monotonic() < slot.start_at:
                continue
            # As long as nothing has come up, a failure is final once it is that of all.
            if self._came_up or not slot.deaths or self._is_waiting():
                try:
                    slot.child = self._start()
                except OSError as error:
                    slot.deaths += 1
                    slot.start_at = time.monotonic() + backoff(slot.deaths)
                    _log.error("a process can't be started, trying again: %s", error)

    def _start(self) -> Child:
        self._count += 1
        name = f"{self._name}-{self._count}"
        ours, theirs = socket.socketpair()
        with ours, theirs, make_file(self._places) as file:
            number = file.fileno()
            process = subprocess.Popen(  # noqa: S603  # the name is ours
                [sys.executable, "-P", "-m", "evenbeat.supervision.node_process", name],
                stdin=theirs.fileno(),
                pass_fds=(number,),
                # Ctrl-C in a terminal is for the supervisor, which passes it on.
                start_new_session=True,
            )
            reader, writer = (io.FileIO(os.dup(ours.fileno()), mode) for mode in ("rb", "wb"))
            begun = Begun(number)
        channel = Channel(reader, writer, _decoder)
        child = Child(name, process, channel, begun)
        threading.Thread(target=self._listen, args=(child,), name=f"evenbeat-{name}", daemon=True).start()
        channel.send(replace(self._begin, name=name, begun=number))
        return child

    def _listen(self, child: Child) -> None:
        while (message := child.channel.receive()) is not None:
            status = (message.status if isinstance(message, Alive) else None) or child.status
            up = child.status.up or isinstance(message, Started)
            child.status = status._replace(up=up, heard=time.monotonic())
            self._words.put((child, message))
        child.channel.close()
        self._words.put((child, None))

    def _reap(self) -> None:
        """See who is gone, and who should be."""
        now = time.monotonic()
        for child in tuple(self._children()):
            if child.process.poll() is None:
                if child.deadline is not None and now >= child.deadline:
                    _log.error("a process does not stop and is killed", extra={"node": child.name})
                    self._kill(child, DeadChildRuns(child.name, "released", "it did not stop"))
                continue
            code = child.process.returncode
            why = f"its process died with {describe_exit(code)}"
            if child.begun.has_lost_descriptors():
                why = "a job closed files of its process that are not its own"
                _log.error(
                    "a job closed files that are not its own, its process is replaced",
                    extra={"node": child.name, "pid": child.process.pid},
                )
            # Not by its exit code: a job may end the process with any.
            orderly = child.begun.has_left()
            if not orderly:
                # What its jobs have started goes with it: the runs begin anew elsewhere.
                end_group(child.process, KILL)
            if child.failure is None:
                level = logging.INFO if orderly else logging.ERROR
                fields = {
                    "node": child.name,
                    "pid": child.process.pid,
                    "exit": describe_exit(code).split()[-1],
                }
                _log.log(level, "a process has ended", extra=fields)
            else:
                _log.error("a process could not start: %s", child.failure, extra={"node": child.name})
            # One that has left in order holds nothing, unless the store did not take it back.
            how: Literal["crashed", "released"] = "released" if orderly else "crashed"
            dead = DeadChildRuns(child.name, how, why, child.begun.snapshot())
            self._forget(child)
            self._hand_back(dead)

    def _kill(self, child: Child, dead: DeadChildRuns) -> None:
        end_group(child.process, KILL)
        child.process.wait()
        self._forget(child, at_once=True)
        self._hand_back(dead)

    def _forget(self, child: Child, at_once: bool = False) -> None:
        # A job may have ended the process before that could say that it is up.
        self._came_up = self._came_up or child.begun.is_used()
        child.begun.close()
        if child in self._leaving:
            self._leaving.remove(child)
        now = time.monotonic()
        for slot in self._slots:
            if slot.child is child:
                slot.child = None
                slot.deaths = 1 if now - child.started >= LIVED else slot.deaths + 1
                slot.start_at = now if at_once else now + backoff(slot.deaths)
        if not child.up and not self._came_up:
            self._was_away = child.away
            self._first_failure = child.failure or f"it ended with {describe_exit(child.process.returncode)}"

    def _failure(self) -> str | None:
        """Why nothing ever came up: trying again for ever would only hide it."""
        if self._came_up or self._signals or any(self._children()) or self._is_waiting():
            return None
        return self._first_failure

    def _is_waiting(self) -> bool:
        """Whether the store went away again before the first process was up, and may come back."""
        return self._was_away and time.monotonic() < self._store_deadline

    def _leave(self) -> None:
        """The last act: nothing is left running, and nothing in hand."""
        for child in tuple(self._children()):
            self._kill(child, DeadChildRuns(child.name, "released", "the supervisor stops"))
        deadline = time.monotonic() + _LAST_TRIES
        while self._dead_children and time.monotonic() < deadline:
            time.sleep(0.2)
            self._settle_estates()
        for dead in self._dead_children:
            _log.error("runs could not be handed back: their leases will end", extra={"node": dead.name})
        self._app.close()

    # -- runs ----------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        """What its children can't do themselves. A store that is away is asked again with the next look."""
        clock = time.monotonic()
        if clock - self._looked > GRACE / 2 + 2 * self._look:
            # It was this process that was away (frozen, or waiting for the store): what the others have
            # said meanwhile may not have arrived yet.
            for child in self._children():
                child.heard = clock
        self._looked = clock
        try:
            self._settle_estates()
            now = self._app.store.now()
            for child in tuple(self._children()):
                self._look_at(child, now)
        except StoreUnavailable as error:
            _log.error("the store is unavailable, trying again: %s", error)

    def _look_at(self, child: Child, now: Instant) -> None:
        silent = time.monotonic() - child.heard
        if silent < self._look:
            # Alive: it renews what it holds, and what it does not renew it has let go on purpose.
            child.kept = False
            return
        runs = self._running(child.name)
        if silent >= GRACE and (overdue := _overdue(runs, child.begun.snapshot(), now)):
            names = sorted({run.task for run in overdue})
            _log.error(
                "a run takes too long in a process that does not answer, which is killed",
                extra={"node": child.name, "silent": round(silent, 1), "tasks": names},
            )
            keys = frozenset((run.id, run.attempt) for run in overdue)
            why = "another run of its process took too long"
            self._kill(child, DeadChildRuns(child.name, "released", why, overdue=keys))
            return
        low = [run for run in runs if run.lease_until is not None and run.lease_until - now < self._lease / 2]
        if not low:
            return
        if not child.kept:
            child.kept = True
            _log.warning(
                "a process does not answer, its leases are renewed for it",
                extra={
                    "node": child.name,
                    "silent": round(silent, 1),
                    "tasks": sorted({run.task for run in runs}),
                },
            )
        for at in range(0, len(low), _BATCH):
            self._app.store.settle_runs(
                [attempts.heartbeat(run, self._lease, uuid4().hex) for run in low[at : at + _BATCH]]
            )

    def _running(self, worker: str) -> list[RunRecord]:
        found: list[RunRecord] = []
        query = RunQuery(worker=worker, states=("running",), limit=_BATCH)
        while True:
            page = self._app.store.find_runs(query)
            found += page.items
            if page.cursor is None:
                return found
            query = replace(query, cursor=page.cursor)

    def _hand_back(self, dead: DeadChildRuns) -> None:
        self._dead_children.append(dead)
        try:
            self._settle_estates()
        except StoreUnavailable as error:
            _log.error("runs can't be handed back yet, trying again: %s", error, extra={"node": dead.name})

    def _settle_estates(self) -> None:
        while self._dead_children:
            self._settle_runs_of(self._dead_children[0])
            del self._dead_children[0]

    def _settle_runs_of(self, dead: DeadChildRuns) -> None:
        store = self._app.store
        runs = self._running(dead.name)
        now = store.now()
        for at in range(0, len(runs), _BATCH):
            batch = runs[at : at + _BATCH]
            ends = [after_death(run, dead, now) for run in batch]
            answers = itertools.chain.from_iterable(settle_in_parts(store, ends, "supervisor"))
            for run, accepted in zip(batch, answers, strict=True):
                if accepted:
                    self._tell(run, dead, now)
        if runs:
            store.hint()

    def _tell(self, run: RunRecord, dead: DeadChildRuns, now: Instant) -> None:
        fields = {**run_fields(run), "worker": dead.name}
        if (run.id, run.attempt) in dead.overdue:
            _log.error("a run has timed out with its process", extra=fields)
        elif not dead.blames(run):
            _log.warning("a run was handed back", extra={**fields, "why": dead.why})
        else:
            _log.error("a worker died, its run is handed back", extra={**fields, "why": dead.why})
            self._app.events.tell("crashed", now, run=run, error=f"worker {dead.name} was lost: {dead.why}")


def backoff(deaths: int) -> float:
    """How long to wait after so many deaths in a row."""
    return min(FIRST_BACKOFF * float(1 << min(deaths - 1, 10)), LONGEST_BACKOFF)


def _overdue(runs: list[RunRecord], begun: Snapshot, now: Instant) -> list[RunRecord]:
    return [run for run in runs if is_overdue(run, now) and begun.state(run.id, run.attempt) == "executing"]


def is_overdue(run: RunRecord, now: Instant) -> bool:
    """Whether it has taken longer than it may, and its own worker has had the time to see to it."""
    timeout = run.execution.timeout
    return (
        timeout is not None and run.started_at is not None and now - run.started_at > timeout + GRACE * 1000
    )


def after_death(run: RunRecord, dead: DeadChildRuns, now: Instant) -> Transition:
    """What becomes of a run whose process is gone."""
    token = uuid4().hex
    if (run.id, run.attempt) in dead.overdue:
        allowed = write_duration(run.execution.timeout or 0)
        return attempts.failed(run, f"timed out after {allowed}, and its process was killed", now, token)
    if run.cancel_requested:
        return attempts.cancelled(run, now, token)
    if not dead.blames(run):
        return attempts.released(run, now, token)
    # Nobody has to wait for the lease: the process is known to be gone.
    error = f"worker {dead.name} was lost during attempt {run.attempt}: {dead.why}"
    return replace(attempts.crashed(run, now, token, error), lease_ended=False)
