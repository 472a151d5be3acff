"""The promise, under every fault, on a real MongoDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from evenbeat.stores.mongo import MongoStore
from tests.conftest import server_url
from tests.lengths import chunks
from tests.simulator.__main__ import run_seed
from tests.simulator.trace import Trace

# A seed takes some 2 s here, most of it commits: hundreds of others are run by hand.
CALENDAR_SEEDS = range(0, 4, 2)
LIMIT_SEEDS = range(0, 4, 2)
FLOW_SEEDS = range(0, 2, 1)
DEPENDENCY_SEEDS = range(0, 4, 2)
SEEDS = range(0, 8, 2)
PRODUCT_SEEDS = range(0, 4, 2)


@pytest.fixture(autouse=True, scope="module")
def url() -> Iterator[str]:
    """Connected all the while: a driver's threads take half a second to end, for each seed."""
    keeper = MongoStore(server_url("mongo"))
    keeper._connections.unopened().run("ping", {"ping": 1})
    yield server_url("mongo")
    keeper.close()


@pytest.fixture(autouse=True)
def no_thread_is_left(url: str) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    for thread in left:
        # The client that erases a seed's database is closed; the driver's threads end half a second later.
        thread.join(5.0 if thread.name.startswith("pymongo_") else 0.0)
    assert not [thread for thread in left if thread.is_alive()]


@pytest.mark.parametrize("first", chunks(SEEDS, in_test=0))
def test_the_promise_is_kept_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + SEEDS.step):
        run_seed(seed, url, Trace())


@pytest.mark.parametrize("first", chunks(PRODUCT_SEEDS))
def test_the_promise_is_kept_by_the_loops_of_the_product_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + PRODUCT_SEEDS.step):
        run_seed(seed, url, Trace(), product=True)


@pytest.mark.parametrize("first", chunks(LIMIT_SEEDS, in_test=0))
def test_limits_are_kept_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + LIMIT_SEEDS.step):
        run_seed(seed, url, Trace(), limits=True)


@pytest.mark.parametrize("first", chunks(DEPENDENCY_SEEDS, in_test=0))
def test_dependencies_are_kept_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + DEPENDENCY_SEEDS.step):
        run_seed(seed, url, Trace(), dependencies=True)


@pytest.mark.parametrize("first", chunks(CALENDAR_SEEDS, in_test=0))
def test_calendars_are_kept_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + CALENDAR_SEEDS.step):
        run_seed(seed, url, Trace(), calendars=True)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_are_kept_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, url, Trace(), flows=True, limits=seed % 2 == 1)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_whose_ids_come_again_are_kept_apart_on_mongodb(url: str, first: int) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, url, Trace(), reuse=True)
