"""A node under a supervisor: the process that ``evenbeat run`` starts, watches and replaces.

Its stdin is the way to the supervisor, in both directions. When that is gone it drains and ends.
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
from evenbeat.errors import EvenbeatError, StoreUnavailable
from evenbeat.executors.base import Attempt, describe
from evenbeat.node.node import Node
from evenbeat.observe import logs
from evenbeat.observe.status_files import NodeStatus, Pauses, forgive
from evenbeat.processes import begun, forks
from evenbeat.processes.begun import Begun
from evenbeat.processes.channel import Channel, storable

RECYCLE = 75
"""The exit code of a process that makes room for a fresh one (EX_TEMPFAIL)."""

_log = logging.getLogger("evenbeat.supervision.node_process")


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What to be: the first message."""

    app: str
    """As ``load_app`` reads it."""
    name: str = ""
    """The node's: how the supervisor finds its runs."""
    ticker: bool = True
    worker: bool = True
    options: dict[str, Any] = {}
    beat: float = 1.0
    """Seconds between two signs of life."""
    stuck: float = 30.0
    """A process is replaced when a function goes on for so long after its attempt was given up."""
    log_format: Literal["text", "json"] = "text"
    log_level: str = "INFO"
    begun: int | None = None
    """The file to note in what was begun."""


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Stop: running jobs get so many milliseconds."""

    deadline: int


class Hurry(msgspec.Struct, frozen=True, tag=True):
    """The deadline is now."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """The node works."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """It could not be started."""

    error: str
    away: bool = False
    """The store did not answer."""


class Alive(msgspec.Struct, frozen=True, tag=True):
    """A sign of life: no job keeps the interpreter to itself."""

    status: NodeStatus | None = None
    """How the node is."""


class Recycling(msgspec.Struct, frozen=True, tag=True):
    """Threads are stuck; this process drains, and another one should take its place."""


ToChild: TypeAlias = Begin | Drain | Hurry
FromChild: TypeAlias = Started | Failed | Alive | Recycling

_decoder: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


def main() -> int:
    """Be the node that the supervisor says, until it says stop; the answer is the exit code."""
    # Copies, which programs that a job starts do not inherit: only this process holds the line.
    channel = Channel(io.FileIO(os.dup(0), "rb"), io.FileIO(os.dup(0), "wb"), _decoder)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    begin = channel.receive()
    if not isinstance(begin, Begin):
        return 1  # the supervisor is gone already
    if begin.begun is not None:
        begun.here = Begun(begin.begun)
        os.close(begin.begun)
        begun.here.watch_descriptors()
    logs.configure(begin.log_format, begin.log_level)
    return NodeProcess(channel, begin).serve()


class NodeProcess:
    """The life of one such process. ``serve`` has the main thread."""

    def __init__(self, channel: Channel[ToChild], begin: Begin) -> None:
        self._channel = channel
        self._begin = begin
        self._drain: SimpleQueue[timedelta | None] = SimpleQueue()
        """The order to stop, with the time for running jobs; None: as the settings say."""
        self._node: Node | None = None

    def serve(self) -> int:
        try:
            app = load_app(self._begin.app)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self._signalled)
            forks.restore_signals({signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler})
            options = self._begin.options
            app.start(ticker=self._begin.ticker, worker=self._begin.worker, name=self._begin.name, **options)
        except Exception as error:
            said = str(error) if isinstance(error, EvenbeatError) else describe(error)
            self._channel.send(Failed(storable(said), away=isinstance(error, StoreUnavailable)))
            return 1
        self._node = app.node
        for duty in (self._listen, self._beat):
            threading.Thread(target=duty, name=f"evenbeat-{duty.__name__.strip('_')}", daemon=True).start()
        self._channel.send(Started())
        recycle, drain = self._wait(app)
        app.stop(drain)
        app.close()
        if begun.here is not None:
            begun.here.leave()
        return self._leave(RECYCLE if recycle else 0)

    def _wait(self, app: Scheduler) -> tuple[bool, timedelta | None]:
        """Until it is time to stop: whether for being replaced, and the time for running jobs."""
        stuck = StuckThreads(self._begin.stuck)
        while True:
            try:
                return False, self._drain.get(timeout=self._begin.beat)
            except Empty:
                worker = None if app.node is None else app.node.worker
                if worker is not None and (names := stuck.look(worker.running(), time.monotonic())):
                    _log.warning("jobs don't end, the process is replaced", extra={"tasks": names})
                    self._channel.send(Recycling())
                    return True, None

    def _leave(self, code: int) -> int:
        node = self._node
        if node is not None and node.worker is not None and node.worker.running():
            # A thread that never ends may hold what the interpreter waits for at its end.
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)
        return code

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._drain.put(None)

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Drain):
                self._drain.put(timedelta(milliseconds=message.deadline))
            elif isinstance(message, Hurry) and self._node is not None:
                self._node.hurry()
        self._drain.put(None)  # the supervisor is gone

    def _beat(self) -> None:
        pauses = Pauses()
        while True:
            if begun.here is not None:
                begun.here.check_descriptors()
            resumed = pauses.look(time.monotonic())
            status = None if self._node is None else self._node.status()
            if status is not None:
                status = status._replace(loops=forgive(status.loops, resumed))
            if not self._channel.send(Alive(status)):
                return
            time.sleep(self._begin.beat)


class StuckThreads:
    """Functions that go on after their attempt was given up: each takes a thread from the others."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[Attempt, float] = {}

    def look(self, running: Iterable[Attempt], now: float) -> list[str]:
        """The tasks of those that have been stuck for too long."""
        stuck = [
            attempt
            for attempt in running
            if attempt.settled and attempt.began is not None and attempt.over is None
        ]
        self._since = {attempt: self._since.get(attempt, now) for attempt in stuck}
        late = (attempt for attempt, since in self._since.items() if now - since > self._patience)
        return sorted({attempt.run.task for attempt in late})


if __name__ == "__main__":
    sys.exit(main())
