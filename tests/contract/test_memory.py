"""The store in memory passes the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.refusing import Refusing, RefusingMemoryStore

from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue
from evenbeat.stores.base import Claim, Schema
from evenbeat.stores.memory import MemoryStore, claims
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract


class TestMemory(Refusing, StoreContract):
    # A dictionary refuses nothing: RefusingMemoryStore plays these.
    refusals = frozenset({"add", "settle", "schedule"})

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        store = RefusingMemoryStore(clock)
        yield lambda: store
        store.close()


def test_a_store_in_memory_has_no_schema_no_server_and_no_transactions() -> None:
    store = MemoryStore()
    assert (store.schema(), store.server()) == (Schema(0, 0), [])
    with pytest.raises(InvalidValue, match="cannot join a transaction"):
        store.add_runs_within(object(), [])


def test_claims_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_CLAIMS_KEPT", 2)
    store = MemoryStore(VirtualClock())
    for token in ("a", "b", "c"):
        store.add_runs([RunRecord(id=token, task="work")])
        store.claim_runs(Claim(worker="w", token=token, limit=1, now=store.now(), lease=1_000))
        assert len(store._claims) <= 2
    assert list(store._claims) == ["b", "c"]
