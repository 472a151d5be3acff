"""The node process: a node in a process that the supervisor of ``evenbeat run`` starts, watches and replaces.

Its stdin is a socket to the supervisor, for both directions. When the supervisor is gone, it drains and ends.
"""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.app.loading import load_app
from evenbeat.app.scheduler import Scheduler
from evenbeat.config import DeclaredAlert
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.executors.base import Attempt, describe
from evenbeat.node.node import Node
from evenbeat.observe import logs
from evenbeat.observe.status_files import NodeStatus, Pauses, forgive
from evenbeat.processes import begun, forks
from evenbeat.processes.begun import Begun
from evenbeat.processes.channel import Channel, storable
from evenbeat.schedule_files import ScheduleFile

RECYCLE = 75
"""The exit code of a process that wants to be replaced by a fresh one (EX_TEMPFAIL)."""

_log = logging.getLogger("evenbeat.supervision.node_process")


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message: what the node is to do."""

    app: str
    """A module or file, as ``load_app`` reads it."""
    name: str = ""
    """The name of the node, by which the supervisor finds its runs."""
    ticker: bool = True
    worker: bool = True
    options: dict[str, Any] = {}
    alerts: tuple[DeclaredAlert, ...] = ()
    """The alert channels and rules that files declare."""
    schedules: ScheduleFile | None = None
    """The schedules that files declare."""
    beat: float = 1.0
    """Seconds between two ``Alive`` messages."""
    stuck: float = 30.0
    """The process is replaced when a function runs for this many seconds after its attempt was given up."""
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"
    begun: int | None = None
    """The descriptor of the file in which the process notes the attempts that it begins."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Stop the node; running jobs get ``deadline`` milliseconds to end."""

    deadline: int


class Hurry(msgspec.Struct, frozen=True, tag=True):
    """End the drain: its deadline is now."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """The node has started."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The node could not start."""

    error: str
    store_unavailable: bool = False
    """Whether the reason is that the store did not answer."""


class Alive(msgspec.Struct, frozen=True, tag=True):
    """The process is alive: no job holds the interpreter lock."""

    status: NodeStatus | None = None
    """The status of the node."""


class Recycling(msgspec.Struct, frozen=True, tag=True):
    """Threads of this process are stuck; it drains, and the supervisor should start another one."""


ToChild: TypeAlias = Begin | Drain | Hurry
FromChild: TypeAlias = Started | Failed | Alive | Recycling

_decoder: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


def main() -> int:
    """Run the node that the supervisor asks for, until it asks to stop; return the exit code."""
    # Copies of stdin, which programs that a job starts do not inherit: only this process holds the socket.
    channel = Channel(io.FileIO(os.dup(0), "rb"), io.FileIO(os.dup(0), "wb"), _decoder)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    begin = channel.receive()
    if not isinstance(begin, Begin):
        return 1  # the supervisor is gone
    if begin.begun is not None:
        begun.here = Begun(begin.begun)
        os.close(begin.begun)
        begun.here.watch_descriptors()
    logs.configure(begin.log_format, begin.log_level)
    return NodeProcess(channel, begin).serve()


class NodeProcess:
    """One node process. ``serve`` takes the main thread."""

    def __init__(self, channel: Channel[ToChild], begin: Begin) -> None:
        self._channel = channel
        self._begin = begin
        self._drain: SimpleQueue[timedelta | None] = SimpleQueue()
        """Requests to stop, with the time that running jobs get; None for ``drain_timeout``."""
        self._node: Node | None = None

    def serve(self) -> int:
        """Start the node, wait for a request to stop, and stop it; return the exit code."""
        try:
            app = load_app(self._begin.app)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._on_signal)
            forks.restore_signals({signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler})
            app.alerts.declare_config(self._begin.alerts)
            if self._begin.schedules is not None:
                app.declare_file(self._begin.schedules)
            options = self._begin.options
            app.start(ticker=self._begin.ticker, worker=self._begin.worker, name=self._begin.name, **options)
        except Exception as error:
            text = str(error) if isinstance(error, EvenbeatError) else describe(error)
            is_unavailable = isinstance(error, StoreUnavailable)
            self._channel.send(Failed(storable(text), store_unavailable=is_unavailable))
            return 1
        self._node = app.node
        for target in (self._listen, self._beat):
            name = f"evenbeat-{target.__name__.strip('_')}"
            threading.Thread(target=target, name=name, daemon=True).start()
        self._channel.send(Started())
        recycle, drain = self._wait(app)
        app.stop(drain)
        app.close()
        if begun.here is not None:
            begun.here.leave()
        return self._exit(RECYCLE if recycle else 0)

    def _wait(self, app: Scheduler) -> tuple[bool, timedelta | None]:
        """Wait until it is time to stop; return whether to be replaced, and the time for running jobs."""
        stuck = StuckThreads(self._begin.stuck)
        while True:
            try:
                return False, self._drain.get(timeout=self._begin.beat)
            except Empty:
                worker = None if app.node is None else app.node.worker
                if worker is not None and (names := stuck.find(worker.running(), time.monotonic())):
                    _log.warning("jobs don't stop, the process is replaced", extra={"tasks": names})
                    self._channel.send(Recycling())
                    return True, None

    def _exit(self, code: int) -> int:
        """Return the exit code, or end the process here if a function still runs in a thread."""
        node = self._node
        if node is not None and node.worker is not None and node.worker.running():
            # At its exit, the interpreter may wait forever for a thread that never ends.
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
        return code

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._drain.put(None)

    def _listen(self) -> None:
        """Receive the supervisor's messages."""
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Drain):
                self._drain.put(timedelta(milliseconds=message.deadline))
            elif isinstance(message, Hurry) and self._node is not None:
                self._node.hurry()
        self._check_descriptors()
        self._drain.put(None)  # the supervisor is gone

    def _beat(self) -> None:
        """Send ``Alive`` messages until the supervisor is gone."""
        pauses = Pauses()
        while True:
            self._check_descriptors()
            resumed = pauses.check(time.monotonic())
            status = None if self._node is None else self._node.status()
            if status is not None:
                status = status._replace(loops=forgive(status.loops, resumed))
            if not self._channel.send(Alive(status)):
                break
            time.sleep(self._begin.beat)
        self._check_descriptors()

    def _check_descriptors(self) -> None:
        """End this process if a job closed its descriptors, which looks as if the supervisor were gone."""
        if begun.here is not None:
            begun.here.check_descriptors()


class StuckThreads:
    """Finds functions that still run long after their attempt was given up: each occupies a thread."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[Attempt, float] = {}

    def find(self, running: Iterable[Attempt], now: float) -> list[str]:
        """Return the tasks of the attempts that have been stuck for longer than the patience."""
        stuck = [
            attempt
            for attempt in running
            if attempt.is_decided and attempt.began is not None and attempt.over is None
        ]
        self._since = {attempt: self._since.get(attempt, now) for attempt in stuck}
        late = (attempt for attempt, since in self._since.items() if now - since > self._patience)
        return sorted({attempt.run.task for attempt in late})


if __name__ == "__main__":
    sys.exit(main())
