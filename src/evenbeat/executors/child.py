"""The process that executes tasks for a worker, one attempt at a time: see ``processes``.

The task runs in the main thread. Another thread listens to the worker. When the worker is gone, this process
ends, even in the middle of a task: another worker takes over the run. Output that the task prints goes to
stderr, since stdout carries the messages to the worker.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.errors import AppImportError, InvalidValue, RunCancelled, shown
from evenbeat.executors.base import Attempt, describe
from evenbeat.executors.messages import (
    Ask,
    Began,
    Ended,
    Execute,
    IsMine,
    Key,
    Line,
    Logged,
    Place,
    Progressed,
    ToChild,
)
from evenbeat.executors.threads import execute
from evenbeat.observe.run_logs import RunLog
from evenbeat.observe.run_progress import Reported, ReportedProgress
from evenbeat.processes import forks, importing
from evenbeat.processes.channel import Channel, storable
from evenbeat.tasks.context import RunContext
from evenbeat.tasks.task import Task, Tasks

SEND_PROGRESS_EVERY = 0.5
"""Seconds between two messages about the progress of an attempt."""

_decoder: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


def main() -> None:
    """Execute the attempts that the worker sends, until the worker is gone."""
    _die_with_parent()
    reader, writer = io.FileIO(os.dup(0), "rb"), io.FileIO(os.dup(1), "wb")
    # The task must not read messages from stdin, or print between messages on stdout.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    Server(Channel(reader, writer, _decoder)).serve()


class Sender:
    """Sends messages in its own thread. The calling threads wait for it.

    In the main thread, a signal handler may raise between any two instructions: the one for SIGTERM below, or
    one for an alarm that a task has set. It then interrupts the wait, never a message that is half sent.
    """

    def __init__(self, channel: Channel[ToChild]) -> None:
        self._channel = channel
        self._orders: SimpleQueue[tuple[msgspec.Struct, SimpleQueue[bool]]] = SimpleQueue()
        self._stopped = False
        threading.Thread(target=self._work, name="evenbeat-sender", daemon=True).start()

    def send(self, message: msgspec.Struct) -> bool:
        """Send a message. Return False if the worker is gone, and in a fork of the task, which has no
        channel."""
        if self._stopped or not self._channel.is_ours:
            return False
        done: SimpleQueue[bool] = SimpleQueue()
        self._orders.put((message, done))
        return done.get()

    def stop(self) -> None:
        """Make ``send`` return False at once. The process is ending, and the sender's thread may have
        stopped."""
        self._stopped = True

    def _work(self) -> None:
        while True:
            message, done = self._orders.get()
            done.put(self._channel.send(message))


class Server:
    """Executes attempts in the main thread."""

    def __init__(self, channel: Channel[ToChild]) -> None:
        self._channel = channel
        self._sender = Sender(channel)
        self._work: SimpleQueue[Attempt | None] = SimpleQueue()
        self._questions = itertools.count()
        self._answers: dict[int, SimpleQueue[bool | None]] = {}
        self._present: Attempt | None = None
        self._unwindable = False
        """Whether the function is being executed, and SIGTERM has not raised in it yet."""
        self._born = forks.generation
        self._places: dict[str, Place] = {}
        self._level = logging.WARNING

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        forks.restore_signals({signal.SIGTERM: signal.SIG_DFL})
        root = logging.getLogger()
        root.addHandler(_Forward(self._forward))
        threading.Thread(target=self._listen, name="evenbeat-listener", daemon=True).start()
        while (attempt := self._work.get()) is not None:
            root.setLevel(self._level)
            ended = self._ended(attempt)
            if isinstance(attempt.progress, _Progress):
                attempt.progress.flush()
            self._present = None
            self._sender.send(ended)
        self._sender.stop()

    def _ended(self, attempt: Attempt) -> Ended:
        try:
            self._unwindable = True
            ended = self._execute(attempt)
            self._unwindable = False
            return ended
        except RunCancelled as error:  # from SIGTERM, just before or after the function
            return Ended(of=Key(*attempt.identity), kind="stopped", error=str(error))

    def _terminated(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM. If the worker has asked the function to end, unwind the function. Ignore the signal
        otherwise: a service manager sends it to all processes at once, and the worker drains.

        Sends no message: the main thread may be interrupted anywhere, even while it sends one.
        """
        present = self._present
        if self._unwindable and present is not None and present.control.cancel_reason is not None:
            self._unwindable = False
            raise RunCancelled(present.control.cancel_reason)

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Execute):
                # Set the attempt here, not in the main thread: a cancel request that follows must find it.
                attempt = self._attempt(message)
                self._present = attempt
                self._channel.send(Began(Key(*attempt.identity)))
                self._work.put(attempt)
            elif isinstance(message, Ask):
                if self._present is not None and self._present.identity == message.of:
                    self._present.control.request_cancel(message.reason)
            elif (answer := self._answers.get(message.question)) is not None:
                answer.put(message.held)
        if self._present is not None:
            os._exit(1)  # the worker is gone, so the lease expires
        for answer in tuple(self._answers.values()):
            answer.put(False)
        self._work.put(None)

    def _attempt(self, message: Execute) -> Attempt:
        sys.path[:], sys.argv[:] = message.path, message.argv
        self._level = message.level
        run = message.run
        self._places[run.task] = message.place
        attempt = Attempt(run, _unloaded(run.task), 0.0, 0.0, self._is_held)
        attempt.log = log = _Lines(run, self._sender)
        attempt.progress = progress = _Progress(run, self._sender)
        attempt.context = RunContext(run, attempt.control, log.add, progress.report)
        return attempt

    def _execute(self, attempt: Attempt) -> Ended:
        name, key = attempt.run.task, Key(*attempt.identity)
        try:
            attempt.task = load_task(name, self._places[name])
            forks.leave_if_since(self._born)
        except RunCancelled:
            raise
        except BaseException as error:
            forks.leave_if_since(self._born, error)
            if not self._unwindable:  # SIGTERM has raised in a module, whose error this is now
                return Ended(of=key, kind="stopped", error=attempt.control.cancel_reason)
            why = error.trace if isinstance(error, AppImportError) else describe(error)
            text = f"task {shown(name)} can't be loaded in a process of its own: {why}"
            return Ended(of=key, kind="raised", error=storable(text))
        outcome = execute(attempt)
        assert outcome.kind in ("returned", "raised", "again", "unfit", "stopped")
        error_text = None if outcome.error is None else storable(outcome.error)
        return Ended(
            of=key,
            kind=outcome.kind,
            result=outcome.result,
            error=error_text,
            delay=outcome.delay,
            final=None if outcome.final is None else storable(outcome.final),
            following=outcome.following,
        )

    def _is_held(self, run: RunRecord) -> bool | None:
        # Takes no lock: a signal handler of the task may call this while the main thread is inside it.
        question = next(self._questions)
        answer = self._answers[question] = SimpleQueue()
        try:
            return self._sender.send(IsMine(Key(*run.attempt_identity), question)) and answer.get()
        finally:
            del self._answers[question]

    def _forward(self, record: logging.LogRecord, text: str) -> bool:
        present = self._present
        of = None if present is None else Key(*present.identity)
        return self._sender.send(
            Logged(of=of, logger=record.name, level=record.levelno, text=storable(text), at=record.created)
        )


def load_task(name: str, place: Place) -> Task[..., Any]:
    """Return the task of that name from a scheduler in its module; otherwise make one of the function."""
    if place.file is not None:
        module = importing.import_main(Path(place.file))
    elif place.module is not None:
        module = importing.import_name(place.module)
    else:
        raise InvalidValue(
            f"{place.function} has no module and no file", field="function", value=place.function
        )
    for value in vars(module).values():
        tasks = getattr(value, "tasks", None)
        if isinstance(tasks, Tasks) and (found := tasks.get(name)) is not None:
            return found
    target: Any = module
    for part in place.function.split("."):
        target = getattr(target, part, None)
    if isinstance(target, Task):
        return target
    if not callable(target):
        raise InvalidValue(
            f"{place.function} is not found in {module.__name__}",
            field="function",
            value=place.function,
            hint='executor="process" needs a function at the top level of a module',
        )
    return Task(target, name)


class _Lines(RunLog):
    """Sends the log lines of an attempt to its worker, which stores them."""

    def __init__(self, run: RunRecord, sender: Sender) -> None:
        super().__init__(run)
        self._of = Key(*run.attempt_identity)
        self._sender = sender

    def add(self, text: str, at: Instant | None = None) -> None:
        moment = int(time.time() * 1000) if at is None else at
        if not self._sender.send(Line(self._of, storable(text), moment)):
            sys.stderr.write(f"{text}\n")


class _Progress(ReportedProgress):
    """Sends the progress of an attempt to its worker, which stores it: the first value at once, the others
    together twice a second, since a message costs a job some 50 us."""

    __slots__ = ("_sender", "_sent", "_sent_at")

    def __init__(self, run: RunRecord, sender: Sender) -> None:
        super().__init__(run)
        self._sender = sender
        self._sent: Reported | None = None
        self._sent_at = float("-inf")

    def report(self, done: float, note: str, total: float | None) -> None:
        super().report(done, note, total)
        if time.monotonic() - self._sent_at >= SEND_PROGRESS_EVERY:
            self.flush()

    def flush(self) -> None:
        """Send the last value, unless the worker has it already."""
        value = self.value
        if value is not None and value is not self._sent:
            self._sent, self._sent_at = value, time.monotonic()
            of = Key(*self.run.attempt_identity)
            self._sender.send(Progressed(of, value.done, storable(value.note), value.total))


class _Forward(logging.Handler):
    """Sends log records to the worker, where the program has configured logging. The log records of a fork,
    which has no channel to the worker, go to stderr."""

    def __init__(self, forward: Callable[[logging.LogRecord, str], bool]) -> None:
        super().__init__()
        self._forward = forward
        self._otherwise = logging.StreamHandler()
        self._otherwise.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def handle(self, record: logging.LogRecord) -> bool:
        """Handle a record without the lock of ``logging``: sending is thread-safe, and a signal handler of
        the task may log while the task logs."""
        passed = bool(self.filter(record))
        if passed:
            self.emit(record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not self._forward(record, self.format(record)):
                self._otherwise.handle(record)
        except Exception:
            self.handleError(record)


def _unloaded(name: str) -> Task[..., Any]:
    """Return a placeholder for a task, until the main thread has loaded its module."""
    return Task(lambda: None, name)


def _die_with_parent() -> None:
    """On Linux, let the kernel kill this process when the worker's thread that started it ends.

    The listening thread notices that as well, unless C code of the task holds the interpreter lock.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            pr_set_pdeathsig = 1
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    main()
