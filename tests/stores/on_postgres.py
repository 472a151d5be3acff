"""Fixtures of tests on PostgreSQL: stores on the same tables, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from evenbeat.stores.postgres import PostgresStore
from evenbeat.testing import VirtualClock
from tests.conftest import server_url
from tests.isolation import own_place

TABLES = ("schedules", "runs", "skipped", "statistics", "records", "logs")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module", name="url")
def a_place() -> Iterator[str]:
    """One schema for all tests that need no empty database."""
    with own_place(server_url("postgres")) as url:
        yield url


@pytest.fixture
def options() -> dict[str, Any]:
    """The options of all stores; a module may replace this fixture."""
    return {}


@pytest.fixture
def make(url: str, clock: VirtualClock, options: dict[str, Any]) -> Iterator[Callable[..., PostgresStore]]:
    """Returns a function that opens stores on the same, empty tables. They are closed after the test."""
    made: list[PostgresStore] = []

    def open_store(clock: VirtualClock | None = clock, place: str = url, **own: Any) -> PostgresStore:
        made.append(PostgresStore(place, clock, **{**options, **own}))
        made[-1].open()
        return made[-1]

    first = open_store()
    sql(first, f"TRUNCATE {', '.join(f'evenbeat.{table}' for table in TABLES)}")
    yield open_store
    for store in made:
        store.close()


@pytest.fixture
def store(make: Callable[..., PostgresStore]) -> PostgresStore:
    return make()


@contextmanager
def plain(store: PostgresStore) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(store.location.conninfo, autocommit=True) as connection:
        yield connection


def sql(store: PostgresStore, text: str) -> list[Any]:
    with plain(store) as connection:
        cursor = connection.execute(store.location.own(text).encode())
        return cursor.fetchall() if cursor.description else []
