"""Unique runs in a model: processes that enqueue, execute, retry, clean up and die, in orders of many seeds.

After every write, at most one run of the key is active. Each guarantee has a mutant, which the same seeds
find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar, cast

import pytest

from evenbeat import Run, RunRefused, Scheduler
from evenbeat.app import unique_runs as app_unique
from evenbeat.core.records import Record, RunRecord, Transition
from evenbeat.node import unique_records
from evenbeat.node.unique_records import UniqueRecords
from evenbeat.rules import attempts
from evenbeat.rules.unique_runs import KIND, Verdict, decide, holder_of
from evenbeat.stores.base import Claim, Page, RunQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from tests.simulator.interleaving import Crash, Interleaving

T = TypeVar("T")
SEEDS = range(150)
_CRASHES = 0.04


class TwoActive(AssertionError):
    """Two runs of one key are active."""


class SteppedStore:
    """A store of which each call lets other strands run before and after, and in which a process may die."""

    def __init__(self, inner: MemoryStore, strands: Interleaving) -> None:
        self._inner = inner
        self._strands = strands
        self.crashes = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        return self._stepped(lambda: self._inner.get_record(kind, tenant, key))

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        return self._stepped(lambda: self._inner.put_record(record, expect))

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        return self._stepped(lambda: self._inner.delete_record(kind, tenant, key, version))

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        return self._stepped(lambda: self._inner.find_runs(query))

    def add_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        return self._stepped(lambda: self._inner.add_runs(runs))

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._stepped(lambda: self._inner.settle_runs(transitions))

    def _stepped(self, call: Callable[[], T]) -> T:
        self._strands.switch()
        self._die_maybe()
        answer = call()
        self._check()
        self._die_maybe()
        self._strands.switch()
        return answer

    def _die_maybe(self) -> None:
        if self.crashes and self._strands.random.random() < _CRASHES:
            raise Crash

    def _check(self) -> None:
        active = self._inner.find_runs(RunQuery(states=("queued", "running"))).items
        if len(active) > 1:
            raise TwoActive([run.id for run in active])


def simulate(seed: int) -> list[Run]:
    """Let the processes work; return the runs that the calls of ``enqueue`` answered."""
    random, clock = Random(seed), VirtualClock()
    strands = Interleaving(random, clock)
    inner = MemoryStore(clock=clock)
    inner.open()
    store = SteppedStore(inner, strands)
    app = Scheduler(cast(Store, store))
    answered: list[Run] = []

    def mortal(act: Callable[[], None], times: int) -> Callable[[], None]:
        """Return a program that acts so many times; a process that dies is replaced."""

        def program() -> None:
            for _ in range(times):
                try:
                    act()
                except Crash:
                    continue

        return program

    def enqueue() -> None:
        answered.append(app.enqueue("work", unique="order-42"))

    def enqueue_many() -> None:
        assert len(set(app.enqueue_many(["work", "work"], unique="order-42"))) == 1

    def execute() -> None:
        claim = Claim(worker="w", token=f"{strands.steps}", limit=1, now=clock(), lease=30_000, tasks=None)
        for run in inner.claim_runs(claim).runs:
            strands.switch()
            ended = (
                attempts.succeeded(run, None, clock(), f"{run.id}.{run.attempt}")
                if random.random() < 0.4
                else attempts.failed(run, "it failed", clock(), f"{run.id}.{run.attempt}")
            )
            inner.settle_runs([ended])
        strands.switch()

    def retry() -> None:
        strands.switch()
        for run in inner.find_runs(RunQuery(states=("failed",), limit=1)).items:
            try:
                app.runs.retry(run.id)
            except RunRefused:
                continue

    def clean() -> None:
        strands.switch()
        UniqueRecords(cast(Store, store), 86_400_000).step(clock())

    for number in range(3):
        strands.spawn(f"enqueue-{number}", mortal(enqueue, 5))
    strands.spawn("bulk", mortal(enqueue_many, 3))
    strands.spawn("worker", mortal(execute, 60))
    strands.spawn("retry", mortal(retry, 8))
    strands.spawn("clean", mortal(clean, 8))
    try:
        strands.run(lambda: not strands.strands)
    finally:
        strands.close()
    store.crashes = False
    # The store is used by one thread from here on.
    store._strands = _Alone()  # type: ignore[assignment]
    last = app.enqueue("work", unique="order-42")
    assert last.state in ("queued", "running")
    assert app.enqueue("work", unique="order-42").id == last.id
    known = {run.id for run in inner.find_runs(RunQuery(limit=500)).items}
    assert known.issuperset(run.id for run in answered)
    (record,) = inner.find_records(KIND)
    holder = holder_of(record)
    assert holder is not None
    assert holder.run == last.id
    inner.close()
    return answered


class _Alone:
    """Stands for strands where there is one thread."""

    random = Random(0)

    def switch(self) -> None:
        """Nobody else could run."""


@pytest.mark.parametrize("first", range(0, len(SEEDS), 25))
def test_at_most_one_run_of_a_key_is_active(first: int) -> None:
    answered = [simulate(seed) for seed in SEEDS[first : first + 25]]
    assert any(len({run.id for run in runs}) < len(runs) for runs in answered), "calls shared a run"
    assert any(len({run.id for run in runs}) > 1 for runs in answered), "the key was taken again"


def adds_with_its_own_id(
    record: Record | None, found: RunRecord | None, now: int, *, has_ended: bool
) -> Verdict:
    """A mutant: a run that is missing counts as ended."""
    verdict = decide(record, found, now, has_ended=has_ended)
    return "take" if verdict == "add" else verdict


def forgets_pending_retries(
    record: Record | None, found: RunRecord | None, now: int, *, has_ended: bool
) -> Verdict:
    """A mutant: a run whose retry is pending counts as ended."""
    verdict = decide(record, found, now, has_ended=has_ended)
    return "take" if verdict == "requeue" else verdict


def writes_without_comparing(store: MemoryStore, record: Record, expect: int | None = None) -> bool:
    """A mutant: the record is written, whatever its version is."""
    present = store.get_record(record.kind, record.tenant, record.key)
    return put_record(store, record, None if present is None else present.version)


put_record = MemoryStore.put_record


def retries_without_the_key(*_: object) -> None:
    """A mutant: a retry does not look at the record."""


def deletes_all_but_active(record: Record, found: RunRecord | None, now: int) -> bool:
    """A mutant: the record of a run that is being added or retried is deleted."""
    return found is None or found.state not in ("queued", "running")


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (app_unique, "decide", adds_with_its_own_id),
        (app_unique, "decide", forgets_pending_retries),
        (MemoryStore, "put_record", writes_without_comparing),
        (app_unique.UniqueRuns, "take_for_retry", retries_without_the_key),
        (unique_records, "is_stale", deletes_all_but_active),
    ],
)
def test_the_model_finds_mutants(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mutant)
    with pytest.raises(TwoActive):
        [simulate(seed) for seed in SEEDS]
