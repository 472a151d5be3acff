"""Widens the window of candidates while other processors lock documents at the same time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

_WIDEST = 16
# The smallest window under contention: processors that lock one document at a time would all try the first.
_SMALLEST_WINDOW = 8
_LARGEST_WINDOW = 20_000
# The number of tries after which few losses mean that there is no contention.
_ENOUGH = 20


class CandidateWindow:
    """How many candidates to read. Processors that all try the first documents mostly lose them to each
    other: the more were lost, the more candidates are read, and some of those are tried at random."""

    def __init__(self) -> None:
        self._width = 1
        self._tried = self._lost = 0
        """Since the width was changed."""

    def window(self, wanted: int) -> int:
        """Return how many candidates to read."""
        width = self._width
        if width == 1:
            return wanted
        return max(wanted, min(max(wanted, _SMALLEST_WINDOW) * width, _LARGEST_WINDOW))

    def choose(self, seen: Sequence[_T], wanted: int) -> Sequence[_T]:
        """Return some of the candidates, in their order."""
        if len(seen) <= wanted:
            return seen
        places = sorted(random.sample(range(len(seen)), wanted))
        return [seen[place] for place in places]

    def record(self, tried: int, lost: int) -> None:
        """Adapt the window after a try to lock documents, of which others have locked some first."""
        self._tried += tried
        self._lost += lost
        if lost * 5 > tried:
            self._set_width(min(self._width * 2, _WIDEST))
        elif self._tried >= _ENOUGH and self._lost * 20 < self._tried:
            self._set_width(max(self._width // 2, 1))

    def _set_width(self, width: int) -> None:
        self._width = width
        self._tried = self._lost = 0
