"""Signals: waiting for the one to stop, sending them, saying which one ended a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType

KILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)


def until_signalled(hurry: Callable[[], object]) -> None:
    """Return when SIGINT or SIGTERM comes; a further one calls ``hurry``. Only in the main thread.

    What the signals did before is restored only at the end of the process: while a node drains, an
    impatient Ctrl-C must hurry it, not kill it between two writes.
    """
    # Not an Event: its set() waits for a lock which the main thread, that the handler interrupts, may hold.
    came: SimpleQueue[int] = SimpleQueue()

    def stop(number: int, _frame: FrameType | None) -> None:
        if signalled:
            hurry()
        signalled.append(number)
        came.put(number)

    signalled: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    came.get()


def describe_exit(code: int) -> str:
    """An exit code as people know it: ``exit code 3``, ``signal SIGSEGV``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def end_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process that leads its own group, and to what it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
