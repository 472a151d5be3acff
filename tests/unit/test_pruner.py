"""The pruner: deletes history in small batches."""

from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from evenbeat.core.records import Record, RunRecord
from evenbeat.node.pruner import PURGE_EVERY, Pruner, purged_before
from evenbeat.rules import attempts
from evenbeat.stores.base import EVERYTHING, Claim, EndedRuns, Purged
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open()
    return store


def test_the_pruner_deletes_runs_that_are_older_than_the_retention(
    store: MemoryStore, clock: VirtualClock
) -> None:
    store.add_runs([RunRecord(id="r", task="work", run_at=clock.now, created_at=clock.now)])
    (run,) = store.claim_runs(Claim(worker="w", token="t", limit=1, now=clock.now, lease=30_000)).runs
    store.settle_runs([attempts.succeeded(run, None, clock.now, "end")])
    pruner = Pruner(store, retention=86_400_000)
    pruner.step(clock.now)
    assert store.count_runs() == {"succeeded": 1}
    clock.advance("1d")
    clock.advance("1ms")
    assert pruner.step(clock.now) == clock.now + PURGE_EVERY
    assert store.count_runs() == {}


def test_the_pruner_continues_soon_if_the_store_returned_before_the_batch_was_full(
    clock: VirtualClock,
) -> None:
    class LongLogs(MemoryStore):
        def purge(self, finished_before: int, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
            return Purged(0, finished_before - 1)

    assert Pruner(LongLogs(clock), retention=0).step(clock.now) < clock.now + PURGE_EVERY


def test_the_pruner_records_until_when_it_deletes_before_it_deletes(clock: VirtualClock) -> None:
    class Watched(MemoryStore):
        seen: ClassVar[list[tuple[int | None, int]]] = []

        def purge(self, finished_before: int, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
            self.seen.append((purged_before(self, "default"), finished_before))
            return Purged(0, finished_before)

    store = Watched(clock)
    assert purged_before(store, "default") is None
    pruner = Pruner(store, retention=100_000)
    clock.advance("1ms")
    for _ in range(3):
        pruner = Pruner(store, retention=100_000)
        pruner.step(clock.now)
        clock.advance("30ms")
    # The recorded instant is never earlier than the purge, and is written once in a thousandth of the
    # retention.
    assert all(noted is not None and before <= noted < before + 100 for noted, before in store.seen)
    assert len({noted for noted, _ in store.seen}) == 1
    clock.advance("1m")
    pruner.step(clock.now)
    assert purged_before(store, "default") == -(-(clock.now - 100_000) // 100) * 100


def test_the_record_of_the_purge_never_goes_back(store: MemoryStore, clock: VirtualClock) -> None:
    Pruner(store, retention=1_000).step(clock.now)
    noted = purged_before(store, "default")
    assert noted is not None
    assert noted >= clock.now - 1_000
    Pruner(store, retention=86_400_000).step(clock.now)
    assert purged_before(store, "default") == noted


def test_two_pruners_that_write_the_record_at_once_keep_the_later_instant(clock: VirtualClock) -> None:
    class Contended(MemoryStore):
        others: ClassVar[list[int]] = [clock.now + 5]

        def put_record(self, record: Record, expect: int | None = None) -> bool:
            if self.others:
                super().put_record(replace(record, body=str(self.others.pop())), expect)
            return super().put_record(record, expect)

    store = Contended(clock)
    Pruner(store, retention=0).step(clock.now)
    assert purged_before(store, "default") == clock.now + 5
