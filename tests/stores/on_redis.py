"""Fixtures of tests on Redis: stores on the same keys, and a plain client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import redis

from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis.location import read_location
from evenbeat.testing import VirtualClock

Make: TypeAlias = Callable[..., RedisStore]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def make(valkey: str, clock: VirtualClock) -> Iterator[Make]:
    """Returns a function that opens stores on the same keys. They are closed after the test."""
    made: list[RedisStore] = []

    def open_store(**options: Any) -> RedisStore:
        made.append(RedisStore(valkey, **{"clock": clock, **options}))
        made[-1].open()
        return made[-1]

    yield open_store
    for store in made:
        store.close()


@pytest.fixture
def store(make: Make) -> RedisStore:
    return make()


@pytest.fixture
def client(valkey: str) -> Iterator[Any]:
    """A plain client, like redis-cli."""
    with redis.Redis.from_url(read_location(valkey).url, decode_responses=True, protocol=2) as client:
        yield client
