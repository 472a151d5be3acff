"""Signals: wait for one that asks to stop, send one, and name the one that ended a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType

from evenbeat.errors import InvalidValue, shown

# Seconds of one wait: Python handles a signal that comes right before a wait only after it.
_SLICE = 0.5

KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)


def check_main_thread() -> None:
    """Refuse a thread that is not the main thread, which alone gets signals in Python."""
    if threading.current_thread() is not threading.main_thread():
        name = threading.current_thread().name
        raise InvalidValue(
            f"run() waits for signals, which thread {shown(name)} does not get",
            field="thread",
            value=name,
            hint="call it in the main thread, or use start() and stop() here",
        )


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a process to stop: SIGINT (Ctrl-C), SIGTERM and SIGHUP (a terminal closes).

    Without SIGHUP where it is ignored, as ``nohup`` does.
    """
    found = [signal.SIGINT, signal.SIGTERM]
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        found.append(hangup)
    return tuple(found)


def until_signalled(
    hurry: Callable[[], object],
    timeout: float | None = None,
    over: Callable[[], bool] = lambda: False,
    start: Callable[[], object] = lambda: None,
) -> None:
    """Call ``start``; return when a signal to stop comes, ``timeout`` has passed, or ``over`` returns True.
    Another signal calls ``hurry``.

    Only in the main thread. A signal that comes during ``start`` ends the wait that follows, so that what has
    started is drained, not killed. A third signal interrupts a ``start`` that takes too long.

    The handlers stay until the process ends: while a node drains, another Ctrl-C must hurry it, not kill it
    between two writes.
    """
    # Not an Event: its set() waits for a lock, and the main thread that the handler interrupts may hold it.
    came: SimpleQueue[int] = SimpleQueue()

    def stop(number: int, _frame: FrameType | None) -> None:
        if starting and len(signalled) > 1:
            raise KeyboardInterrupt
        if signalled:
            hurry()
        signalled.append(number)
        came.put(number)

    signalled: list[int] = []
    starting = [True]
    before = {number: signal.signal(number, stop) for number in stop_signals()}
    try:
        start()
    except BaseException:
        for number, handler in before.items():
            signal.signal(number, handler)
        raise
    starting.clear()
    until = None if timeout is None else time.monotonic() + timeout
    while not signalled:
        left = _SLICE if until is None else min(_SLICE, until - time.monotonic())
        try:
            came.get(timeout=max(left, 0))
        except Empty:
            if over() or (until is not None and time.monotonic() >= until):
                signalled.append(0)  # the next signal calls hurry


def end_with(watcher: int) -> None:
    """Send this process SIGTERM when the other end of a pipe is closed: the process that holds it is gone.

    Watches in a thread. Nothing else would stop a child whose parent was killed.
    """

    def watch() -> None:
        os.read(watcher, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="evenbeat-parent", daemon=True).start()


def describe_exit(code: int) -> str:
    """Return an exit code in words: ``exit code 3``, ``signal SIGSEGV``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process that leads its own group, and to the processes that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
