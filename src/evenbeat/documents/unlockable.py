"""Documents that can't be locked."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

# Seconds until a document that could not be locked is tried again.
_ASIDE = 60.0
_MOST_ASIDE = 1000


class Unlockable:
    """Documents that the database does not let us lock, by their ids. They are left out for a while: as they
    stay due, they would stand at the head and keep others from being seen."""

    def __init__(self) -> None:
        self._ids: deque[tuple[float, Any]] = deque(maxlen=_MOST_ASIDE)
        self._guard = threading.Lock()

    def put(self, ids: Sequence[Any]) -> None:
        now = time.monotonic()
        with self._guard:
            self._ids.extend((now, one) for one in ids)

    @property
    def ids(self) -> list[Any]:
        if not self._ids:
            return []
        oldest = time.monotonic() - _ASIDE
        with self._guard:
            while self._ids and self._ids[0][0] < oldest:
                self._ids.popleft()
            return [one for _, one in self._ids]
