"""Costly answers: one computation at a time for each question, and slow ones are kept for a while.

Open pages ask for the forecast again and again, and with 100,000 schedules it takes seconds. With few
schedules it is quick and never kept, so it is always current.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

QUICK = 0.2
"""An answer that took less, in seconds, is not kept."""
TIMES_KEPT = 10
"""An answer is kept for so many times as long as it took."""
LONGEST_KEPT = 60.0
"""Seconds for which an answer is kept at most."""
MOST_KEPT = 50
"""How many answers are kept. One more drops the one that ends first."""

_T = TypeVar("_T")


class CostlyAnswers:
    """Answers to questions, each named by a key. Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[Any, float]] = {}
        self._asked: dict[Hashable, _Turns] = {}
        self._forgotten = 0
        """How often everything was forgotten: an answer that was begun before that is not kept."""

    def forget(self) -> None:
        """Forget all answers: a request has changed what they are about, and its user looks at the result."""
        with self._lock:
            self._kept.clear()
            self._forgotten += 1

    def answer(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return the kept answer to a question, or compute it. The key must name the tenant.

        While another thread computes the answer to the same question, this one waits. It then takes the
        answer if that is kept. An error is not kept: the next thread computes again.
        """
        with self._lock:
            turns = self._asked.setdefault(key, _Turns())
            turns.threads += 1
        try:
            with turns.lock:
                found = self._find(key)
                if found is not None:
                    answer: _T = found[0]
                    return answer
                started, forgotten = self._clock(), self._forgotten
                answer = compute()
                took = self._clock() - started
                if took >= QUICK:
                    self._keep(key, answer, took, forgotten)
                return answer
        finally:
            with self._lock:
                turns.threads -= 1
                if not turns.threads:
                    del self._asked[key]

    def _find(self, key: Hashable) -> tuple[Any, float] | None:
        with self._lock:
            now = self._clock()
            self._kept = {each: kept for each, kept in self._kept.items() if kept[1] > now}
            return self._kept.get(key)

    def _keep(self, key: Hashable, answer: Any, took: float, forgotten: int) -> None:
        with self._lock:
            if forgotten != self._forgotten:
                return
            self._kept[key] = (answer, self._clock() + min(TIMES_KEPT * took, LONGEST_KEPT))
            while len(self._kept) > MOST_KEPT:
                del self._kept[min(self._kept, key=lambda each: self._kept[each][1])]


class _Turns:
    """The threads that ask one question: one of them computes, the others wait for the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = 0
