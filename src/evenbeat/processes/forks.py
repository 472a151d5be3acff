"""Forks of this process: if a task forks, its function may return in both processes.

The fork has copies of the attempts, the queues and the channels. It must not execute waiting attempts, nor
report how its attempt ended: it exits where the function returns.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NoReturn, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | signal.Handlers

generation = 0
"""How many forks lie between this process and the one that imported the module.

Asking for the pid instead would be a system call, and this is read twice for every run."""


def leave_if_since(born: int, error: BaseException | None = None) -> None:
    """Exit if this process was forked after ``born``, with the exit code that ``error`` leads to."""
    if generation != born:
        _exit(error)


def _exit(error: BaseException | None) -> NoReturn:
    code = 0 if error is None else 1
    try:
        if isinstance(error, SystemExit):
            if error.code is None or isinstance(error.code, int):
                code = error.code or 0
            else:
                sys.stderr.write(f"{error.code}\n")
        elif error is not None:
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(code & 0xFF)


def restore_signals(handlers: Mapping[signal.Signals, Handler]) -> None:
    """Install these handlers in forks from now on: SIGTERM must end the processes of a task's pool, and must
    not run our own handlers there."""
    if not hasattr(os, "register_at_fork"):
        return
    masks = threading.local()

    # Signals are blocked meanwhile: Python loses a signal that comes between the fork and its first
    # instructions in the child, and the child would never end.
    def block() -> None:
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, handlers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def _count() -> None:
    global generation
    generation += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_count)
