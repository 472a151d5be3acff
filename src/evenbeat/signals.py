"""Waiting for the signal to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType


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
