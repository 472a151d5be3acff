"""A worker to be stepped by hand: handlers end when the test says so, and the store fails when it says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.documents import Change, Document, DocumentLock, MemoryDocuments, Taken
from evenbeat.documents.held import HeldDocument
from evenbeat.documents.rules import Policy
from evenbeat.documents.worker import DocumentWorker, Limits, WorkerCallbacks
from evenbeat.errors import StoreUnavailable
from evenbeat.testing.clock import VirtualClock

_T = TypeVar("_T")

LOCK = 9000
LOST_REQUEST, LOST_REPLY = "lost request", "lost reply"


class Rows(dict[Any, dict[str, Any]]):
    """Documents in memory, also under keys that have no hash."""

    def __getitem__(self, key: Any) -> dict[str, Any]:
        return super().__getitem__(_hashable(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_hashable(key), default)

    def pop(self, key: Any, *default: Any) -> Any:
        return super().pop(_hashable(key), *default)


def _hashable(key: Any) -> Any:
    return repr(key) if isinstance(key, dict) else key


class Flaky(MemoryDocuments):
    """Loses the next requests or replies, or refuses values, as told."""

    def __init__(self, rows: Rows, clock: VirtualClock) -> None:
        super().__init__(rows, clock=clock)
        self.faults: list[str | Exception | None] = []
        """What happens to the next calls, one after the other."""
        self.calls: list[tuple[str, Any]] = []
        self.is_away = False

    def lock_next(self, duration: int, limit: int) -> Taken:
        return self._call("lock_next", limit, lambda: super(Flaky, self).lock_next(duration, limit))

    def update(self, changes: Sequence[Change]) -> list[bool]:
        return self._call("update", list(changes), lambda: super(Flaky, self).update(changes))

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        return self._call("remove", list(locks), lambda: super(Flaky, self).remove(locks))

    def _call(self, name: str, what: object, effect: Callable[[], _T]) -> _T:
        self.calls.append((name, what))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        if fault == LOST_REQUEST or self.is_away:
            raise StoreUnavailable("the request was lost")
        answer = effect()
        if fault == LOST_REPLY:
            raise StoreUnavailable("the reply was lost")
        return answer

    def names(self) -> list[str]:
        """The calls since the last time."""
        names = [name for name, _ in self.calls]
        self.calls.clear()
        return names


class Steady(random.Random):
    def randrange(self, *bounds: Any) -> int:
        return 0


class Bench:
    """A worker on documents in memory; with ``beside``, on the same documents as another one."""

    def __init__(self, policy: Policy | None = None, beside: Bench | None = None, **limits: int) -> None:
        self.clock: VirtualClock = VirtualClock() if beside is None else beside.clock
        self.rows: Rows = Rows() if beside is None else beside.rows
        self.store: Flaky = Flaky(self.rows, self.clock) if beside is None else beside.store
        self.begun: list[HeldDocument] = []
        self.told: list[tuple[BaseException, Document | None]] = []
        self.interrupted: list[HeldDocument] = []
        self.idles = 0
        self.wakes = 0
        callbacks = WorkerCallbacks(
            self._handle, lambda error, about: self.told.append((error, about)), self._idle, self._wake
        )
        self.limits = Limits(**{"concurrency": 10, "lock_duration": LOCK} | limits)
        self.worker = DocumentWorker(self.store, self.limits, policy or Policy(), callbacks)
        self.worker.renewer.random = Steady()  # so that instants can be named

    def _handle(self, held: HeldDocument) -> None:
        held.interrupt = lambda: self.interrupted.append(held)
        self.begun.append(held)

    def _idle(self) -> None:
        self.idles += 1

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, key: Any, ago: int = 0, **fields: Any) -> None:
        row = {"sleep_until": from_ms(self.clock.now - ago), **fields}
        dict.__setitem__(self.rows, key, row)

    def due(self, key: Any) -> Instant | None:
        """When it is due, from now; None for one that is no job any more."""
        moment = self.rows[key]["sleep_until"]
        return None if moment is None else to_ms(moment) - self.clock.now

    # Called, not read: what a property says may change from line to line.

    def is_processing(self) -> bool:
        return self.worker.is_processing

    def is_handling(self) -> bool:
        return self.worker.is_handling

    def is_idle(self) -> bool:
        return self.worker.is_idle

    def step(self, later: int = 0) -> Instant | None:
        """Answers how long from now the worker wants to sleep."""
        self.clock.now += later
        answer = self.worker.step(self.clock.now)
        return None if answer is None else answer - self.clock.now

    def keys(self) -> list[Any]:
        """What was begun since the last time."""
        keys = [held.id for held in self.begun if not hasattr(held, "seen")]
        for held in self.begun:
            held.seen = True  # type: ignore[attr-defined]  # a mark of the test's own
        return keys

    def end(self, key: Any, failure: BaseException | None = None) -> None:
        held = next(held for held in reversed(self.begun) if held.id == key and not held.has_ended)
        self.worker.handler_ended(held, failure)

    def document(self, key: Any) -> Document:
        return next(held.document for held in reversed(self.begun) if held.id == key)
