"""A worker that tests step by hand: tests decide when handlers end and when the store fails."""

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
    """Documents in memory, also under keys without a hash."""

    def __getitem__(self, key: Any) -> dict[str, Any]:
        return super().__getitem__(_hashable(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_hashable(key), default)

    def pop(self, key: Any, *default: Any) -> Any:
        return super().pop(_hashable(key), *default)


def _hashable(key: Any) -> Any:
    return repr(key) if isinstance(key, dict) else key


class Flaky(MemoryDocuments):
    """Loses the next requests or replies, or refuses values, according to ``faults``."""

    def __init__(self, rows: Rows, clock: VirtualClock) -> None:
        super().__init__(rows, clock=clock)
        self.faults: list[str | Exception | None] = []
        """The faults of the next calls, in order."""
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
        """Return the names of the calls since the last time."""
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
        self.reported: list[tuple[BaseException, Document | None]] = []
        self.interrupted: list[HeldDocument] = []
        self.idles = 0
        self.wakes = 0
        callbacks = WorkerCallbacks(
            self._handle, lambda error, about: self.reported.append((error, about)), self._idle, self._wake
        )
        self.limits = Limits(**{"concurrency": 10, "lock_duration": LOCK} | limits)
        self.worker = DocumentWorker(self.store, self.limits, policy or Policy(), callbacks)
        self.worker.renewer.random = Steady()  # so that tests know all instants

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
        """Return in how many milliseconds it is due; None if it is not a job any more."""
        moment = self.rows[key]["sleep_until"]
        return None if moment is None else to_ms(moment) - self.clock.now

    # Functions, not properties: mypy takes a property for constant between two lines.

    def is_processing(self) -> bool:
        return self.worker.is_processing

    def is_handling(self) -> bool:
        return self.worker.is_handling

    def is_idle(self) -> bool:
        return self.worker.is_idle

    def step(self, later: int = 0) -> Instant | None:
        """Step the worker. Return how long it wants to sleep."""
        self.clock.now += later
        answer = self.worker.step(self.clock.now)
        return None if answer is None else answer - self.clock.now

    def keys(self) -> list[Any]:
        """Return the ids of the documents that were begun since the last time."""
        keys = [held.id for held in self.begun if not hasattr(held, "seen")]
        for held in self.begun:
            held.seen = True  # type: ignore[attr-defined]  # a mark for the next call
        return keys

    def end(self, key: Any, failure: BaseException | None = None) -> None:
        held = next(held for held in reversed(self.begun) if held.id == key and not held.has_ended)
        self.worker.handler_ended(held, failure)

    def document(self, key: Any) -> Document:
        return next(held.document for held in reversed(self.begun) if held.id == key)
