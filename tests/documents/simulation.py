"""Several workers on one store, with one clock and one seed: crashes, stalls, lost and late messages, owners.

``python -m tests.documents.simulation --seeds 20000`` searches for a seed that breaks a promise;
``--seed 7 -v`` shows one. Everything happens in one thread: other events happen during a call to the store.

The oracle does not use the code of the rules. It watches the documents themselves, and checks:

* A worker locks a document only when it is due, and when no valid lock is on it.
* A handler begins only under a valid lock.
* A worker writes or removes a document only if no other has locked it since, and its owner has not moved it.
* The holder of a valid lock is not refused; a worker that was refused notices.
* Only a worker that crashed, stalled, or had trouble with the store loses a lock to another one.
* A result is the next tick that is not past, once; no document that failed is removed.
* Changes of an owner are not overwritten.
* When the trouble is over, all documents that were due have been processed.
"""

from __future__ import annotations

import argparse
import copy
import logging
import random
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.documents import Change, DocumentLock, MemoryDocuments, Taken
from evenbeat.documents.base import HELD_AT
from evenbeat.documents.held import HeldDocument
from evenbeat.documents.renewal import first_lock
from evenbeat.documents.rules import Policy
from evenbeat.documents.worker import LONGEST_SLEEP, DocumentWorker, Limits, WorkerCallbacks
from evenbeat.errors import DocumentLockLost, StoreUnavailable
from evenbeat.testing.clock import VirtualClock

_T = TypeVar("_T")

CHAOS = 25_000
HORIZON = 60_000
DELAY_OF_RETRIES = 700


class Violation(BaseException):
    """A promise was broken. Not an Exception: workers go on after those."""


class Crashed(BaseException):
    """The node crashed while it waited for the store."""


class Kinds(NamedTuple):
    """The classes of a simulation; tests replace them by broken ones."""

    store: type[MemoryDocuments] = MemoryDocuments
    worker: type[DocumentWorker] = DocumentWorker


class Report(NamedTuple):
    steps: int
    handled: int
    takeovers: int
    faults: int
    coincidences: int


class Tenure:
    """A lock of a worker on a document, as the oracle knows it."""

    def __init__(self, node: Node, key: str, due: Instant, lock: Instant, fields: Mapping[str, Any]) -> None:
        self.node = node
        self.key = key
        self.due = due
        self.lock = lock
        """As the store has it."""
        self.fields = fields
        """The document when it was locked."""
        self.sent = {lock}
        """Every end of the lock that was ever requested."""
        self.stands = True
        """Whether the lock is valid: no other has locked the document since, nor has its owner moved it."""
        self.over_at: Instant | None = None
        self.outcome = "bad" if "61" in str(fields.get("interval")) else "?"
        self.wish: Instant | None = None
        self.is_written = False
        self.written: Instant | None = None
        self.is_moved = False
        """Whether its owner has moved the document meanwhile."""
        self.is_refused = False
        self.is_orphan = False
        """Whether the answer never reached the worker."""
        self.held: HeldDocument | None = None

    def __str__(self) -> str:
        return f"{self.key} of {self.node.name} ({self.outcome}, due {self.due}, lock {self.lock})"


class Node:
    """A process: a worker, its handlers, and its calls to the store."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        dice = world.dice
        self.duration = world.duration
        self.wire = Wire(world, self)
        limits = Limits(
            concurrency=4 if world.is_calm else dice.randint(1, 4),
            lock_duration=self.duration,
            next_delay=0 if world.is_calm else dice.choice([0, 0, 0, 150]),
            idle_delay=0 if world.is_calm else dice.choice([0, 0, 0, 400]),
        )
        callbacks = WorkerCallbacks(self.handle, lambda _error, _document: None, lambda: None, self.wake)
        self.worker = world.kinds.worker(self.wire, limits, world.policy, callbacks)
        self.worker.renewer.random = dice
        self.next_at = world.clock.now
        self.is_busy = False
        self.is_alive = True
        self.troubled_until = world.clock.now
        self.handlers: list[tuple[Instant, Tenure]] = []

    def wake(self) -> None:
        if not self.is_stalled:
            self.next_at = min(self.next_at, self.world.clock.now)

    @property
    def is_stalled(self) -> bool:
        return self.stalled_until > self.world.clock.now

    stalled_until: Instant = 0

    def handle(self, held: HeldDocument) -> None:
        world, dice = self.world, self.world.dice
        now = world.clock.now
        tenure = world.oracle.begun(self, held)
        is_quick = dice.random() < (0.98 if world.is_calm else 0.85)
        takes = dice.randint(0, 300) if is_quick else dice.randint(0, 3 * self.duration)
        if tenure.outcome == "?":
            tenure.outcome = "done"
            if not world.is_calm:
                tenure.outcome = dice.choices(["done", "failed", "refused"], [80, 15, 5])[0]
        if not world.is_calm and tenure.outcome == "done" and dice.random() < 0.06:
            held.document.reschedule(f"{dice.randint(1, 4000)}ms")
            tenure.wish = held.document.noted[0]
        if dice.random() < 0.5:
            held.document.update(result=dice.randint(0, 9))
        if tenure.outcome == "refused":
            held.document.update({"..": "no field is called so"})
        can_be_cancelled = dice.random() < 0.5
        self.handlers.append((now + takes, tenure))

        def interrupt() -> None:
            if can_be_cancelled:
                self.handlers = [
                    (now, other) if other is tenure else (at, other) for at, other in self.handlers
                ]

        held.interrupt = interrupt
        world.trace(f"{self.name} handles {tenure.key} for {takes} ms: {tenure.outcome}")

    def end_handlers(self) -> None:
        now = self.world.clock.now
        over = [(at, tenure) for at, tenure in self.handlers if at <= now]
        self.handlers = [(at, tenure) for at, tenure in self.handlers if at > now]
        for _, tenure in over:
            held = tenure.held
            assert held is not None
            tenure.over_at = now
            failure: BaseException | None = None
            if held.document.is_lost:
                failure = DocumentLockLost(tenure.key)
            elif tenure.outcome == "failed":
                failure = RuntimeError("the handler failed")
            self.worker.handler_ended(held, failure)

    def step(self) -> None:
        world, dice = self.world, self.world.dice
        world.steps += 1
        self.is_busy = True
        began = world.clock.now
        try:
            due = self.worker.step(self.wire.now())
        except Crashed:
            pass
        except StoreUnavailable:
            self.next_at = world.clock.now + dice.choice([100, 200, 400, 800])
            world.oracle.stepped(self)
        else:
            latest = world.clock.now + LONGEST_SLEEP
            self.next_at = max(min(latest, due or latest), world.clock.now) + dice.choice([0, 0, 1, 7])
            world.oracle.stepped(self)
        finally:
            self.is_busy = False
            if world.clock.now - began > 50:
                self.troubled_until = world.clock.now
        if any(held.has_ended for held in self.worker.held):
            self.wake()

    def events(self) -> list[tuple[Instant, Callable[[], None]]]:
        """Return the next events of this node."""
        found: list[tuple[Instant, Callable[[], None]]] = []
        if not self.is_alive:
            return found
        if self.handlers:
            found.append((min(at for at, _ in self.handlers), self.end_handlers))
        if not self.is_busy:
            found.append((max(self.next_at, self.stalled_until), self.step))
        return found


class Wire:
    """The connection of a node to the store, which loses and delays requests and replies."""

    def __init__(self, world: World, node: Node) -> None:
        self._world = world
        self._node = node
        self.name = "simulated"
        self.reserved = frozenset({"sleep_until"})

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def now(self) -> Instant:
        return self._world.clock.now

    def lock_next(self, duration: int, limit: int) -> Taken:
        oracle = self._world.oracle
        return self._call("lock_next", lambda: oracle.lock_next(self._node, duration, limit))

    def update(self, changes: Sequence[Change]) -> list[bool]:
        # A copy: a message that was sent does not change any more.
        sent = [Change(change.lock, change.sleep_until, dict(change.fields)) for change in changes]
        oracle = self._world.oracle
        tenures = [oracle.asked(self._node, change.lock) for change in sent]
        # Only the locks of handlers that run are renewed.
        renewals = [tenure.over_at is None and tenure.outcome != "bad" for tenure in tenures]
        for tenure, change, is_renewal in zip(tenures, sent, renewals, strict=True):
            if is_renewal and change.sleep_until is not None:
                tenure.sent.add(change.sleep_until)
        answers = self._call("update", lambda: oracle.update(tenures, sent, renewals))
        self._note_answers(tenures, answers)
        return answers

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        sent = list(locks)
        oracle = self._world.oracle
        tenures = [oracle.asked(self._node, lock) for lock in sent]
        answers = self._call("remove", lambda: oracle.remove(tenures, sent))
        self._note_answers(tenures, answers)
        return answers

    def _note_answers(self, tenures: Sequence[Tenure], answers: Sequence[bool]) -> None:
        for tenure, is_done in zip(tenures, answers, strict=True):
            tenure.is_refused = tenure.is_refused or not is_done

    def _call(self, what: str, effect: Callable[[], _T]) -> _T:
        world, node, dice = self._world, self._node, self._world.dice
        world.meanwhile(node)
        luck = 1.0 if world.is_calm else dice.random()
        if luck < 0.09:
            world.faults += 1
            node.troubled_until = world.clock.now
            if luck < 0.03:
                world.trace(f"{node.name}: a request is lost: {what}")
            elif luck < 0.06:
                world.trace(f"{node.name}: a reply is lost: {what}")
                world.quietly(effect)
            else:
                world.trace(f"{node.name}: a request is late: {what}")
                world.later(dice.randint(1, 2 * world.duration), effect)
            world.meanwhile(node)
            raise StoreUnavailable("the wire is cut")
        if not node.is_alive:
            raise Crashed
        answer = effect()
        world.meanwhile(node)
        if not node.is_alive:
            raise Crashed
        return answer


class Oracle:
    """Watches what every call does to the documents."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holders: dict[str, Tenure] = {}
        """The last lock of each document, if its result is not written and its owner has not moved it."""
        self.tenures: list[Tenure] = []
        self.owed: dict[str, str] = {}
        """The documents that must still be processed, and why."""
        self.words: dict[str, Any] = {}
        """The values that each owner has written into a document."""
        self.takeovers = 0
        self.handled = 0
        self.coincidences = 0

    def due(self, key: str) -> Instant | None:
        document = self._world.documents.get(key)
        moment = None if document is None else document["sleep_until"]
        return None if moment is None else to_ms(moment)

    # Calls of workers

    def lock_next(self, node: Node, duration: int, limit: int) -> Taken:
        world = self._world
        now = world.clock.now
        before = {key: (self.due(key), copy.copy(document)) for key, document in world.documents.items()}
        taken = world.store.lock_next(duration, limit)
        check(len(taken.found) <= limit, "more were locked than wanted")
        for found in taken.found:
            due, fields = before[found.id]
            self._check_take(found.id, due, now)
            check(
                self.due(found.id) == found.locked_until, f"{found.id} does not have the lock that was given"
            )
            check(found.locked_until >= now + duration, f"the lock on {found.id} is too short")
            assert due is not None
            tenure = Tenure(node, found.id, due, found.locked_until, fields)
            tenure.is_orphan = world.is_unheard
            self.tenures.append(tenure)
            self.holders[found.id] = tenure
            world.trace(f"{node.name} locks {found.id}, due {due}, until {found.locked_until}")
        self._check_words()
        return taken

    def _check_take(self, key: str, due: Instant | None, now: Instant) -> None:
        check(due is not None, f"{key} is no job, and was locked")
        assert due is not None
        holder = self.holders.get(key)
        check(due <= now, f"{key} is locked at {now}, and due or held until {due}; holder: {holder}")
        if holder is None:
            return
        holder.stands = False
        self.takeovers += 1
        node = holder.node
        if node.is_alive and not node.is_stalled and not node.is_busy and not holder.is_orphan:
            # A lock is renewed after a third, so two thirds of it without trouble are enough.
            has_excuse = node.troubled_until > holder.lock - first_lock(node.duration) - 50
            check(
                has_excuse,
                f"{holder} passed on at {now}, and its worker was well since {node.troubled_until}",
            )

    def asked(self, node: Node, lock: DocumentLock) -> Tenure:
        """Return the lock that a request is about."""
        for tenure in reversed(self.tenures):
            if tenure.node is node and tenure.key == lock.id and lock.ends[0] in tenure.sent:
                return tenure
        raise Violation(f"{node.name} writes {lock.id} under {lock.ends}, which it never had")

    def update(
        self, tenures: Sequence[Tenure], changes: Sequence[Change], renewals: Sequence[bool]
    ) -> list[bool]:
        before = [(self.due(tenure.key), copy.copy(self._document(tenure.key))) for tenure in tenures]
        answers: Sequence[bool | None] = [None] * len(changes)
        try:
            answers = self._world.store.update(changes)
        finally:
            for place, tenure in enumerate(tenures):
                self._see(tenure, changes[place], renewals[place], *before[place], answers[place])
        return [bool(answer) for answer in answers]

    def _see(
        self,
        tenure: Tenure,
        change: Change,
        is_renewal: bool,
        due: Instant | None,
        document: object,
        answer: bool | None,
    ) -> None:
        # A node may have locked it twice; then the answers decide which it was.
        has_changed = answer is not False and self._document(tenure.key) != document
        if not has_changed and not answer:
            if answer is False:
                self._check_refusal(tenure, due, change.lock)
            return
        if self._is_coincidence(tenure, due, change.lock):
            return
        self._check_holds(tenure)
        if is_renewal:
            check(self.due(tenure.key) == change.sleep_until, "a renewal does what it does not say")
            assert change.sleep_until is not None
            check(change.sleep_until >= tenure.lock, f"{tenure} was shortened to {change.sleep_until}")
            tenure.lock = change.sleep_until
            self._world.trace(f"  {tenure.key} is {tenure.node.name}'s until {tenure.lock}")
        else:
            self._end(tenure, self.due(tenure.key))
        self._check_words()

    def remove(self, tenures: Sequence[Tenure], locks: Sequence[DocumentLock]) -> list[bool]:
        before = [(self.due(tenure.key), self._document(tenure.key)) for tenure in tenures]
        answers = self._world.store.remove(locks)
        for tenure, lock, (due, document), answer in zip(tenures, locks, before, answers, strict=True):
            is_gone = document is not None and self._document(tenure.key) is None
            if not is_gone:
                check(not answer, f"{tenure.key} is reported as removed, and is not")
                self._check_refusal(tenure, self.due(tenure.key), lock)
                continue
            if self._is_coincidence(tenure, due, lock):
                self.owed.pop(tenure.key, None)
                continue
            self._check_holds(tenure)
            # A removal writes no fields that could be refused.
            check(tenure.outcome in ("done", "refused"), f"{tenure} was removed")
            check(bool(tenure.fields.get("auto_remove")), f"{tenure} was removed, and did not ask for it")
            check(tenure.wish is None, f"{tenure} was removed, and was to be due again")
            self._check_no_tick(tenure)
            self._settle(tenure, None)
        return answers

    def _is_coincidence(self, tenure: Tenure, due: Instant | None, lock: DocumentLock) -> bool:
        """Return whether a tick is at the very millisecond at which an old lock would have ended. A worker
        with a late message, without an answer, or whose document was moved by its owner, takes that tick for
        its lock: the price of adding no field to the documents."""
        is_again = tenure.is_written and tenure.written != due
        is_stale = self._world.is_late or tenure.is_moved or is_again
        is_one = is_stale and due in lock.ends and tenure.key not in self.holders
        self.coincidences += is_one
        return is_one

    def _check_holds(self, tenure: Tenure) -> None:
        check(tenure.stands, f"{tenure} is written by one who lost its lock")
        is_again = tenure.is_written and tenure.written not in tenure.sent
        check(not is_again, f"the end of {tenure} is written twice")

    def _check_refusal(self, tenure: Tenure, due: Instant | None, lock: DocumentLock) -> None:
        # A late message may be refused: newer ones were written before it.
        is_wrong = not self._world.is_late and tenure.stands and not tenure.is_written and tenure.lock == due
        check(not is_wrong, f"{tenure} was refused, asking for {lock.ends}, and {due} is there")

    # The results that are allowed, without the code of the rules

    def _end(self, tenure: Tenure, due: Instant | None) -> None:
        world, policy, now = self._world, self._world.policy, self._world.clock.now
        failed = tenure.outcome in ("failed", "refused")
        over_at = now if tenure.over_at is None else tenure.over_at
        if tenure.outcome == "bad" or (failed and policy.on_failure == "hold"):
            check(due == HELD_AT, f"{tenure} is not held")
        elif tenure.wish is not None and not failed:
            check(due == tenure.wish, f"{tenure} should be due at {tenure.wish}, not {due}")
        elif failed and policy.on_failure == "retry":
            is_right = due is not None and over_at <= due - DELAY_OF_RETRIES <= now
            check(
                is_right,
                f"{tenure} should be tried again {DELAY_OF_RETRIES} ms after {over_at}, not at {due}",
            )
        elif failed and due in (None, HELD_AT):
            check(due == HELD_AT, f"{tenure} has failed, and passes for done")
            self._check_no_tick(tenure)
        elif due is None:
            self._check_no_tick(tenure)
            check(not tenure.fields.get("auto_remove"), f"{tenure} should have been removed")
        else:
            first, last = self._tick(tenure, over_at), self._tick(tenure, now)
            check(first is not None, f"{tenure} has no tick, and should be done, not due at {due}")
            assert first is not None
            is_right = first <= due and (last is None or due <= last) and self._tick(tenure, due) == due
            check(is_right, f"{tenure}, over at {over_at}, is due again at {due}, not from {first} to {last}")
        world.trace(f"  {tenure.key} has ended ({tenure.outcome}), due {due}")
        self._settle(tenure, due)

    def _check_no_tick(self, tenure: Tenure) -> None:
        tick = self._tick(tenure, self._world.clock.now)
        check(tick is None, f"{tenure} is done, and should be due again at {tick}")

    def _tick(self, tenure: Tenure, earliest: Instant) -> Instant | None:
        """Return the first tick after the one that was due, and not before ``earliest``."""
        period = tenure.fields.get("period")
        if period is None:
            return None
        start = 0 if "*" in tenure.fields["interval"] else tenure.due
        after = max(tenure.due + self._world.policy.reprocess_delay, earliest - 1)
        tick: Instant = start + ((after - start) // period + 1) * period
        until = tenure.fields.get("repeat_until")
        return None if until is not None and tick > to_ms(until) else tick

    def _settle(self, tenure: Tenure, due: Instant | None) -> None:
        if not tenure.is_written:
            self.handled += 1
        tenure.is_written, tenure.written = True, due
        self.holders.pop(tenure.key, None)
        self.owed.pop(tenure.key, None)
        if due is not None and due != HELD_AT:
            self.owed[tenure.key] = f"due at {due}, set by {tenure}"

    # Handlers

    def begun(self, node: Node, held: HeldDocument) -> Tenure:
        now = self._world.clock.now
        for tenure in reversed(self.tenures):
            is_its_own = tenure.node is node and tenure.key == held.id and tenure.held is None
            # A call whose answer was lost may have locked it once more.
            if is_its_own and held.lock_ends[0] in tenure.sent:
                break
        else:
            raise Violation(f"{node.name} handles {held.id}, which it has not locked")
        tenure.held = held
        holder = self.holders.get(tenure.key)
        is_early = not tenure.stands and not tenure.is_moved and holder is not None and holder.lock > now
        check(not is_early, f"{node.name} begins {tenure.key} at {now}, and it is {holder}")
        return tenure

    def _see_adopted(self, node: Node) -> None:
        """Accept that a worker locks a document again that it holds, and goes on under the new lock."""
        for again in [one for one in self.tenures[-200:] if one.node is node and one.held is None]:
            for first in self.tenures[-200:]:
                if (
                    first is not again
                    and first.held is not None
                    and first.held in node.worker.held
                    and first.key == again.key
                    and first.held.lock_ends == (again.lock,)
                ):
                    check(again.due in first.sent, f"{first} goes on under {again}, which it is not")
                    first.lock, first.stands, first.is_moved = again.lock, again.stands, again.is_moved
                    first.sent.add(again.lock)
                    self.tenures.remove(again)
                    if self.holders.get(first.key) is again:
                        self.holders[first.key] = first
                    break

    def stepped(self, node: Node) -> None:
        self._see_adopted(node)
        for tenure in self.tenures[-200:]:
            if tenure.node is node and tenure.is_refused and tenure.held in node.worker.held:
                assert tenure.held is not None
                check(tenure.held.document.is_lost, f"{tenure} was refused, and goes on")

    # Owners

    def owned(self, key: str) -> None:
        """Note that the owner has moved the document, or deleted it."""
        holder = self.holders.pop(key, None)
        if holder is not None:
            holder.stands = False
        for tenure in self.tenures:
            if tenure.key == key:
                tenure.stands, tenure.is_moved = False, True
        due = self.due(key)
        self.owed.pop(key, None)
        if due is not None:
            self.owed[key] = f"due at {due}, set by its owner"

    def _check_words(self) -> None:
        for key, words in self.words.items():
            document = self._document(key)
            if document is not None:
                check(document.get("words") == words, f"{key}: what its owner wrote is gone")

    def _document(self, key: str) -> dict[str, Any] | None:
        return self._world.documents.get(key)

    # The end

    def check_all_done(self) -> None:
        now = self._world.clock.now
        for key, why in self.owed.items():
            due = self.due(key)
            if due is None or key not in self._world.documents:
                raise Violation(f"{key} was never processed: {why}")
            # Recurring documents are due again and again; none may be late.
            check(
                due > now - 3 * self._world.duration,
                f"{key} is not processed: {why}, {due} is there at {now}",
            )


class World:
    """The simulation of one seed."""

    def __init__(self, seed: int, kinds: Kinds, trace: Callable[[str], None] | None = None) -> None:
        self.dice = random.Random(seed)
        self.kinds = kinds
        self.clock = VirtualClock()
        self.documents: dict[str, dict[str, Any]] = {}
        self.store = kinds.store(self.documents, clock=self.clock)
        self.duration = self.dice.choice([600, 1000, 1500, 3000])
        self.policy = Policy(
            reprocess_delay=self.dice.choice([0, 0, 0, 1500]),
            on_failure=self.dice.choice(["reschedule", "retry", "hold"]),
            retry_delay=DELAY_OF_RETRIES,
        )
        self.is_calm = False
        self.is_late = False
        """Whether the present call is a late message."""
        self.is_unheard = False
        """Whether the answer of the present call is lost."""
        self.steps = 0
        self.faults = 0
        self.lines: deque[str] = deque(maxlen=60)
        self._trace = trace
        self._late: list[tuple[Instant, Callable[[], object]]] = []
        self._count = 0
        self._depth = 0
        self._chaos_ends = self.clock.now + CHAOS
        self._next_mischief = self.clock.now
        self.oracle = Oracle(self)
        self.nodes = [Node(self, f"n{number}") for number in range(self.dice.randint(2, 4))]

    def trace(self, text: str) -> None:
        line = f"{self.clock.now}: {text}"
        self.lines.append(line)
        if self._trace is not None:
            self._trace(line)

    def run(self) -> Report:
        for _ in range(self.dice.randint(4, 9)):
            self.add()
        while self.clock.now < self._chaos_ends:
            self._go(self._chaos_ends)
        self._calm_down()
        end = self.clock.now + HORIZON // 2
        while self.clock.now < end:
            self._go(end)
        self.oracle.check_all_done()
        return Report(
            self.steps, self.oracle.handled, self.oracle.takeovers, self.faults, self.oracle.coincidences
        )

    def _calm_down(self) -> None:
        self.trace("all is calm from here on")
        self.is_calm = True
        # Owners correct held documents; so all documents must be processed in the end.
        for key, document in self.documents.items():
            if self.oracle.due(key) == HELD_AT:
                document["interval"] = document["period"] = None
                self.move(key, self.clock.now)
        # Enough time for all due documents, however slow the remaining nodes are.
        self.nodes += [Node(self, f"n{len(self.nodes) + more}") for more in range(2)]

    def _go(self, end: Instant) -> None:
        """Return the next event before the end, if there is one."""
        events = [event for node in self.nodes for event in node.events()]
        events += self._late_ones()
        if not self.is_calm:
            events.append((self._next_mischief, self._mischief))
        at = min((max(at, self.clock.now) for at, _ in events), default=end + 1)
        if at > end:
            self.clock.now = max(self.clock.now, end)
            return
        self.clock.now = at
        # Any of the events at the same time.
        self.dice.choice([act for when, act in events if when <= at])()

    def meanwhile(self, node: Node) -> None:
        """Let time pass, and other events happen, while a node waits for the store."""
        if self._depth > 2:
            return
        luck = self.dice.random()
        if luck < 0.5:
            return
        passes = self.dice.choice([0, 0, 1, 5])
        if luck > 0.985 and not self.is_calm:
            passes = self.dice.randint(0, 2 * self.duration)
            self.trace(f"{node.name} waits for {passes} ms")
        end = self.clock.now + passes
        self._depth += 1
        try:
            for _ in range(400):
                if self.clock.now >= end and self.dice.random() < 0.5:
                    break
                self._go(end)
        finally:
            self._depth -= 1
        self.clock.now = max(self.clock.now, end)

    def later(self, delay: int, effect: Callable[[], object]) -> None:
        self._late.append((self.clock.now + delay, effect))

    def _late_ones(self) -> list[tuple[Instant, Callable[[], None]]]:
        def arrive(one: tuple[Instant, Callable[[], object]]) -> None:
            self._late.remove(one)
            self.trace("what is late arrives")
            self.is_late = True
            self.quietly(one[1])
            self.is_late = False

        return [(one[0], lambda one=one: arrive(one)) for one in self._late]  # type: ignore[misc]  # bound now

    def quietly(self, effect: Callable[[], object]) -> None:
        """Execute a call whose answer is lost."""
        self.is_unheard = True
        try:
            effect()
        except Violation:
            raise
        except Exception as error:
            self.trace(f"  and is refused: {error}")
        finally:
            self.is_unheard = False

    # Owners and faults

    def add(self) -> None:
        dice = self.dice
        self._count += 1
        key = f"d{self._count}"
        document: dict[str, Any] = {
            "sleep_until": from_ms(self.clock.now + dice.choice([-50_000, 0, 0, 1, dice.randint(0, 8000)])),
            "words": dice.random(),
            "auto_remove": dice.random() < 0.4,
        }
        kind = dice.choice(
            ["once", "once", "cron", "every", "bad"] if dice.random() < 0.5 else ["once", "cron"]
        )
        if kind == "cron":
            seconds = dice.choice([1, 2, 5, 10])
            document |= {"interval": f"*/{seconds} * * * * *", "period": seconds * 1000}
        elif kind == "every":
            seconds = dice.choice([1, 3, 7])
            document |= {"interval": f"every {seconds}s", "period": seconds * 1000}
        elif kind == "bad":
            document |= {"interval": "61 * * * *"}
        if kind in ("cron", "every") and dice.random() < 0.4:
            document["repeat_until"] = from_ms(self.clock.now + dice.randint(0, CHAOS))
        self.documents[key] = document
        self.trace(f"owner adds {key}: {document}")
        self.oracle.owned(key)
        self.oracle.words[key] = document["words"]

    def move(self, key: str, due: Instant | None) -> None:
        # In a millisecond of its own: two locks in the same one, with a change of the owner between them, may
        # have the same end.
        self.clock.now += 1
        self.documents[key]["sleep_until"] = None if due is None else from_ms(due)
        self.trace(f"owner moves {key} to {due}")
        self.oracle.owned(key)
        self.clock.now += 1

    def _mischief(self) -> None:
        dice = self.dice
        self._next_mischief = self.clock.now + dice.randint(50, 1500)
        what = dice.choices(
            ["add", "move", "words", "delete", "crash", "stall", "leap", "start"], [5, 3, 4, 1, 2, 5, 1, 2]
        )[0]
        key = dice.choice(list(self.documents)) if self.documents else None
        node = dice.choice(self.nodes)
        if what == "add" and self._count < 25:
            self.add()
        elif what == "move" and key is not None:
            self.move(key, dice.choice([None, self.clock.now, self.clock.now + dice.randint(-500, 3000)]))
        elif what == "words" and key is not None:
            self.documents[key]["words"] = self.oracle.words[key] = dice.random()
        elif what == "delete" and key is not None:
            del self.documents[key]
            self.trace(f"owner deletes {key}")
            self.oracle.owned(key)
        elif what == "crash":
            self.trace(f"{node.name} crashes")
            node.is_alive = False
            node.handlers = []
        elif what == "stall" and not node.is_busy:
            node.stalled_until = self.clock.now + dice.randint(0, 3 * self.duration)
            node.troubled_until = node.stalled_until
            self.trace(f"{node.name} stalls until {node.stalled_until}")
        elif what == "leap":
            self.clock.now += dice.randint(0, 2 * self.duration)
            self.trace("the clock has leapt ahead")
            for each in self.nodes:
                each.troubled_until = self.clock.now
        elif what == "start" and sum(each.is_alive for each in self.nodes) < 4:
            self.nodes.append(Node(self, f"n{len(self.nodes)}"))
            self.trace(f"{self.nodes[-1].name} starts")


def check(is_true: bool, otherwise: str) -> None:
    if not is_true:
        raise Violation(otherwise)


def simulate(seed: int, kinds: Kinds | None = None, trace: Callable[[str], None] | None = None) -> Report:
    """Run a seed. ``Violation`` names the promise that was broken, and the events before."""
    world = World(seed, kinds or Kinds(), trace)
    try:
        return world.run()
    except Violation as violation:
        lines = "\n".join(f"    {line}" for line in world.lines)
        replay = f"python -m tests.documents.simulation --seed {seed}"
        raise Violation(f"seed {seed}: {violation}\n\n{lines}\n\nreplay: {replay}") from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.documents.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("-v", "--verbose", action="store_true", help="print what happens as it happens")
    chosen = parser.parse_args()
    logging.getLogger("evenbeat").setLevel(logging.CRITICAL)
    total, failed = [0] * len(Report._fields), 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        try:
            report = simulate(seed, trace=_write if chosen.verbose else None)
        except Violation as violation:
            _write(str(violation))
            failed += 1
        else:
            total = [before + more for before, more in zip(total, report, strict=True)]
    _write(f"{chosen.seeds} seeds, {failed} failed: {dict(zip(Report._fields, total, strict=True))}")
    return 1 if failed else 0


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
