"""The store on Redis and Valkey passes the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG
from tests.refusing import Refusing

from evenbeat.stores.redis import RedisStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract
from evenbeat.testing.contract.refusals import Refusal

# A key of another type is all that Redis refuses. Other damage of a row is quarantined: see test_damage.py.
REFUSALS: frozenset[Refusal] = frozenset({"add", "settle"})

# Longer than by default: ten threads wait for each other, perhaps on a busy machine.
PATIENCE = 60.0


class TestRedis(Refusing, StoreContract):
    refusals = REFUSALS

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        stores: list[RedisStore] = []
        with own_place(server_url("valkey")) as url:

            def handle() -> RedisStore:
                stores.append(RedisStore(url, clock, timeout=PATIENCE))
                return stores[-1]

            try:
                yield handle
            finally:
                for store in stores:
                    store.close()


@LONG
class TestRedisSharedByThreads(Refusing, StoreContract):
    refusals = REFUSALS

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        with own_place(server_url("valkey")) as url:
            store = RedisStore(url, clock, timeout=PATIENCE)
            try:
                yield lambda: store
            finally:
                store.close()
