"""The simulation finds workers, stores and rules that are broken on purpose, and no violation elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from evenbeat.core.instants import Instant, from_ms
from evenbeat.documents import Change, DocumentLock, Found, MemoryDocuments, Taken, rules
from evenbeat.documents.held import HeldDocument
from evenbeat.documents.worker import DocumentWorker
from tests.documents.simulation import Kinds, Violation, simulate
from tests.lengths import chunks

SEEDS = range(0, 200, 10)
# Each is found within 25 seeds; this leaves room for changes of the simulation.
MOST_SEEDS = 100


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log = logging.getLogger("evenbeat.documents")
    before = log.level
    log.setLevel(logging.CRITICAL)  # lost locks are normal here
    yield
    log.setLevel(before)


@pytest.mark.parametrize("first", chunks(SEEDS))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + SEEDS.step):
        report = simulate(seed)
        assert report.handled


@pytest.mark.parametrize("seed", [119, 8876, 51500])
def test_seeds_that_once_found_a_violation_find_none(seed: int) -> None:
    assert simulate(seed).handled


def test_a_seed_is_the_same_each_time() -> None:
    first: list[str] = []
    second: list[str] = []
    simulate(5, trace=first.append)
    simulate(5, trace=second.append)
    assert first == second


# Stores


class WritesWithoutFence(MemoryDocuments):
    """Updates by the id alone, without the fence."""

    def update(self, changes: Sequence[Change]) -> list[bool]:
        return super().update([_with(change, self._documents) for change in changes])


class RemovesWithoutFence(MemoryDocuments):
    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        return [self._documents.pop(lock.id, None) is not None for lock in locks]


class FencesByOrder(MemoryDocuments):
    """Compares with "not later" where it should compare with "the same"."""

    def _holds(self, lock: DocumentLock) -> bool:
        document = self._documents.get(lock.id)
        moment = None if document is None else document["sleep_until"]
        return moment is not None and moment <= from_ms(max(lock.ends))


class TakesBeforeItIsDue(MemoryDocuments):
    """Locks documents that are due before the lock would end."""

    def lock_next(self, duration: int, limit: int) -> Taken:
        clock = self._clock
        now = clock()
        try:
            self._clock = lambda: now + duration
            return super().lock_next(0, limit)
        finally:
            self._clock = clock


class LocksWithoutMoving(MemoryDocuments):
    """Returns a document as locked, and leaves ``sleep_until`` as it is."""

    def _locked(self, key: Any, until: Instant) -> Found:
        document = self._documents[key]
        before = document["sleep_until"]
        found = super()._locked(key, until)
        document["sleep_until"] = before
        return found


class WritesAllBack(MemoryDocuments):
    """Writes the whole document as it was read, with the changes in it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read: dict[Any, Mapping[str, Any]] = {}

    def lock_next(self, duration: int, limit: int) -> Taken:
        taken = super().lock_next(duration, limit)
        self._read |= {found.id: found.data for found in taken.found}
        return taken

    def _change(self, change: Change) -> bool:
        if not self._holds(change.lock):
            return False
        document = self._documents[change.lock.id]
        document |= {**self._read[change.lock.id], "sleep_until": document["sleep_until"]}
        return super()._change(change)


class Forgets(MemoryDocuments):
    """Returns that a result was written, and does not write every one."""

    count = 0

    def _change(self, change: Change) -> bool:
        self.count += 1
        if self.count % 20 == 0:
            return self._holds(change.lock)
        return super()._change(change)


# Workers


class IgnoresRefusals(DocumentWorker):
    """Renews, and ignores the answer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def lose(held: HeldDocument) -> None:
            pass

        self.held.lose = lose  # type: ignore[method-assign]


class NeverRenews(DocumentWorker):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def renew(now: Instant) -> None:
            pass

        self.renewer.renew = renew  # type: ignore[method-assign]


class TrustsRenewals(DocumentWorker):
    """Takes a renewal for written, also if no answer came."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        send = self.renewer._send

        def trust(some: Sequence[HeldDocument], locks: Sequence[DocumentLock], now: Instant) -> None:
            for held in some:
                held.lock_ends = held.lock_ends[-1:]
            send(some, locks, now)

        self.renewer._send = trust  # type: ignore[method-assign]


class EndsAgain(DocumentWorker):
    """Takes the time that it has written itself for its lock, and so writes again if no answer came."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        decide = self.results._decide

        def remember(held: HeldDocument, now: Instant) -> tuple[rules.Disposition, Mapping[str, Any]]:
            disposition, fields = decide(held, now)
            if isinstance(disposition, int):
                held.lock_ends = (*held.lock_ends, disposition)
            return disposition, fields

        self.results._decide = remember  # type: ignore[method-assign]


class BeginsLate(DocumentWorker):
    """Begins every document that it was given, however long that took."""

    def _still_locked(self, found: Sequence[Found]) -> Sequence[Found]:
        return found


# Rules


def _once_per_missed_tick(plan: rules.DocumentPlan, now: Instant, reprocess_delay: int) -> Instant | None:
    if plan.trigger is None:
        return None
    upcoming = plan.trigger.next_ms(plan.sleep_until + reprocess_delay)
    return None if plan.repeat_until is not None and (upcoming or 0) > plan.repeat_until else upcoming


def _without_end(plan: rules.DocumentPlan, now: Instant, reprocess_delay: int) -> Instant | None:
    return (
        None
        if plan.trigger is None
        else plan.trigger.next_ms(max(now - 1, plan.sleep_until + reprocess_delay))
    )


def _at_once(_plan: rules.DocumentPlan, now: Instant, _policy: rules.Policy) -> rules.Disposition:
    return now


def _found(kinds: Kinds) -> int:
    """Return the seed that finds the violation."""
    for seed in range(MOST_SEEDS):
        try:
            simulate(seed, kinds)
        except Violation:
            return seed
    pytest.fail(f"{MOST_SEEDS} seeds do not find it")


@pytest.mark.parametrize(
    "store",
    [
        WritesWithoutFence,
        RemovesWithoutFence,
        FencesByOrder,
        TakesBeforeItIsDue,
        LocksWithoutMoving,
        WritesAllBack,
        Forgets,
    ],
)
def test_a_broken_store_is_found(store: type[MemoryDocuments]) -> None:
    _found(Kinds(store=store))


@pytest.mark.parametrize("broken", [IgnoresRefusals, NeverRenews, TrustsRenewals, EndsAgain, BeginsLate])
def test_a_broken_worker_is_found(broken: type[DocumentWorker]) -> None:
    _found(Kinds(worker=broken))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("next_start", _once_per_missed_tick),
        ("next_start", _without_end),
        ("after_failure", rules.after_success),
        ("after_failure", _at_once),
    ],
)
def test_a_broken_rule_is_found(
    name: str, broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, name, broken)
    _found(Kinds())


def _with(change: Change, documents: Mapping[Any, Mapping[str, Any]]) -> Change:
    """Return the change with the lock that the document has now."""
    document = documents.get(change.lock.id)
    moment = None if document is None else document["sleep_until"]
    if moment is None:
        return change
    return Change(
        DocumentLock(change.lock.id, (round(moment.timestamp() * 1000),)), change.sleep_until, change.fields
    )
