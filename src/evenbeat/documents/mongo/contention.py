"""Others who take documents at the same time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

_WIDEST = 16
# Of this many at least one is chosen among others: who takes one at a time meets them at the very first.
_FEW = 8
_LARGEST_WINDOW = 20_000
# Tries after which it is known that it is calm: who takes one at a time knows nothing by the first.
_ENOUGH = 20


class Contention:
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
