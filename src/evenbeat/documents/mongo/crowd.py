"""Others who take documents at the same time, and documents that can't be taken."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

_WIDEST = 16
# Of this many at least one is chosen among others: who takes one at a time meets them at the very first.
_FEW = 8
_LARGEST_WINDOW = 20_000
# Tries after which it is known that it is calm: who takes one at a time knows nothing by the first.
_ENOUGH = 20
# Seconds until a document that could not be locked is tried again.
_ASIDE = 60.0
_MOST_ASIDE = 1000


class Crowd:
    """How far to look. Who takes the first ones while others do takes turns with them: the more of them
    were lost to others, the more are looked at, and some of these are taken at random."""

    def __init__(self) -> None:
        self._width = 1
        self._tried = self._lost = 0
        """Since the width has changed."""

    def window(self, wanted: int) -> int:
        width = self._width
        if width == 1:
            return wanted
        return max(wanted, min(max(wanted, _FEW) * width, _LARGEST_WINDOW))

    def choose(self, seen: Sequence[_T], wanted: int) -> Sequence[_T]:
        """In their order."""
        if len(seen) <= wanted:
            return seen
        places = sorted(random.sample(range(len(seen)), wanted))
        return [seen[place] for place in places]

    def met(self, tried: int, lost: int) -> None:
        self._tried += tried
        self._lost += lost
        if lost * 5 > tried:
            self._become(min(self._width * 2, _WIDEST))
        elif self._tried >= _ENOUGH and self._lost * 20 < self._tried:
            self._become(max(self._width // 2, 1))

    def _become(self, width: int) -> None:
        self._width = width
        self._tried = self._lost = 0


class Aside:
    """Documents that the server does not let us lock, by their ids. They are left out for a while: as they
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
