"""Unique runs in a model: processes that enqueue, execute, retry, purge, clean up, die, and stop for minutes,
in orders of many seeds.

After every write, at most one run of the key is active, and no id was given twice, unless a user has chosen
it twice. No call is answered a run that was purged before the call began. Each guarantee has a mutant, which
the same seeds find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar, cast

import pytest

from evenbeat import Run, RunNotFound, RunRefused, Scheduler
from evenbeat.app import unique_runs as app_unique
from evenbeat.core.ids import is_given_once
from evenbeat.core.records import Record, RunRecord, Transition
from evenbeat.core.retention import SHORTEST_KEEP
from evenbeat.node import unique_records
from evenbeat.node.unique_records import UniqueRecords
from evenbeat.rules import attempts, unique_ends
from evenbeat.rules.unique_runs import KIND, Verdict, decide, holder_of
from evenbeat.stores.base import Claim, Page, RunQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from tests.simulator.interleaving import Crash, Interleaving

T = TypeVar("T")
SEEDS = range(300)
_CRASHES = 0.04
_STOPS = 0.03


class Broken(AssertionError):
    """A guarantee is broken."""


class TwoActive(Broken):
    """Two runs of one key are active."""


class GivenTwice(Broken):
    """An id was given twice, or given to a call that began after its run was purged."""


class SteppedStore:
    """A store of which each call lets other strands run before and after, and in which a process may die, or
    stop for minutes."""

    def __init__(self, inner: MemoryStore, strands: Interleaving) -> None:
        self._inner = inner
        self._strands = strands
        self.crashes = True
        self.chosen: Counter[str] = Counter()
        """How many calls have chosen an id."""
        self.added: Counter[str] = Counter()
        self.purged: set[str] = set()
        self.gone: set[str] = set()
        """The ids of purged runs that were not given again."""

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

    def add_runs(self, runs: Sequence[RunRecord], before: int | None = None) -> list[bool]:
        def add() -> list[bool]:
            answers = self._inner.add_runs(runs, before)
            new = [run.id for run, is_new in zip(runs, answers, strict=True) if is_new]
            self.added.update(new)
            self.gone.difference_update(new)
            return answers

        return self._stepped(add)

    def purge_ended(self, before: int) -> None:
        """Delete the runs that ended before an instant."""
        known = self._ids()
        self._inner.purge(before, 100)
        self.gone |= known - self._ids()
        self.purged |= self.gone

    def _ids(self) -> set[str]:
        return {run.id for run in self._inner.find_runs(RunQuery(limit=500)).items}

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._stepped(lambda: self._inner.settle_runs(transitions))

    def _stepped(self, call: Callable[[], T]) -> T:
        self._strands.switch()
        self._stop_maybe()
        self._die_maybe()
        answer = call()
        self._check()
        self._die_maybe()
        self._strands.switch()
        return answer

    def _die_maybe(self) -> None:
        if self.crashes and self._strands.random.random() < _CRASHES:
            raise Crash

    def _stop_maybe(self) -> None:
        random = self._strands.random
        if self.crashes and random.random() < _STOPS:
            self._strands.sleep(random.randrange(random.choice([20_000, 200_000])))

    def _check(self) -> None:
        for run_id, number in self.added.items():
            if number > max(1, self.chosen[run_id]):
                raise GivenTwice(run_id)
        active = self._inner.find_runs(RunQuery(states=("queued", "running"))).items
        if len(active) > 1:
            raise TwoActive([run.id for run in active])


def simulate(seed: int) -> list[Run]:
    """Let the processes work; return the runs that the calls of ``enqueue`` answered."""
    random, clock = Random(seed), VirtualClock()
    strands = Interleaving(random, clock)
    # With a slower pace, less than a minute passes while the others work.
    strands.pace = random.choice([200, 2_000])
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
        answer({})

    def choose() -> None:
        # One of them comes again, when its run was purged or while it exists.
        chosen = random.choice(["again", f"mine-{strands.steps}"])
        store.chosen[chosen] += 1
        answer({"id": chosen})

    def answer(given: dict[str, Any]) -> None:
        gone = {run_id: store.added[run_id] for run_id in store.gone}
        run = app.enqueue("work", unique="order-42", **given)
        if store.added[run.id] == gone.get(run.id):
            raise GivenTwice(run.id)
        answered.append(run)

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
        strands.sleep(random.choice([0, 0, 0, 5_000]))

    def retry() -> None:
        strands.switch()
        for run in inner.find_runs(RunQuery(states=("failed",), limit=1)).items:
            try:
                app.runs.retry(run.id)
            except (RunRefused, RunNotFound):
                continue

    def purge() -> None:
        strands.sleep(random.randrange(20_000))
        store.purge_ended(clock() - SHORTEST_KEEP)

    def clean() -> None:
        strands.switch()
        UniqueRecords(cast(Store, store), 86_400_000).step(clock())

    for number in range(3):
        strands.spawn(f"enqueue-{number}", mortal(enqueue, 5))
        strands.spawn(f"choose-{number}", mortal(choose, 6))
    strands.spawn("bulk", mortal(enqueue_many, 3))
    strands.spawn("purge", mortal(purge, 40))
    strands.spawn("worker", mortal(execute, 100))
    strands.spawn("retry", mortal(retry, 20))
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
    assert (known | store.purged).issuperset(run.id for run in answered)
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


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_at_most_one_run_of_a_key_is_active(first: int) -> None:
    answered = [simulate(seed) for seed in SEEDS[first : first + 50]]
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


def ignores_marks(record: Record | None, found: RunRecord | None, now: int, *, has_ended: bool) -> Verdict:
    """A mutant: a run that has ended and was purged counts as one that was not added yet."""
    return decide(record, found, now)


def adds_without_before(
    store: MemoryStore, runs: Sequence[RunRecord], before: int | None = None
) -> list[bool]:
    """A mutant: a process that was stopped adds its run, however long ago it looked at the record."""
    return add_runs(store, runs)


add_runs = MemoryStore.add_runs


def keeps_its_id(self: app_unique.UniqueRuns, wanted: RunRecord, refused: RunRecord) -> RunRecord:
    """A mutant: a process whose run was refused takes the key with the same id again."""
    return wanted


def marks_only_ids_that_are_made(run: RunRecord, now: int) -> tuple[Record, ...]:
    """A mutant: the end of a run with a chosen id leaves no mark."""
    return unique_ends.end_marks(run, now) if is_given_once(run.id, run.created_at) else ()


def marks_ids_alone(run_id: str, made: int | None) -> str:
    """A mutant: the mark of an earlier run counts for a later one of the same chosen id."""
    return run_id


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
        (app_unique, "decide", ignores_marks),
        (MemoryStore, "add_runs", adds_without_before),
        (app_unique.UniqueRuns, "after_refusal", keeps_its_id),
        (attempts, "end_marks", marks_only_ids_that_are_made),
        (unique_ends, "mark_key", marks_ids_alone),
    ],
)
def test_the_model_finds_mutants(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, mutant)
    with pytest.raises(Broken):
        [simulate(seed) for seed in SEEDS]
