"""The promise, under every fault, on a real Valkey; and every index of the store as it should be after it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests import servers
from tests.conftest import server_url
from tests.contract.redis_indexes import differences
from tests.isolation import own_place
from tests.lengths import chunks
from tests.missing import Unavailable
from tests.simulator import simulate
from tests.simulator.backends import server_backend
from tests.simulator.simulation import WITH_DRIVER, with_flows, with_reuse

LIMIT_SEEDS = range(0, 6, 1)
CALENDAR_SEEDS = range(0, 12, 4)
FLOW_SEEDS = range(0, 2, 1)
DEPENDENCY_SEEDS = range(0, 12, 4)
SEEDS = range(0, 40, 4)
PRODUCT_SEEDS = range(0, 15, 5)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One that writes nothing to its disk: it is not killed here, and each step is several commits."""
    try:
        quick = servers.Valkey({"appendonly": "no"})
        quick.start()
    except Unavailable:
        yield server_url("valkey")
        return
    try:
        yield quick.url
    finally:
        quick.stop()


def run_seed(
    seed: int,
    server: str,
    *,
    product: bool = False,
    limits: bool = False,
    dependencies: bool = False,
    calendars: bool = False,
    flows: bool = False,
    reuse: bool = False,
) -> list[str]:
    """The lines of its trace."""
    with own_place(server) as url:
        options = WITH_DRIVER._replace(
            product=product, limits=limits, dependencies=dependencies, calendars=calendars
        )
        if flows:
            options = with_flows(options, seed)
        if reuse:
            options = with_reuse(options, seed)
        report = simulate(seed, server_backend(url), options, store=url)
        assert differences(url) == {}
    return [str(line) for line in report.trace]


@pytest.mark.parametrize("first", chunks(SEEDS))
def test_the_promise_is_kept(first: int, server: str) -> None:
    for seed in range(first, first + SEEDS.step):
        run_seed(seed, server)


@pytest.mark.parametrize("first", chunks(PRODUCT_SEEDS))
def test_the_promise_is_kept_by_the_loops_of_the_product(first: int, server: str) -> None:
    for seed in range(first, first + PRODUCT_SEEDS.step):
        run_seed(seed, server, product=True)


def test_a_seed_replays_to_the_letter(server: str) -> None:
    assert run_seed(9, server) == run_seed(9, server)


@pytest.mark.parametrize("first", chunks(LIMIT_SEEDS))
def test_limits_are_kept(first: int, server: str) -> None:
    for seed in range(first, first + LIMIT_SEEDS.step):
        run_seed(seed, server, limits=True)


@pytest.mark.parametrize("first", chunks(DEPENDENCY_SEEDS, in_test=0))
def test_dependencies_are_kept(first: int, server: str) -> None:
    for seed in range(first, first + DEPENDENCY_SEEDS.step):
        run_seed(seed, server, dependencies=True)


@pytest.mark.parametrize("first", chunks(CALENDAR_SEEDS, in_test=0))
def test_calendars_are_kept(first: int, server: str) -> None:
    for seed in range(first, first + CALENDAR_SEEDS.step):
        run_seed(seed, server, calendars=True)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_are_kept(first: int, server: str) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, server, flows=True, limits=seed % 2 == 1)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_whose_ids_come_again_are_kept_apart(first: int, server: str) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, server, reuse=True)
