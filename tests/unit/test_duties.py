"""Periodic duties: each at its time, whether or not others fail."""

from __future__ import annotations

import pytest

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.node.duties import PeriodicDuties
from evenbeat.node.pruner import PURGE_EVERY

NOW = 1_772_366_400_000


class Duty:
    def __init__(self, wait: int) -> None:
        self.wait = wait
        self.steps: list[Instant] = []

    def step(self, now: Instant) -> Instant:
        self.steps.append(now)
        return now + self.wait


@pytest.mark.parametrize("error", [StoreUnavailable("away"), UnicodeEncodeError("utf-8", "x", 0, 1, "bad")])
def test_a_duty_that_fails_does_not_stop_the_others(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []

    class Failing:
        def step(self, now: int) -> int:
            raise error

    class Working:
        def step(self, now: int) -> int:
            done.append(now)
            return now + 10

    duties = PeriodicDuties([Failing(), Working()])
    assert duties.step(1_000) == 1_010
    assert duties.step(1_005) == 1_010
    assert done == [1_000]
    assert duties.step(1_010) == 1_020
    assert done == [1_000, 1_010]
    # It is retried a second later, and logged less and less often.
    for now in (2_000, 3_000, 4_000):
        duties.step(now)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.args for record in errors] == [("failing", error)] * 3
    fields = [(vars(record)["component"], vars(record)["failures"]) for record in errors]
    assert fields == [("duties", 1), ("duties", 2), ("duties", 4)]


def test_periodic_duties_survive_a_clock_that_is_set_back() -> None:
    done: list[int] = []

    class Duty:
        def step(self, now: int) -> int:
            done.append(now)
            return now + 1_000

    duties = PeriodicDuties([Duty()])
    duties.step(100_000_000)
    duties.step(1_000)
    assert done == [100_000_000, 1_000]


def test_each_duty_steps_at_its_time_also_after_the_clock_was_set_back() -> None:
    often, seldom = Duty(100), Duty(PURGE_EVERY)
    duties = PeriodicDuties([often, seldom])
    assert duties.step(NOW) == NOW + 100
    duties.step(NOW + 99)
    duties.step(NOW + 100)
    assert (often.steps, seldom.steps) == ([NOW, NOW + 100], [NOW])
    # Back by a minute: its next step is no more than two periods ahead.
    duties.step(NOW - PURGE_EVERY)
    assert len(seldom.steps) == 1
    duties.step(NOW - PURGE_EVERY - 1)
    assert len(seldom.steps) == 2


def test_a_duty_that_fails_is_retried_a_second_later_and_delays_no_other() -> None:
    class Failing(Duty):
        def step(self, now: Instant) -> Instant:
            super().step(now)
            raise ValueError("not now")

    failing, other = Failing(0), Duty(10_000)
    duties = PeriodicDuties([failing, other])
    assert duties.step(NOW) == NOW + 1_000
    duties.step(NOW + 999)
    assert (len(failing.steps), len(other.steps)) == (1, 1)
    assert duties.step(NOW + 1_000) == NOW + 2_000
    assert (len(failing.steps), len(other.steps)) == (2, 1)
    assert PeriodicDuties([]).step(NOW) is None
