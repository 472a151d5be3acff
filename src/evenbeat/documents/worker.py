"""The worker: the documents in hand. Takes what is due, renews its locks, writes what became of it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.documents import rules
from evenbeat.documents.base import HELD, Change, DocumentLock, Documents, Found
from evenbeat.documents.document import Document
from evenbeat.documents.rules import REMOVE, Disposition, Plan, Policy
from evenbeat.errors import DocumentLockLost, InvalidValue, StoreUnavailable, shown

# How long a document that nobody hinted at may wait until it is seen.
LONGEST_SLEEP = 1000
# Seconds within which handlers that are short have ended.
_SHORT = 0.01
# Milliseconds until something is written again to a document that somebody else holds.
_HOLD = 2000
# Documents that a log names at most.
_NAMED = 20

_log = logging.getLogger("evenbeat.documents")


class Limits(msgspec.Struct, frozen=True):
    """How fast a processor goes. Durations are milliseconds."""

    concurrency: int
    lock_duration: int
    next_delay: int = 0
    idle_delay: int = 0


class HeldDocument:
    """A document in hand: from its lock until the database has answered to what became of it."""

    def __init__(self, found: Found, plan: Plan | None, document: Document) -> None:
        self.id = found.id
        self.plan = plan
        """None where the document makes no sense."""
        self.document = document
        self.ends: tuple[Instant, ...] = (found.locked_until,)
        """The end of its lock; then those of renewals that were sent and not answered."""
        self.interrupt: Callable[[], None] = _nothing
        self.failure: BaseException | None = None
        self.is_over = False
        self.is_renewable = True
        self.is_refused = False
        """Whether the database refuses its end, and the user was told."""
        self.again_at: Instant | None = None
        """When to write to it again, where somebody else holds it."""
        self.is_sent = False
        """Whether its end was sent already, and not answered."""
        self.began = time.monotonic()

    @property
    def lock(self) -> DocumentLock:
        return DocumentLock(self.id, self.ends)


class Calls(msgspec.Struct, frozen=True):
    """What a worker has done elsewhere. None of these raises."""

    handle: Callable[[HeldDocument], None]
    """Process the document, and call ``DocumentWorker.ended`` when that is over. Returns at once."""
    tell: Callable[[BaseException, Document | None], None]
    """Tell the user of an error, and which document it is about. Comes back at once."""
    idle: Callable[[], None]
    """There is nothing to do. May take its time."""
    wake: Callable[[], None]
    """Have ``DocumentWorker.step`` called soon."""


class DocumentWorker:
    """One thread calls ``step``; the rest may be called from anywhere.

    A slot is where one document can be processed. It is taken when a document is locked, and free again
    ``next_delay`` after its end was written.
    """

    def __init__(self, documents: Documents, limits: Limits, policy: Policy, calls: Calls) -> None:
        self._documents = documents
        self._limits = limits
        self._policy = policy
        self._calls = calls
        self._held: list[HeldDocument] = []
        self._latest: dict[str, HeldDocument] = {}
        """The last item of each document in hand, by what ``repr`` makes of ids, which may have no hash."""
        self._resting: deque[Instant] = deque()
        """When each slot that rests is free again, in order."""
        self._look_at: Instant | None = None
        """When to ask for due documents again; None for at once."""
        self._hinted = threading.Event()
        self._dice = random.Random()  # noqa: S311 - no secret: it keeps apart what is not secret
        self._draining = False
        self.is_idle = False
        self.empty = threading.Event()
        """Set once nothing is in hand and nothing more is taken."""

    @property
    def is_processing(self) -> bool:
        return bool(self._held)

    @property
    def is_handling(self) -> bool:
        """Whether any handler has not ended yet."""
        return any(not item.is_over for item in list(self._held))

    @property
    def in_hand(self) -> str:
        """The ids of the documents in hand, for a log: some of them, if they are many."""
        ids = [shown(item.id) for item in list(self._held)]
        return ", ".join(ids[:_NAMED]) + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")

    @property
    def is_gathering(self) -> bool:
        """Whether more will have ended in a moment: handlers that are short end one after the other, and are
        written together in one call. By the thread that steps."""
        over = sum(item.is_over for item in self._held)
        if not 0 < over < len(self._held) - over:
            return False
        return time.monotonic() - self._held[-1].began < _SHORT

    def hint(self) -> None:
        """Look: something may be due."""
        self._hinted.set()
        self._calls.wake()

    def drain(self) -> None:
        """Take nothing more."""
        self._draining = True
        self._calls.wake()

    def ended(self, item: HeldDocument, failure: BaseException | None) -> None:
        """The handler of an item has ended, and raised this."""
        item.failure = failure
        # At once, not at the next step: who waits for handlers must not wait for the database as well.
        item.is_over = True
        self._calls.wake()

    def see_empty(self) -> None:
        """Notice that nothing is left to do. By the thread that steps, also where the clock can't be asked:
        a worker with nothing in hand has no need of the database."""
        if self._draining and not self._held:
            self.empty.set()

    def step(self, now: Instant) -> Instant | None:
        """Write what has ended, renew what goes on, take what is due. Answers when to step again.

        Each for itself: one document that the database keeps to itself, as a transaction of its owner's may
        have it, must not cost the others their locks, nor keep those waiting that are due.
        """
        self._mind_the_clock(now)
        troubles: list[StoreUnavailable] = []
        # Locks first: writing may take its time where an owner holds a document.
        for duty in (self._renew, self._write_ends, self._take):
            try:
                duty(self._by_now(now))
            except StoreUnavailable as trouble:
                troubles.append(trouble)
        if troubles:
            raise troubles[0]
        self._see_idle(now)
        self.see_empty()
        return self._next_step(now)

    def _by_now(self, now: Instant) -> Instant:
        """Anew for each duty, as the one before may have taken its time. The clock may be away."""
        try:
            return max(now, self._documents.now())
        except StoreUnavailable:
            return now

    def _mind_the_clock(self, now: Instant) -> None:
        """A clock that was set back keeps nobody waiting for longer than agreed."""
        if self._look_at is not None:
            self._look_at = min(self._look_at, now + (self._limits.idle_delay or LONGEST_SLEEP))
        for item in self._held:
            if item.again_at is not None:
                item.again_at = min(item.again_at, now + _HOLD)
        for place, free_at in enumerate(self._resting):
            self._resting[place] = min(free_at, now + self._limits.next_delay)

    def _next_step(self, now: Instant) -> Instant | None:
        renewal = self._limits.lock_duration * 2 // 3
        times = [max(item.ends[0] - renewal, item.again_at or 0) for item in self._going()]
        times += [item.again_at for item in self._held if item.is_over and item.again_at is not None]
        if not self._draining:
            times.extend(self._resting)
            if len(self._held) + len(self._resting) < self._limits.concurrency:
                times.append(now if self._look_at is None else self._look_at)
        return min(times, default=None)

    # Taking

    def _take(self, now: Instant) -> None:
        if self._draining:
            return
        while self._resting and self._resting[0] <= now:
            self._resting.popleft()
        free = self._limits.concurrency - len(self._held) - len(self._resting)
        if self._hinted.is_set():
            self._look_at = None
        if free <= 0 or (self._look_at is not None and now < self._look_at):
            return
        # Before it looks: what comes meanwhile asks for another look.
        self._hinted.clear()
        taken = self._documents.lock_next(locked_for(self._limits.lock_duration), free)
        for found in self._still_ours(taken.found):
            if not self._is_in_hand(found):
                self._receive(found)
        if len(taken.found) == free:
            self._look_at = None
        elif self._limits.idle_delay:
            self._look_at = now + self._limits.idle_delay
        else:
            latest = now + LONGEST_SLEEP
            self._look_at = latest if taken.next_due is None else min(taken.next_due, latest)

    def _still_ours(self, found: Sequence[Found]) -> Sequence[Found]:
        """Without those whose lock has ended before the answer came: others may have them by now."""
        if not found:
            return found
        try:
            now = self._documents.now()
        except StoreUnavailable:
            return found
        return [one for one in found if one.locked_until > now]

    def _is_in_hand(self, found: Found) -> bool:
        """Whether it is in hand already, under a lock that has ended. If the end of that was due, nobody else
        had it since: it is locked anew, and goes on. If not, its owner has moved it, or others had it:
        what is in hand has lost its lock, and the document is processed again."""
        item = self._latest.get(_named(found.id))
        if item is None or item.id != found.id or item.document.is_lost:
            return False
        if found.sleep_until in item.ends:
            item.ends = (found.locked_until,)
            return True
        # Were both renewed to the same instant, each would take the other's lock for its own.
        if not item.is_over:
            self._lose(item)
        return False

    def _receive(self, found: Found) -> None:
        self.is_idle = False
        plan, failure = None, None
        try:
            plan = rules.read(found)
        except InvalidValue as error:
            failure = error
        except Exception as error:  # whatever an id or a value of the user's may do
            failure = InvalidValue(f"the document can't be read: {error!r}", field="document", value=None)
        reserved = self._documents.reserved
        document = Document(found, plan or Plan(found.sleep_until), self._documents.now, reserved)
        item = HeldDocument(found, plan, document)
        self._held.append(item)
        self._latest[_named(item.id)] = item
        if failure is None:
            self._calls.handle(item)
        else:
            self._calls.tell(failure, document)
            self.ended(item, failure)

    def _see_idle(self, now: Instant) -> None:
        """Idle is a worker without documents that knows of none that is due."""
        if self._draining or self._held or self.is_idle or self._look_at is None:
            return
        if now < self._look_at:
            self.is_idle = True
            self._calls.idle()

    # Renewing

    def _going(self) -> list[HeldDocument]:
        return [item for item in self._held if _is_going(item)]

    def _renew(self, now: Instant) -> None:
        """Renew at a third; whoever is near goes along."""
        duration = self._limits.lock_duration
        going = [item for item in self._going() if _may_write(item, now)]
        if all(item.ends[0] - now > duration * 2 // 3 for item in going):
            return
        near = [item for item in going if item.ends[0] - now < duration * 5 // 6]
        # Under the ends that may be there before it is sent; those that may be there until the answer has
        # come are one more.
        locks = [item.lock for item in near]
        for item in near:
            item.ends = _renewed(item.ends, now, duration, self._dice.randrange(_jitter(duration)))
        try:
            self._send_renewals(near, locks, now)
        except StoreUnavailable:
            raise
        except Exception:
            # One of them may be what the database refuses; its neighbours keep their locks.
            for item in near:
                self._renew_alone(item, now)

    def _renew_alone(self, item: HeldDocument, now: Instant) -> None:
        try:
            self._send_renewals([item], [item.lock], now)
        except StoreUnavailable:
            raise
        except Exception as error:
            # It is ours until its lock ends. Asking again and again would only keep the others waiting.
            item.is_renewable = False
            _log.exception("the lock of a document can't be renewed", extra=self._fields(item))
            self._calls.tell(error, item.document)

    def _send_renewals(
        self, items: Sequence[HeldDocument], locks: Sequence[DocumentLock], now: Instant
    ) -> None:
        changes = [Change(lock, item.ends[-1]) for item, lock in zip(items, locks, strict=True)]
        answers = self._documents.update(changes)
        for item, lock, is_ours in zip(items, locks, answers, strict=True):
            if is_ours is None:
                item.ends = lock.ends
                self._put_off(item, now)
                continue
            item.ends, item.again_at = item.ends[-1:], None
            if not is_ours:
                self._lose(item)

    def _put_off(self, item: HeldDocument, now: Instant) -> None:
        """Somebody else holds the document: what is to be written to it waits, and nothing else does."""
        if item.again_at is None:
            _log.warning("a document is held by somebody else, trying again", extra=self._fields(item))
        item.again_at = now + _HOLD

    def _lose(self, item: HeldDocument) -> None:
        item.document.lose()
        _log.warning("the lock of a document was lost", extra=self._fields(item))
        item.interrupt()

    # Writing

    def _write_ends(self, now: Instant) -> None:
        over = [item for item in self._held if item.is_over and _may_write(item, now)]
        for item in over:
            if item.document.is_lost:
                self._put_away(item, now)
        over = [item for item in over if not item.document.is_lost]
        if not over:
            return
        try:
            self._write(over, now)
        except StoreUnavailable:
            raise
        except Exception:
            # One of them may be what the database refuses; its neighbours need not suffer.
            for item in over:
                if item in self._held:
                    self._write_alone(item, now)

    def _write_alone(self, item: HeldDocument, now: Instant) -> None:
        try:
            self._write([item], now)
        except StoreUnavailable:
            raise
        except Exception as error:
            if not item.is_refused:
                item.is_refused = True
                self._calls.tell(error, item.document)
            if item.failure is None:
                # Without what it has noted, which may be what the database refuses.
                item.failure = error
                self._write_alone(item, now)
            else:
                _log.exception("the end of a document can't be written", extra=self._fields(item))
                self._put_away(item, now)

    def _write(self, items: Sequence[HeldDocument], now: Instant) -> None:
        decided = [self._decide(item, now) for item in items]
        kept = [item for item, disposition, _ in decided if disposition != REMOVE]
        removed = [item for item, disposition, _ in decided if disposition == REMOVE]
        changes = [
            Change(item.lock, disposition, fields)
            for item, disposition, fields in decided
            if disposition != REMOVE
        ]
        if kept:
            # Before it is sent: it may be written even if no answer comes.
            self._look_for(changes)
            self._send(kept, now, lambda: self._documents.update(changes))
        if removed:
            self._send(removed, now, lambda: self._documents.remove([item.lock for item in removed]))

    def _look_for(self, changes: Sequence[Change]) -> None:
        """Look when one of these is due."""
        if self._look_at is not None and not self._limits.idle_delay:
            times = [change.sleep_until for change in changes if change.sleep_until is not None]
            self._look_at = min([self._look_at, *times])

    def _decide(
        self, item: HeldDocument, now: Instant
    ) -> tuple[HeldDocument, Disposition, Mapping[str, Any]]:
        """Anew each time it is sent: the clock has gone on."""
        if item.plan is None:
            return item, HELD, {}
        if item.failure is not None:
            return item, rules.after_failure(item.plan, now, self._policy), {}
        wish, fields = item.document.wishes
        if wish is None:
            return item, rules.after_success(item.plan, now, self._policy), fields
        # What was due may have been the lock of one who is late: it must not be there for him again.
        return item, wish + 1 if wish == item.plan.sleep_until else wish, fields

    def _send(
        self, items: Sequence[HeldDocument], now: Instant, send: Callable[[], Sequence[bool | None]]
    ) -> None:
        sent_before = [item.is_sent for item in items]
        for item in items:
            item.is_sent = True
        answers = send()
        for item, was_sent, is_written in zip(items, sent_before, answers, strict=True):
            if is_written is None:
                item.is_sent = was_sent
                self._put_off(item, now)
                continue
            if is_written or (was_sent and now < item.ends[0]):
                # It was sent before, and nobody else could take it since: it was written then.
                self._report(item)
            elif was_sent:
                _log.warning("an end may be written or not: no answer came", extra=self._fields(item))
            else:
                _log.warning("the lock of a document was lost at its end", extra=self._fields(item))
                self._calls.tell(DocumentLockLost(item.id), item.document)
            self._put_away(item, now)

    def _report(self, item: HeldDocument) -> None:
        fields = self._fields(item)
        if item.plan is None:
            _log.error("a document is not understood, and held: %s", item.failure, extra=fields)
            return
        fields["duration"] = round(time.monotonic() - item.began, 3)
        if item.failure is None:
            _log.debug("a document was processed", extra=fields)
        else:
            _log.error("a document failed", exc_info=item.failure, extra=fields)

    def _put_away(self, item: HeldDocument, now: Instant) -> None:
        self._held.remove(item)
        if self._latest.get(_named(item.id)) is item:
            del self._latest[_named(item.id)]
        if self._limits.next_delay:
            self._resting.append(now + self._limits.next_delay)

    def _fields(self, item: HeldDocument) -> dict[str, object]:
        return {"component": "documents", "documents": self._documents.name, "document": shown(item.id)}


def locked_for(duration: int) -> int:
    """For how long a document is locked at first: a little longer than asked for.

    What is due at a full second is taken then, and often locked for minutes: the end of the lock would be one
    of its next ticks. Who writes late, after its owner has moved it and others have processed it, would take
    that for his lock. It is the same little for all, so that locks of different milliseconds differ.
    """
    return duration + min(duration // 10, 501)


def _jitter(duration: int) -> int:
    """By how much renewals differ: a third of a lock may well be a multiple of an interval."""
    return max(1, min(duration // 10, 1000))


def _may_write(item: HeldDocument, now: Instant) -> bool:
    return item.again_at is None or item.again_at <= now


def _named(id_: Any) -> str:
    """A text by which to find an id again: it need not have a hash, and its ``repr`` may raise anything."""
    try:
        return repr(id_)
    except Exception:
        return f"<{type(id_).__name__}>"


def _is_going(item: HeldDocument) -> bool:
    return item.is_renewable and not item.is_over and not item.document.is_lost


def _renewed(ends: tuple[Instant, ...], now: Instant, duration: int, jitter: int) -> tuple[Instant, ...]:
    """The ends that a lock may have once it was sent to be renewed, the wanted one last.

    What was sent before is sent again while it is good for something. A new one is nobody else's: others may
    take the document when the first end has come, and lock it for ``duration`` then, so this one is earlier;
    and it is odd, as no tick of a cron is, and not quite regular, as intervals are. So there are never many,
    and a lock that ended long ago is renewed in several steps.
    """
    if len(ends) > 1 and ends[-1] - now >= duration // 2:
        return ends
    end = min(now + duration, ends[0] + duration - 1) - jitter
    end -= 1 - end % 2
    return (*ends, end) if end > ends[-1] else ends


def _nothing() -> None:
    pass
