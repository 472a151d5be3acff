"""The store on PostgreSQL passes the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG
from tests.refusing import Refusing

from evenbeat.stores.postgres import PostgresStore
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract import Handles, StoreContract

TABLES = ("schedules", "runs", "skipped", "statistics", "records", "logs")


@pytest.fixture(scope="module")
def emptied() -> Iterator[Callable[[], str]]:
    """One schema for all tests of this module. A call empties it and returns its URL.

    Creating a schema, or a connection for each call, would take longer than most tests.
    """
    with own_place(server_url("postgres")) as url:
        store = PostgresStore(url)
        store.open()
        store.close()
        tables = ", ".join(f"evenbeat.{table}" for table in TABLES)
        with psycopg.connect(store.location.conninfo, autocommit=True) as connection:

            def empty() -> str:
                connection.execute(store.location.own(f"TRUNCATE {tables}").encode())
                return url

            yield empty


class TestPostgres(Refusing, StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, emptied: Callable[[], str]) -> None:
        self.url = emptied()

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        stores: list[PostgresStore] = []

        def handle() -> PostgresStore:
            # Longer than by default: ten threads wait for each other, perhaps on a busy machine.
            stores.append(PostgresStore(self.url, clock, timeout=60, lock_timeout=60))
            return stores[-1]

        yield handle
        for store in stores:
            store.close()


@LONG
class TestPostgresSharedByThreads(Refusing, StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, emptied: Callable[[], str]) -> None:
        self.url = emptied()

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        store = PostgresStore(self.url, clock, timeout=60, lock_timeout=60)
        yield lambda: store
        store.close()
