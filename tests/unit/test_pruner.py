"""The pruner: deletes history in small batches."""

from __future__ import annotations

import pytest

from evenbeat.core.records import RunRecord
from evenbeat.node.pruner import PURGE_EVERY, Pruner
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
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
        def purge(self, finished_before: int, limit: int) -> int:
            return limit // 4

    assert Pruner(LongLogs(clock), retention=0).step(clock.now) == clock.now + 1_000
