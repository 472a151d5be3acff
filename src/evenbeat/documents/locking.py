"""Locks due documents, and leaves out for a while those that the database refuses to lock.

A trigger, a policy or a validator of the user's may refuse the lock of a document. Such a document stays due,
and so stays at the head of the queue: without this module it would keep the documents behind it waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from evenbeat.documents.base import Found
from evenbeat.errors import InvalidValue, shown

# Seconds until a document that could not be locked is tried again.
_LEFT_OUT = 60.0
_MOST_LEFT_OUT = 1000

_log = logging.getLogger("evenbeat.documents")


class Locking:
    """One call of ``lock_next``: the documents that it has locked, and those that the database refused."""

    def __init__(self, limit: int, unlockable: Unlockable) -> None:
        self._limit = limit
        self._unlockable = unlockable
        self.found: list[Found] = []
        self.refused: list[Any] = []
        """The ids of the documents that the database refused to lock."""
        self.reason: InvalidValue | None = None
        """Why it refused the first of them."""
        self.from_end = False
        """Whether this pass starts with the documents that were due last."""

    @property
    def wanted(self) -> int:
        """How many more documents to lock."""
        return self._limit - len(self.found)

    @property
    def left_out(self) -> list[Any]:
        """The ids of documents to leave out."""
        return self._unlockable.ids

    def refuse(self, ids: Sequence[Any], reason: InvalidValue) -> None:
        """Leave out documents from now on, since the database refused to lock them."""
        self._unlockable.add(ids)
        self.refused.extend(ids)
        self.reason = self.reason or reason


class DocumentLocker:
    """Locks the due documents of one store, in several passes where the database refuses some."""

    def __init__(self, name: str, passes: int) -> None:
        self._name = name
        self._passes = passes
        self.unlockable = Unlockable()

    def lock(self, limit: int, lock_pass: Callable[[Locking], bool]) -> list[Found]:
        """Lock up to ``limit`` documents. If the database refuses some, log that, and raise the reason if no
        other document was found.

        ``lock_pass`` locks up to ``wanted`` documents that are due and not left out, adds them to ``found``,
        calls ``refuse`` for those that it can't lock, and returns whether another pass may find more. The
        last pass starts from the other end: there may be more unlockable documents than can be left out.
        """
        locking = Locking(limit, self.unlockable)
        for number in range(self._passes):
            locking.from_end = number == self._passes - 1 and bool(locking.refused)
            if not lock_pass(locking) or locking.wanted <= 0:
                break
        if locking.reason is not None and locking.refused:
            self.log_refused(locking.refused, locking.reason)
            if not locking.found:
                raise locking.reason
        return locking.found

    def log_refused(self, ids: Sequence[Any], reason: Exception) -> None:
        extra = {"component": "documents", "documents": self._name, "count": len(ids)}
        _log.error("documents can't be locked: %s", reason, extra=extra | {"document": shown(ids[0])})


class Unlockable:
    """The ids of documents that the database refused to lock, for a minute; the last thousand of them."""

    def __init__(self) -> None:
        self._ids: deque[tuple[float, Any]] = deque(maxlen=_MOST_LEFT_OUT)
        self._guard = threading.Lock()

    def add(self, ids: Sequence[Any]) -> None:
        now = time.monotonic()
        with self._guard:
            self._ids.extend((now, one) for one in ids)

    @property
    def ids(self) -> list[Any]:
        if not self._ids:
            return []
        oldest = time.monotonic() - _LEFT_OUT
        with self._guard:
            while self._ids and self._ids[0][0] < oldest:
                self._ids.popleft()
            return [one for _, one in self._ids]
