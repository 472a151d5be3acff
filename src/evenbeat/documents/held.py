"""The documents that a worker holds: from their lock until the database has answered how they ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.documents.base import DocumentLock, Found
from evenbeat.documents.document import Document
from evenbeat.documents.rules import DocumentPlan
from evenbeat.errors import shown

# Milliseconds until a write is retried to a document that a transaction of its owner has locked.
_RETRY = 2000
# At most so many documents are named in one log message.
_MOST_NAMED = 20

_log = logging.getLogger("evenbeat.documents")


class HeldDocument:
    """A document that a worker has locked."""

    def __init__(self, found: Found, plan: DocumentPlan | None, document: Document) -> None:
        self.id = found.id
        self.plan = plan
        """None if the fields of the document are invalid."""
        self.document = document
        self.lock_ends: tuple[Instant, ...] = (found.locked_until,)
        """The end of its lock; then the ends of renewals that were sent and not answered."""
        self.interrupt: Callable[[], None] = _nothing
        self.failure: BaseException | None = None
        self.has_ended = False
        """Whether its handler has ended."""
        self.is_renewable = True
        self.is_refused = False
        """Whether the database refused its result, and the user was notified."""
        self.retry_at: Instant | None = None
        """When to write to it again, if a transaction of its owner has locked it."""
        self.is_sent = False
        """Whether its result was sent already, and not answered."""
        self.began = time.monotonic()

    @property
    def lock(self) -> DocumentLock:
        return DocumentLock(self.id, self.lock_ends)

    @property
    def needs_renewal(self) -> bool:
        """Whether its handler runs, and its lock can still be renewed."""
        return self.is_renewable and not self.has_ended and not self.document.is_lost

    def may_write(self, now: Instant) -> bool:
        """Return whether a write to it may be tried now."""
        return self.retry_at is None or self.retry_at <= now


class HeldDocuments:
    """The held documents of one worker. Only the thread that steps the worker adds and removes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._all: list[HeldDocument] = []
        self._latest: dict[str, HeldDocument] = {}
        """The last one held of each document, by the ``repr`` of its id, which may have no hash."""

    def __iter__(self) -> Iterator[HeldDocument]:
        """Iterate over a copy, from any thread."""
        return iter(self._all.copy())

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, held: object) -> bool:
        return held in self._all

    def add(self, held: HeldDocument) -> None:
        self._all.append(held)
        self._latest[_key(held.id)] = held

    def remove(self, held: HeldDocument) -> None:
        self._all.remove(held)
        if self._latest.get(_key(held.id)) is held:
            del self._latest[_key(held.id)]

    def find(self, id_: Any) -> HeldDocument | None:
        """Return the last one held of the document with this id."""
        held = self._latest.get(_key(id_))
        return held if held is not None and held.id == id_ else None

    @property
    def last(self) -> HeldDocument:
        return self._all[-1]

    @property
    def ids(self) -> str:
        """The ids for a log message: some of them, if they are many."""
        ids = [shown(held.id) for held in self]
        more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
        return ", ".join(ids[:_MOST_NAMED]) + more

    def lose(self, held: HeldDocument) -> None:
        """Note that the lock is lost, and cancel the handler where that is possible."""
        held.document.lose()
        _log.warning("the lock of a document was lost", extra=self.log_fields(held))
        held.interrupt()

    def postpone(self, held: HeldDocument, now: Instant) -> None:
        """Retry a write later because a transaction of the document's owner has locked it. Other documents do
        not wait for it."""
        if held.retry_at is None:
            _log.warning(
                "a transaction of its owner has locked a document, trying again", extra=self.log_fields(held)
            )
        held.retry_at = now + _RETRY

    def limit_retries(self, now: Instant) -> None:
        """Bring retries forward if the clock was set back: none waits longer than ``postpone`` meant."""
        for held in self._all:
            if held.retry_at is not None:
                held.retry_at = min(held.retry_at, now + _RETRY)

    def log_fields(self, held: HeldDocument) -> dict[str, object]:
        return {"component": "documents", "documents": self._name, "document": shown(held.id)}


def _key(id_: Any) -> str:
    """Return a text by which to find an id again: it may have no hash, and its ``repr`` may raise."""
    try:
        return repr(id_)
    except Exception:
        return f"<{type(id_).__name__}>"


def _nothing() -> None:
    pass
