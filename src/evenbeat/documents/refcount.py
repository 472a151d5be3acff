"""Counts the processors that use one document store, so that the last of them closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class RefCount:
    """Calls ``close`` when it was closed as often as it was opened. Further calls of ``close`` do no harm."""

    def __init__(self, open_: Callable[[], object], close: Callable[[], object]) -> None:
        self._open = open_
        self._close = close
        self._guard = threading.Lock()
        self._users = 0

    def open(self) -> None:
        with self._guard:
            self._open()
            self._users += 1

    def close(self) -> None:
        with self._guard:
            self._users = max(0, self._users - 1)
            if not self._users:
                self._close()
