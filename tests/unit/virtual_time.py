"""For tests of the scheduler in virtual time: two tasks, and times as minutes after noon."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenbeat import Run
from evenbeat.testing import VirtualScheduler

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  # where virtual time starts, a Sunday


def minutes(moment: datetime | None) -> float:
    """After noon."""
    assert moment is not None
    return (moment - NOON) / timedelta(minutes=1)


def ticks(runs: list[Run]) -> list[float]:
    return [minutes(run.tick) for run in runs]


def starts(runs: list[Run]) -> list[float]:
    return [minutes(run.started_at) for run in runs]


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture
def calls(scheduler: VirtualScheduler) -> list[Any]:
    """What ``work`` was called with; ``work`` and ``fails`` are registered."""
    made: list[Any] = []

    @scheduler.task
    def work(value: int = 0) -> int:
        made.append(value)
        return value * 2

    @scheduler.task(retries=2, backoff="50m")
    def fails() -> None:
        made.append(scheduler.now)
        raise ValueError("not today")

    return made
