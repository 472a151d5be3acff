"""The store on SQLite passes the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lengths import LONG
from tests.refusing import Refusing

from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract


class TestSqlite(Refusing, StoreContract):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        stores: list[SqliteStore] = []

        def handle() -> SqliteStore:
            # Longer than by default: ten threads wait for each other, perhaps on a busy machine.
            stores.append(SqliteStore(tmp_path / "evenbeat.db", clock, busy_timeout=60))
            return stores[-1]

        yield handle
        for store in stores:
            store.close()


@LONG
class TestSqliteSharedByThreads(Refusing, StoreContract):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        store = SqliteStore(tmp_path / "evenbeat.db", clock, busy_timeout=60)
        yield lambda: store
        store.close()
