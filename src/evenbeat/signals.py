"""Waiting for the signal to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from evenbeat.errors import InvalidValue, shown


def check_main_thread() -> None:
    """Python hands signals to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        name = threading.current_thread().name
        raise InvalidValue(
            f"run() waits for signals, which thread {shown(name)} does not get", field="thread", value=name,
            hint="call it in the main thread, or use start() and stop() here",
        )  # fmt: skip


def until_signalled(hurry: Callable[[], object], timeout: float | None = None) -> None:
    """Return when SIGINT or SIGTERM comes, or the time is over; a further one calls ``hurry``.

    Only in the main thread.

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
    if not stopping.wait(timeout):
        stopping.set()
