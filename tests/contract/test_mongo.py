"""The store on MongoDB passes the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG
from tests.refusing import Refusing

from evenbeat.stores.mongo import MongoStore, schema
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract

# All collections except the version of the schema and the hints: a capped collection cannot be emptied.
COLLECTIONS = (schema.SCHEDULES, schema.RUNS, schema.SKIPPED, schema.STATISTICS, schema.RECORDS, schema.LOGS)

# Seconds. Longer than by default: ten threads wait for each other, perhaps on a busy machine.
_PATIENCE = 60


class OneDatabase(Refusing, StoreContract):
    """One database for a class, emptied before each test: creating one takes longer than most tests."""

    refusals = StoreContract.refusals - {"purge"}  # a validator sees no deletion
    place: str
    keeper: MongoStore

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def database(cls) -> Iterator[None]:
        with own_place(server_url("mongo")) as url:
            # Open meanwhile, so that the stores of all tests share its connections: the same time limit.
            keeper = MongoStore(url, timeout=_PATIENCE, lock_timeout=_PATIENCE)
            keeper.open()
            cls.place, cls.keeper = url, keeper
            yield
            keeper.close()

    def empty(self) -> None:
        for name in COLLECTIONS:
            self.keeper._connections.session().database[name].delete_many({})


OneDatabase.__test__ = False


class TestMongo(OneDatabase):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        self.empty()
        stores: list[MongoStore] = []

        def handle() -> MongoStore:
            stores.append(MongoStore(self.place, clock, timeout=_PATIENCE, lock_timeout=_PATIENCE))
            return stores[-1]

        yield handle
        for store in stores:
            store.close()


@LONG
class TestMongoSharedByThreads(OneDatabase):
    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        self.empty()
        store = MongoStore(self.place, clock, timeout=_PATIENCE, lock_timeout=_PATIENCE)
        yield lambda: store
        store.close()
