"""Executes ``executor="process"`` tasks in child processes, which start on demand and are reused.

Each process belongs to a thread of the worker. The thread starts it, sends it one attempt at a time and
receives its messages. It starts a new program and does not fork: a fork of a process with threads inherits
locks that no thread will ever release. The messages are JSON, never pickles, so a task cannot execute code in
its worker.
"""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from evenbeat.errors import InvalidValue, shown
from evenbeat.executors.base import Attempt, Ended, Outcome, describe, end_span
from evenbeat.executors.messages import (
    Ask,
    Began,
    Execute,
    FromChild,
    IsMine,
    Key,
    Line,
    Logged,
    Mine,
    Place,
    Progressed,
)
from evenbeat.executors.messages import Ended as Said
from evenbeat.executors.pool import Pool
from evenbeat.observe.capture import keep
from evenbeat.observe.run_logs import RunLog, current_log
from evenbeat.observe.tracing import start_span
from evenbeat.processes.channel import Channel
from evenbeat.processes.signals import KILL, describe_exit, end_group
from evenbeat.tasks.task import Task

# After a cancel request, a function has PATIENCE seconds to end (``run.raise_if_cancelled()``), and after
# SIGTERM OBEDIENCE seconds to unwind. Then the worker kills its process.
PATIENCE = 2.0
OBEDIENCE = 1.0

_decoder: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)
_log = logging.getLogger("evenbeat.executors")


class ProcessExecutor:
    """Runs at most one process per slot."""

    def __init__(self, slots: int) -> None:
        self._pool = Pool[Attempt]("evenbeat-cpu", slots, self._work)
        self._running: dict[Attempt, Child] = {}
        self._guard = threading.Lock()
        self._stopped = False

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self._pool.put(attempts)

    def interrupt(self, attempt: Attempt) -> None:
        with self._guard:
            child = self._running.get(attempt)
        if child is None:
            return
        # Uses a separate thread: the lease renewer, which calls this, must not wait.
        thread = threading.Thread(target=child.end, args=(attempt,), name="evenbeat-cpu-end", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.error("cannot start a thread to cancel a job, so its process is killed at once: %s", error)
            child.kill(attempt)

    def stop(self) -> None:
        with self._guard:
            self._stopped = True
            running = list(self._running.items())
        for attempt, child in running:
            child.kill(attempt)
        self._pool.stop(patience=2)

    def _work(self) -> None:
        child = Child()
        for attempt in self._pool.take():
            if not attempt.begin():
                continue
            with self._guard:
                stopped = self._stopped
                if not stopped:
                    self._running[attempt] = child
            outcome = Outcome("stopped", error="stopping") if stopped else child.execute(attempt)
            with self._guard:
                self._running.pop(attempt, None)
            attempt.end()
            self._ended(attempt, outcome)
        child.close()


class Child:
    """One process, and the attempt that it executes. Any thread may call ``end`` and ``kill``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel[FromChild] | None = None
        self._attempt: Attempt | None = None
        self._over = threading.Event()
        self._killed = False
        self._guard = threading.Lock()

    def execute(self, attempt: Attempt) -> Outcome:
        """Let the process execute an attempt, and wait until it has ended."""
        try:
            place = place_of(attempt.task)
        except InvalidValue as error:
            return Outcome("raised", error=str(error))
        with self._guard:
            self._attempt, self._killed = attempt, False
            self._over = over = threading.Event()
        token = current_log.set(attempt.log)
        try:
            return self._executed(attempt, place)
        except OSError as error:
            return Outcome("died", error=f"no process could be started: {error}")
        except Exception as error:  # a message that cannot be encoded or decoded
            self.kill(attempt)
            if self._process is not None:
                self._reap()  # later messages could not be decoded either: the next attempt gets a new one
            return Outcome("raised", error=describe(error))
        finally:
            with self._guard:
                self._attempt = None
            over.set()
            current_log.reset(token)

    def _executed(self, attempt: Attempt, place: Place) -> Outcome:
        outcome = self._tried(attempt, place)
        # None: the process died while it was idle, before it began the attempt. Try again with a new process.
        return outcome or self._tried(attempt, place) or Outcome("died", error="no process could be started")

    def _tried(self, attempt: Attempt, place: Place) -> Outcome | None:
        """Return the outcome; None if the process had ended before it began the attempt."""
        channel = self._ready()
        level = logging.getLogger().getEffectiveLevel()
        channel.send(
            Execute(run=attempt.run, place=place, path=[*map(str, sys.path)], argv=sys.argv, level=level)
        )
        key = Key(*attempt.identity)
        if attempt.control.cancel_reason is not None:  # set while the process was starting
            channel.send(Ask(key, attempt.control.cancel_reason))
        began_at: int | None = None
        while (message := channel.receive()) is not None:
            if message.of != key:
                _receive_late(message, channel)
            elif isinstance(message, Said):
                return Outcome(
                    message.kind,
                    message.result,
                    message.error,
                    message.delay,
                    message.final,
                    message.following,
                )
            elif isinstance(message, Began):
                began_at = time.time_ns()
            else:
                self._receive(attempt, message, channel)
        code = self._reap()
        if self._killed:
            outcome = Outcome("stopped", error=attempt.control.cancel_reason)
        elif began_at is None:
            return None
        else:
            outcome = Outcome("died", error=f"the process died with {describe_exit(code)}")
        # The span that the process had started is lost with it.
        if began_at is not None and (span := start_span(attempt.run, began_at)) is not None:
            end_span(span, attempt, outcome)
        return outcome

    def _receive(
        self, attempt: Attempt, message: Logged | Line | Progressed | IsMine, channel: Channel[FromChild]
    ) -> None:
        if isinstance(message, IsMine):
            channel.send(Mine(message.question, attempt.control.holds_lease()))
        elif isinstance(message, Line):
            attempt.log.add(message.text, message.at)
        elif isinstance(message, Progressed):
            attempt.progress.report(message.done, message.note, message.total)
        else:
            _pass_on(message, attempt.log)

    def end(self, attempt: Attempt) -> None:
        """Ask the function to end. If it does not, send SIGTERM, and then kill the process."""
        with self._guard:
            if self._attempt is not attempt:
                return
            over, channel = self._over, self._channel
        if channel is not None and attempt.control.cancel_reason is not None:
            channel.send(Ask(Key(*attempt.identity), attempt.control.cancel_reason))
        if not over.wait(PATIENCE):
            self._signal(attempt, signal.SIGTERM)
            if not over.wait(OBEDIENCE):
                self._signal(attempt, KILL)

    def kill(self, attempt: Attempt) -> None:
        self._signal(attempt, KILL)

    def _signal(self, attempt: Attempt, number: int) -> None:
        with self._guard:
            if self._attempt is not attempt:
                return  # the attempt has ended: the process may be executing another one by now
            self._killed = True
            if self._process is not None and self._process.poll() is None:
                end_group(self._process, number)

    def _ready(self) -> Channel[FromChild]:
        if self._process is not None and self._process.poll() is not None:
            self._reap()  # it died while it was idle
        if self._channel is None:
            process = subprocess.Popen(
                # -P leaves the working directory out of sys.path: a json.py there would hide the standard
                # one.
                [sys.executable, "-P", "-m", "evenbeat.executors.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C in a terminal must reach only the worker, which then drains.
                start_new_session=True,
            )
            with self._guard:
                self._process = process
                self._channel = Channel(_opened(process.stdout), _opened(process.stdin), _decoder)
                if self._killed:
                    end_group(process, KILL)
        assert self._channel is not None
        return self._channel

    def close(self) -> None:
        """Close the channel, which makes the process end by itself; kill it after a second."""
        if self._channel is not None:
            self._channel.hang_up()
            assert self._process is not None
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                end_group(self._process, KILL)
            self._reap()

    def _reap(self) -> int:
        assert self._process is not None
        assert self._channel is not None
        # The process may have closed its channel and still run. No message would ever arrive from it again.
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            end_group(self._process, KILL)
            code = self._process.wait()
        self._channel.close()
        with self._guard:
            self._process = self._channel = None
        return code


def place_of(task: Task[..., Any]) -> Place:
    """Return the place where another process finds the function of a task."""
    function = task.function
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", task.name)
    if module != "__main__":
        return Place(name, module=module)
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        return Place(name, module=spec.name)
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise InvalidValue(
            f"task {shown(task.name)} is not in a file, and another process can't load it",
            field="executor",
            value="process",
            hint="put it into a module, or leave the executor out",
        )
    return Place(name, file=str(Path(file).resolve()))


def _receive_late(message: FromChild, channel: Channel[FromChild]) -> None:
    """Handle a message from a thread that an earlier attempt has left running."""
    if isinstance(message, IsMine):
        channel.send(Mine(message.question, held=False))
    elif isinstance(message, Logged):
        token = current_log.set(None)
        try:
            _pass_on(message, None)
        finally:
            current_log.reset(token)


def _pass_on(message: Logged, log: RunLog | None) -> None:
    """Log a record of the child in this process, and keep it with the run."""
    logger = logging.getLogger(message.logger)
    if not logger.isEnabledFor(message.level):
        return
    record = logging.makeLogRecord(
        {
            "name": message.logger,
            "levelno": message.level,
            "levelname": logging.getLevelName(message.level),
            "msg": "%s",
            "args": (message.text,),
            "created": message.at,
        }
    )
    if log is not None:
        keep(record, log)
    logger.handle(record)


def _opened(stream: IO[bytes] | None) -> io.FileIO:
    assert isinstance(stream, io.FileIO)  # since it has no buffer
    return stream
