"""Fixtures of tests on SQLite: stores on one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evenbeat.db"


@pytest.fixture
def make(path: Path, clock: VirtualClock) -> Iterator[Callable[..., SqliteStore]]:
    """Returns a function that opens stores on the same file. They are closed after the test."""
    made: list[SqliteStore] = []

    def open_store(**options: Any) -> SqliteStore:
        made.append(SqliteStore(path, clock, **options))
        made[-1].open()
        return made[-1]

    yield open_store
    for store in made:
        store.close()


@pytest.fixture
def store(make: Callable[..., SqliteStore]) -> SqliteStore:
    return make()
