"""The store in memory keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract


class TestMemory(StoreContract):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        store = MemoryStore(clock)
        yield lambda: store
        store.close()
