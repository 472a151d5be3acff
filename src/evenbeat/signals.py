"""Waiting for the signal to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType


def until_signalled(hurry: Callable[[], object]) -> None:
    """Return when SIGINT or SIGTERM comes; a further one calls ``hurry``. Only in the main thread.

    What the signals did before is restored only at the end of the process: while a node drains, an
    impatient Ctrl-C must hurry it, not kill it between two writes.
    """
    stopping = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            hurry()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    # An Event without a timeout is woken by a signal, too: its handler runs between two waits of the lock.
    while not stopping.wait(3600):
        pass
