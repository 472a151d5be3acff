"""A stand-in for ``time.sleep``, for the thread of a test alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def replace_sleep(monkeypatch: pytest.MonkeyPatch, pause: Callable[[float], object]) -> None:
    """Call ``pause`` where this thread would sleep. Other threads, such as those of drivers, do sleep."""
    sleep, thread = time.sleep, threading.get_ident()

    def instead(seconds: float) -> None:
        (pause if threading.get_ident() == thread else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", instead)
