"""Writes what became of documents whose handlers have ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.documents import rules
from evenbeat.documents.base import HELD_AT, Change, Documents
from evenbeat.documents.document import Document
from evenbeat.documents.held import HeldDocument, HeldDocuments
from evenbeat.documents.rules import REMOVE, Disposition, Policy
from evenbeat.errors import DocumentLockLost, StoreUnavailable

_log = logging.getLogger("evenbeat.documents")


class ResultWriter:
    """Writes results, all that there are in one call.

    ``written`` is called with the changes that are about to be sent, ``released`` with the instant at which
    a document was given up: its result is written, or can't be.
    """

    def __init__(
        self,
        documents: Documents,
        held_documents: HeldDocuments,
        policy: Policy,
        *,
        report: Callable[[BaseException, Document | None], None],
        written: Callable[[Sequence[Change]], None],
        released: Callable[[Instant], None],
    ) -> None:
        self._documents = documents
        self._held = held_documents
        self._policy = policy
        self._report = report
        self._written = written
        self._released = released

    def next_at(self) -> Instant | None:
        """Return when to retry the first of the results that were postponed."""
        return min(
            (held.retry_at for held in self._held if held.has_ended and held.retry_at is not None),
            default=None,
        )

    def write(self, now: Instant) -> None:
        """Write the results of all handlers that have ended."""
        ended = [held for held in self._held if held.has_ended and held.may_write(now)]
        for held in ended:
            if held.document.is_lost:
                self._release(held, now)
        ended = [held for held in ended if not held.document.is_lost]
        if not ended:
            return
        try:
            self._write(ended, now)
        except StoreUnavailable:
            raise
        except Exception:
            # The database may refuse one of them; the others are written without it.
            for held in ended:
                if held in self._held:
                    self._write_alone(held, now)

    def _write_alone(self, held: HeldDocument, now: Instant) -> None:
        try:
            self._write([held], now)
        except StoreUnavailable:
            raise
        except Exception as error:
            if not held.is_refused:
                held.is_refused = True
                self._report(error, held.document)
            if held.failure is None:
                # Without the fields that the handler has set, which the database may refuse.
                held.failure = error
                self._write_alone(held, now)
            else:
                _log.exception("the result of a document can't be written", extra=self._held.log_fields(held))
                self._release(held, now)

    def _write(self, some: Sequence[HeldDocument], now: Instant) -> None:
        decided = [(held, *self._decide(held, now)) for held in some]
        kept = [held for held, disposition, _ in decided if disposition != REMOVE]
        removed = [held for held, disposition, _ in decided if disposition == REMOVE]
        changes = [
            Change(held.lock, disposition, fields)
            for held, disposition, fields in decided
            if disposition != REMOVE
        ]
        if kept:
            # Before they are sent: they may be written even if no answer comes.
            self._written(changes)
            self._send(kept, now, lambda: self._documents.update(changes))
        if removed:
            self._send(removed, now, lambda: self._documents.remove([held.lock for held in removed]))

    def _decide(self, held: HeldDocument, now: Instant) -> tuple[Disposition, Mapping[str, Any]]:
        """Return what becomes of a document, and the fields to set. Decided again each time it is sent: the
        clock has gone on."""
        if held.plan is None:
            return HELD_AT, {}
        if held.failure is not None:
            return rules.after_failure(held.plan, now, self._policy), {}
        rescheduled_to, fields = held.document.noted
        if rescheduled_to is None:
            return rules.after_success(held.plan, now, self._policy), fields
        if rescheduled_to == held.plan.sleep_until:
            # That instant may have been the lock of a worker that is late, and would take it for its own.
            rescheduled_to += 1
        return rescheduled_to, fields

    def _send(
        self, some: Sequence[HeldDocument], now: Instant, send: Callable[[], Sequence[bool | None]]
    ) -> None:
        sent_before = [held.is_sent for held in some]
        for held in some:
            held.is_sent = True
        answers = send()
        for held, was_sent, is_written in zip(some, sent_before, answers, strict=True):
            if is_written is None:
                held.is_sent = was_sent
                self._held.postpone(held, now)
                continue
            if is_written or (was_sent and now < held.lock_ends[0]):
                # It was sent before, and no other worker could lock it since: it was written then.
                self._log_result(held)
            elif was_sent:
                _log.warning(
                    "a result may be written or not: the database did not answer",
                    extra=self._held.log_fields(held),
                )
            else:
                _log.warning("the lock of a document was lost at its end", extra=self._held.log_fields(held))
                self._report(DocumentLockLost(held.id), held.document)
            self._release(held, now)

    def _log_result(self, held: HeldDocument) -> None:
        fields = self._held.log_fields(held)
        if held.plan is None:
            _log.error("a document is invalid, and held: %s", held.failure, extra=fields)
            return
        fields["duration"] = round(time.monotonic() - held.began, 3)
        if held.failure is None:
            _log.debug("a document was processed", extra=fields)
        else:
            _log.error("a document failed", exc_info=held.failure, extra=fields)

    def _release(self, held: HeldDocument, now: Instant) -> None:
        self._held.remove(held)
        self._released(now)
