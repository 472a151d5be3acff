"""The worker of a processor: locks due documents, has them handled, and writes what became of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.documents import rules
from evenbeat.documents.base import Change, Documents, Found
from evenbeat.documents.document import Document
from evenbeat.documents.held import HeldDocument, HeldDocuments
from evenbeat.documents.renewal import LockRenewer, first_lock
from evenbeat.documents.results import ResultWriter
from evenbeat.documents.rules import DocumentPlan, Policy
from evenbeat.errors import InvalidValue, StoreUnavailable

# Milliseconds that a document may wait if its owner has called no hint.
LONGEST_SLEEP = 1000
# Seconds in which short handlers end.
_SHORT = 0.01


class Limits(msgspec.Struct, frozen=True):
    """How many documents a processor takes, and how fast. Durations are milliseconds."""

    concurrency: int
    lock_duration: int
    next_delay: int = 0
    idle_delay: int = 0


class WorkerCallbacks(msgspec.Struct, frozen=True):
    """The callbacks of a worker. None of them raises."""

    handle: Callable[[HeldDocument], None]
    """Call the handler in another thread, and ``DocumentWorker.handler_ended`` when it has ended."""
    report: Callable[[BaseException, Document | None], None]
    """Report an error to the user, in another thread, with the document that it is about."""
    idle: Callable[[], None]
    """Call ``on_idle``, and wait for it."""
    wake: Callable[[], None]
    """Have ``DocumentWorker.step`` called soon."""


class DocumentWorker:
    """One thread calls ``step``; the other methods may be called from any thread.

    A slot is room for one document. It is occupied when a document is locked, and free again ``next_delay``
    after its result was written.
    """

    def __init__(
        self, documents: Documents, limits: Limits, policy: Policy, callbacks: WorkerCallbacks
    ) -> None:
        self._documents = documents
        self._limits = limits
        self._callbacks = callbacks
        self.held = HeldDocuments(documents.name)
        self.renewer = LockRenewer(documents, self.held, limits.lock_duration, callbacks.report)
        self.results = ResultWriter(
            documents,
            self.held,
            policy,
            report=callbacks.report,
            written=self._poll_when_due,
            released=self._rest,
        )
        self._resting: deque[Instant] = deque()
        """When each slot that rests is free again, in order."""
        self._poll_at: Instant | None = None
        """When to poll for due documents again; None for at once."""
        self._hinted = threading.Event()
        self._draining = False
        self.is_idle = False
        self.empty = threading.Event()
        """Set once it holds no document and takes no more."""

    @property
    def is_processing(self) -> bool:
        """Whether it holds a document."""
        return len(self.held) > 0

    @property
    def is_handling(self) -> bool:
        """Whether a handler runs, or waits for a thread."""
        return any(not held.has_ended for held in self.held)

    @property
    def is_gathering(self) -> bool:
        """Whether more handlers will end in a moment: short ones end one after the other, and their results
        are written in one call. For the thread that steps."""
        ended = sum(held.has_ended for held in self.held)
        if not 0 < ended < len(self.held) - ended:
            return False
        return time.monotonic() - self.held.last.began < _SHORT

    def hint(self) -> None:
        """Look for due documents at the next step."""
        self._hinted.set()
        self._callbacks.wake()

    def drain(self) -> None:
        """Take no more documents."""
        self._draining = True
        self._callbacks.wake()

    def handler_ended(self, held: HeldDocument, failure: BaseException | None) -> None:
        """Note that the handler of a document has ended, and what it raised."""
        held.failure = failure
        # Now, not at the next step: a stop that waits for handlers does not wait for the database as well.
        held.has_ended = True
        self._callbacks.wake()

    def check_empty(self) -> None:
        """Set ``empty`` if nothing is left to do. For the thread that steps, also when the clock can't be
        read: a worker that holds no document does not need the database."""
        if self._draining and not self.held:
            self.empty.set()

    def step(self, now: Instant) -> Instant | None:
        """Renew locks, write results, lock due documents. Return when to step again.

        If one of these duties fails, the others are done all the same: a document that a transaction of
        its owner has locked must neither cost the others their locks, nor delay those that are due.
        """
        self._limit_waits(now)
        errors: list[StoreUnavailable] = []
        # Renewals first: writing takes long where an owner has locked a document.
        for duty in (self.renewer.renew, self.results.write, self._take):
            try:
                duty(self._read_clock(now))
            except StoreUnavailable as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self._check_idle(now)
        self.check_empty()
        return self._next_step(now)

    def _read_clock(self, now: Instant) -> Instant:
        """Read the clock again: the duty before may have taken long. ``now`` if it can't be read."""
        try:
            return max(now, self._documents.now())
        except StoreUnavailable:
            return now

    def _limit_waits(self, now: Instant) -> None:
        """Bring waits forward if the clock was set back: none lasts longer than it was meant to."""
        if self._poll_at is not None:
            self._poll_at = min(self._poll_at, now + (self._limits.idle_delay or LONGEST_SLEEP))
        self.held.limit_retries(now)
        for place, free_at in enumerate(self._resting):
            self._resting[place] = min(free_at, now + self._limits.next_delay)

    def _next_step(self, now: Instant) -> Instant | None:
        times = [self.renewer.next_at(), self.results.next_at()]
        if not self._draining:
            times.extend(self._resting)
            if len(self.held) + len(self._resting) < self._limits.concurrency:
                times.append(now if self._poll_at is None else self._poll_at)
        return min((time for time in times if time is not None), default=None)

    # Locking

    def _take(self, now: Instant) -> None:
        if self._draining:
            return
        while self._resting and self._resting[0] <= now:
            self._resting.popleft()
        free = self._limits.concurrency - len(self.held) - len(self._resting)
        if self._hinted.is_set():
            self._poll_at = None
        if free <= 0 or (self._poll_at is not None and now < self._poll_at):
            return
        # Before the poll: a hint that comes meanwhile causes another poll.
        self._hinted.clear()
        taken = self._documents.lock_next(first_lock(self._limits.lock_duration), free)
        for found in self._still_locked(taken.found):
            if not self._is_held(found):
                self._receive(found)
        if len(taken.found) == free:
            self._poll_at = None
        elif self._limits.idle_delay:
            self._poll_at = now + self._limits.idle_delay
        else:
            latest = now + LONGEST_SLEEP
            self._poll_at = latest if taken.next_due is None else min(taken.next_due, latest)

    def _still_locked(self, found: Sequence[Found]) -> Sequence[Found]:
        """Leave out documents whose lock ended before the answer came: others may have them by now."""
        if not found:
            return found
        try:
            now = self._documents.now()
        except StoreUnavailable:
            return found
        return [one for one in found if one.locked_until > now]

    def _is_held(self, found: Found) -> bool:
        """Return whether the worker goes on with a document that it held already, under a lock that ended.

        If the document was due at the end of that lock, no other worker had it since: the new lock continues
        the old one. If not, its owner has moved it, or others had it: the old lock is lost, and the document
        is processed again.
        """
        held = self.held.find(found.id)
        if held is None or held.document.is_lost:
            return False
        if found.sleep_until in held.lock_ends:
            held.lock_ends = (found.locked_until,)
            return True
        # If both were renewed to the same instant, each would take the other's lock for its own.
        if not held.has_ended:
            self.held.lose(held)
        return False

    def _receive(self, found: Found) -> None:
        self.is_idle = False
        plan, failure = None, None
        try:
            plan = rules.read(found)
        except InvalidValue as error:
            failure = error
        except Exception as error:  # an id or a value of the user's may raise anything
            failure = InvalidValue(f"the document can't be read: {error!r}", field="document", value=None)
        reserved = self._documents.reserved
        document = Document(found, plan or DocumentPlan(found.sleep_until), self._documents.now, reserved)
        held = HeldDocument(found, plan, document)
        self.held.add(held)
        if failure is None:
            self._callbacks.handle(held)
        else:
            self._callbacks.report(failure, document)
            self.handler_ended(held, failure)

    def _check_idle(self, now: Instant) -> None:
        """Call ``on_idle`` when the worker turns idle: it holds no document and knows of none that is due."""
        if self._draining or self.held or self.is_idle or self._poll_at is None:
            return
        if now < self._poll_at:
            self.is_idle = True
            self._callbacks.idle()

    # Called by the writer of results

    def _poll_when_due(self, changes: Sequence[Change]) -> None:
        """Poll again when the first of these is due."""
        if self._poll_at is not None and not self._limits.idle_delay:
            times = [change.sleep_until for change in changes if change.sleep_until is not None]
            self._poll_at = min([self._poll_at, *times])

    def _rest(self, now: Instant) -> None:
        """Let the slot of a document that was given up rest."""
        if self._limits.next_delay:
            self._resting.append(now + self._limits.next_delay)
