"""Fixtures of tests on MongoDB: stores on the same collections, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenbeat.stores.mongo import MongoStore, schema
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

COLLECTIONS = (schema.SCHEDULES, schema.RUNS, schema.SKIPPED, schema.STATISTICS, schema.RECORDS, schema.LOGS)


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """One database for most tests, emptied before each. A client that stays connected makes them quick."""
    with own_place(server_url("mongo")) as url:
        keeper = MongoStore(url)
        keeper.open()
        yield url
        keeper.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def make(place: str, clock: VirtualClock) -> Iterator[Callable[..., MongoStore]]:
    """Returns a function that opens stores on the same database. They are closed after the test."""
    made: list[MongoStore] = []

    def open_store(**options: Any) -> MongoStore:
        made.append(MongoStore(place, clock, **options))
        made[-1].open()
        return made[-1]

    first = open_store()
    for name in COLLECTIONS:
        plain(first)[name].delete_many({})
    yield open_store
    for store in made:
        store.close()


@pytest.fixture
def store(make: Callable[..., MongoStore]) -> MongoStore:
    return make()


def plain(store: MongoStore) -> Any:
    """Return the database, as mongosh sees it."""
    return store._connections.session().database
