"""Copies of this process: a task that forks, and whose fork comes back from the function, is in two places.

The copy has the attempts, the queues and the channels of the original. It must not execute what waits, nor
tell anybody how the attempt ended: it ends where its function does.
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

Asking for the pid instead is a system call, and this is looked at twice for every run."""


def leave_if_since(born: int, error: BaseException | None = None) -> None:
    """End this process if it was forked off after ``born``, as Python ends one that raised ``error``."""
    if generation != born:
        _leave(error)


def _leave(error: BaseException | None) -> NoReturn:
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
    """Have these handlers in forks from now on: processes of a task's pool are ended by SIGTERM, and must not
    take it for ours."""
    if not hasattr(os, "register_at_fork"):
        return
    masks = threading.local()

    # Held back meanwhile: Python forgets what comes between the fork and its own first steps there, and the
    # process would never end.
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
