"""The promise, under every fault, on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.conftest import server_url
from tests.lengths import LONG, chunks
from tests.simulator.__main__ import run_seed
from tests.simulator.trace import Trace

CALENDAR_SEEDS = range(0, 4, 2)
LIMIT_SEEDS = range(0, 2, 1)
FLOW_SEEDS = range(0, 2, 1)
DEPENDENCY_SEEDS = range(0, 4, 2)
SEEDS = range(0, 9, 3)
PRODUCT_SEEDS = range(100, 106, 2)

# Seeds that find a fault again when its repair is taken back.
REGRESSIONS = {
    1000: "a run that was tried once more became active beside the tick that was just fired",
    1124: "a repeated claim answered runs that were taken over since it had looked",
}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("first", chunks(SEEDS, in_test=0))
def test_the_promise_is_kept_on_postgresql(first: int) -> None:
    for seed in range(first, first + SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace())


@pytest.mark.parametrize("first", chunks(LIMIT_SEEDS, in_test=0))
def test_limits_are_kept_on_postgresql(first: int) -> None:
    for seed in range(first, first + LIMIT_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), limits=True)


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_a_defect_that_a_seed_once_found_stays_repaired(seed: int) -> None:
    run_seed(seed, server_url("postgres"), Trace())


@pytest.mark.parametrize("first", chunks(PRODUCT_SEEDS, in_test=0))
def test_the_promise_is_kept_by_the_loops_of_the_product_on_postgresql(first: int) -> None:
    for seed in range(first, first + PRODUCT_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), product=True)


@LONG
def test_a_seed_replays_to_the_letter_on_postgresql() -> None:
    first, second = (run_seed(9, server_url("postgres"), Trace()) for _ in range(2))
    assert [str(line) for line in first.trace] == [str(line) for line in second.trace]


@pytest.mark.parametrize("first", chunks(DEPENDENCY_SEEDS, in_test=0))
def test_dependencies_are_kept_on_postgresql(first: int) -> None:
    for seed in range(first, first + DEPENDENCY_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), dependencies=True)


@pytest.mark.parametrize("first", chunks(CALENDAR_SEEDS, in_test=0))
def test_calendars_are_kept_on_postgresql(first: int) -> None:
    for seed in range(first, first + CALENDAR_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), calendars=True)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_are_kept_on_postgresql(first: int) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), flows=True, limits=seed % 2 == 1)


@pytest.mark.parametrize("first", chunks(FLOW_SEEDS, in_test=0))
def test_flows_whose_ids_come_again_are_kept_apart_on_postgresql(first: int) -> None:
    for seed in range(first, first + FLOW_SEEDS.step):
        run_seed(seed, server_url("postgres"), Trace(), reuse=True)
