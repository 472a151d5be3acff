"""A few seeds of the simulator, in small pieces: enough for mutants."""

from __future__ import annotations

import pytest

from tests.simulator import simulate
from tests.simulator.__main__ import run_seed
from tests.simulator.trace import Trace


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_memory_keeps_the_promise(first: int) -> None:
    for seed in range(first, first + 5):
        simulate(seed)


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_the_loops_of_the_product_keep_the_promise(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, "memory", Trace(), product=True)


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_schedules_of_the_code_keep_the_promise(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, "memory", Trace(), code_only=True)


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_flows_keep_the_promise(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, "memory", Trace(), flows=True)


@pytest.mark.parametrize("first", range(0, 10, 5))
def test_backfills_keep_the_promise(first: int) -> None:
    for seed in range(first, first + 5):
        run_seed(seed, "memory", Trace(), backfills=True, limits=True)
