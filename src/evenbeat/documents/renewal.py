"""Keeps the locks of documents whose handlers run."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from evenbeat.core.instants import Instant
from evenbeat.documents.base import Change, DocumentLock, Documents
from evenbeat.documents.document import Document
from evenbeat.documents.held import HeldDocument, HeldDocuments
from evenbeat.errors import StoreUnavailable

_log = logging.getLogger("evenbeat.documents")


class LockRenewer:
    """Renews locks once a third of ``duration`` (milliseconds) has passed."""

    def __init__(
        self,
        documents: Documents,
        held_documents: HeldDocuments,
        duration: int,
        report: Callable[[BaseException, Document | None], None],
    ) -> None:
        self._documents = documents
        self._held = held_documents
        self._duration = duration
        self._report = report
        self.random = random.Random()  # noqa: S311 - not a secret: it only makes renewals differ

    def next_at(self) -> Instant | None:
        """Return when the next lock is to be renewed; None if no handler runs."""
        before_end = self._duration * 2 // 3
        running = [held for held in self._held if held.needs_renewal]
        return min(
            (max(held.lock_ends[0] - before_end, held.retry_at or 0) for held in running), default=None
        )

    def renew(self, now: Instant) -> None:
        """Renew the locks of which a third has passed, and with them those of which a sixth has."""
        running = [held for held in self._held if held.needs_renewal and held.may_write(now)]
        if all(held.lock_ends[0] - now > self._duration * 2 // 3 for held in running):
            return
        due = [held for held in running if held.lock_ends[0] - now < self._duration * 5 // 6]
        # The fence of a renewal is made of the ends that the document may have before it is sent. Until the
        # answer has come, the document may have one more.
        locks = [held.lock for held in due]
        for held in due:
            jitter = self.random.randrange(_jitter(self._duration))
            held.lock_ends = _renewed(held.lock_ends, now, self._duration, jitter)
        try:
            self._send(due, locks, now)
        except StoreUnavailable:
            raise
        except Exception:
            # The database may refuse one of them; the others keep their locks.
            for held in due:
                self._renew_alone(held, now)

    def _renew_alone(self, held: HeldDocument, now: Instant) -> None:
        try:
            self._send([held], [held.lock], now)
        except StoreUnavailable:
            raise
        except Exception as error:
            # The worker holds it until its lock ends. Retries would only make the other documents wait.
            held.is_renewable = False
            _log.exception("the lock of a document can't be renewed", extra=self._held.log_fields(held))
            self._report(error, held.document)

    def _send(self, some: Sequence[HeldDocument], locks: Sequence[DocumentLock], now: Instant) -> None:
        changes = [Change(lock, held.lock_ends[-1]) for held, lock in zip(some, locks, strict=True)]
        answers = self._documents.update(changes)
        for held, lock, is_ours in zip(some, locks, answers, strict=True):
            if is_ours is None:
                held.lock_ends = lock.ends
                self._held.postpone(held, now)
                continue
            held.lock_ends, held.retry_at = held.lock_ends[-1:], None
            if not is_ours:
                self._held.lose(held)


def first_lock(duration: int) -> int:
    """Return for how long to lock a document at first: a little longer than ``duration``.

    Many documents are due at a full second, and many locks last for whole minutes. So without the extra time
    the end of a lock could equal a later tick of its document. Suppose that the owner moves the document, and
    that it comes to that tick: a worker that writes late would take the tick for the end of its own lock.
    Every lock gets the same extra time, so that locks which begin at different milliseconds also end at
    different ones.
    """
    return duration + min(duration // 10, 501)


def _jitter(duration: int) -> int:
    """Return by how much renewals differ: a third of a lock may be a multiple of an interval."""
    return max(1, min(duration // 10, 1000))


def _renewed(ends: tuple[Instant, ...], now: Instant, duration: int, jitter: int) -> tuple[Instant, ...]:
    """Return the ends that a lock may have once its renewal was sent, the wanted one last.

    If a renewal was not answered, and its end is at least half of ``duration`` away, the same end is sent
    again. So a lock never has many possible ends.

    Otherwise the lock gets a new end, which must differ from every value that others write:

    - Another worker may take the document at the first possible end, and lock it for ``duration`` from then
      on. The new end is earlier than the end of that lock. So a lock that ended long ago is renewed in
      several steps.
    - No tick of a cron is odd, and ticks of an interval are regular. The new end is odd, and has a random
      part.
    """
    if len(ends) > 1 and ends[-1] - now >= duration // 2:
        return ends
    end = min(now + duration, ends[0] + duration - 1) - jitter
    end -= 1 - end % 2
    return (*ends, end) if end > ends[-1] else ends
