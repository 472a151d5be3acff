"""The process that executes ``cpu=True`` tasks for a worker, one attempt at a time: see ``processes``.

The task has the main thread; another one listens to the worker. When the worker is gone this process ends,
also in the middle of a task: its run is somebody else's by then, or will be. What the task prints goes to
stderr, since stdout is the way to the worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from evenbeat import current, modules
from evenbeat.channel import Channel, storable
from evenbeat.errors import InvalidValue, ModuleFailed, shown
from evenbeat.executors.base import Attempt, describe
from evenbeat.executors.messages import Ask, Began, Ended, Execute, IsMine, Line, Logged, Place, ToChild
from evenbeat.executors.threads import execute
from evenbeat.instants import Instant
from evenbeat.model import Run
from evenbeat.observe.run_logs import RunLog
from evenbeat.tasks import Task, Tasks

_decoder: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)


def main() -> None:
    """Execute what the worker sends, until it is gone."""
    _die_with_parent()
    reader = os.fdopen(os.dup(0), "rb")
    writer = os.fdopen(os.dup(1), "wb")
    # What the task reads or prints must not meet the messages.
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    Server(Channel(reader, writer, _decoder)).serve()


class Server:
    """Executes attempts in the main thread."""

    def __init__(self, channel: Channel[ToChild]) -> None:
        self._channel = channel
        self._work: SimpleQueue[Attempt | None] = SimpleQueue()
        self._answers: SimpleQueue[bool] = SimpleQueue()
        self._asking = threading.Lock()
        self._present: Attempt | None = None
        self._places: dict[str, Place] = {}
        self._level = logging.WARNING

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._terminated)
        root = logging.getLogger()
        root.addHandler(_Forward(self._channel))
        threading.Thread(target=self._listen, name="evenbeat-listener", daemon=True).start()
        while (attempt := self._work.get()) is not None:
            root.setLevel(self._level)
            ended = self._execute(attempt)
            self._present = None
            self._channel.send(ended)

    def _terminated(self, _number: int, _frame: FrameType | None) -> None:
        """The worker insists: unwind the function. From anybody else, such as a service manager that tells
        all processes at once, it is for the worker to heed, which drains."""
        if self._present is not None:
            self._present.current.check()

    def _listen(self) -> None:
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Execute):
                # Here, not in the main thread: a request to end that follows must find it.
                self._present = self._attempt(message)
                self._channel.send(Began())
                self._work.put(self._present)
            elif isinstance(message, Ask):
                if self._present is not None:
                    self._present.current.ask_to_end(message.reason)
            else:
                self._answers.put(message.held)
        if self._present is not None:
            os._exit(1)  # the worker is gone, and with it the lease
        self._work.put(None)

    def _attempt(self, message: Execute) -> Attempt:
        sys.path[:], sys.argv[:] = message.path, message.argv
        self._level = message.level
        run = message.run
        self._places[run.task] = message.place
        attempt = Attempt(run, _unloaded(run.task), 0.0, 0.0, self._is_held)
        attempt.log = log = _Lines(run, self._channel)
        attempt.current = current.Run(run, still_mine=lambda: self._is_held(run), log=log.add)
        return attempt

    def _execute(self, attempt: Attempt) -> Ended:
        name = attempt.run.task
        try:
            attempt.task = load_task(name, self._places[name])
        except BaseException as error:
            why = error.trace if isinstance(error, ModuleFailed) else describe(error)
            text = f"task {shown(name)} can't be loaded in a process of its own: {why}"
            return Ended(kind="raised", error=storable(text))
        outcome = execute(attempt)
        assert outcome.kind in ("returned", "raised", "stopped")
        error_text = None if outcome.error is None else storable(outcome.error)
        return Ended(kind=outcome.kind, result=outcome.result, error=error_text)

    def _is_held(self, _run: Run) -> bool:
        with self._asking:
            return self._channel.send(IsMine()) and self._answers.get()


def load_task(name: str, place: Place) -> Task[..., Any]:
    """The task of that name: from a scheduler in its module, else the function itself."""
    if place.file is not None:
        module = modules.import_main(Path(place.file))
    elif place.module is not None:
        module = modules.import_name(place.module)
    else:
        raise InvalidValue(f"nobody says where {place.function} is", field="function", value=place.function)
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
            f"{place.function} is not found in {module.__name__}", field="function", value=place.function,
            hint="cpu=True needs a function at the top level of a module",
        )  # fmt: skip
    return Task(target, name)


class _Lines(RunLog):
    """The log of an attempt, which its worker keeps."""

    def __init__(self, run: Run, channel: Channel[ToChild]) -> None:
        super().__init__(run.id, run.attempt)
        self._channel = channel

    def add(self, text: str, at: Instant | None = None) -> None:
        moment = int(time.time() * 1000) if at is None else at
        self._channel.send(Line(storable(text), moment))


class _Forward(logging.Handler):
    """Sends log records to the worker, whose logging is the one that was set up."""

    def __init__(self, channel: Channel[ToChild]) -> None:
        super().__init__()
        self._channel = channel
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = storable(self.format(record))
            self._channel.send(Logged(logger=record.name, level=record.levelno, text=text, at=record.created))
        except Exception:
            self.handleError(record)


def _unloaded(name: str) -> Task[..., Any]:
    """Stands for a task until the main thread has loaded its module."""
    return Task(lambda: None, name)


def _die_with_parent() -> None:
    """On Linux: be killed when the thread of the worker that started this process ends.

    The listening thread sees that too, unless the task is in C code that keeps the interpreter to itself.
    """
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            pr_set_pdeathsig = 1
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    main()
