"""Leap seconds: the clocks of computers have none. No tick is named after one, lost or doubled by one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from evenbeat.core.instants import Instant, read_instant
from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.rules.ticks import trigger_of
from evenbeat.stores.base import RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.triggers import parse_trigger

MIDNIGHT = read_instant("2017-01-01T00:00:00Z", "midnight")
"""A leap second, 23:59:60, came right before it."""


@pytest.mark.parametrize("text", ["60 59 23 31 12 *", "59-60 * * * * *"])
def test_no_cron_expression_matches_the_leap_second(text: str) -> None:
    with pytest.raises(InvalidTrigger, match="60"):
        parse_trigger(text)


@pytest.mark.parametrize(
    "text", ["2016-12-31T23:59:60Z", "2016-12-31 23:59:60+00:00", "2017-01-01T00:59:60+01:00"]
)
def test_no_instant_is_read_as_the_leap_second(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a date and time"):
        read_instant(text, "at")
    with pytest.raises(InvalidValue):
        parse_trigger(f"at {text}")


@pytest.mark.parametrize("text", ["every 1s", "* * * * * *"])
def test_the_day_of_a_leap_second_has_as_many_seconds_as_any_other(text: str) -> None:
    ticks = list(parse_trigger(text).between_ms(MIDNIGHT - 86_400_000, MIDNIGHT))
    assert len(ticks) == 86_400
    assert {after - before for before, after in itertools.pairwise(ticks)} == {1000}


def smeared() -> Iterable[int]:
    """A clock that is slow by the 24 h around the leap, as those of clouds are: some 11 us a second."""
    return [200] * 3 + [199] + [200] * 20


def stepped() -> Iterable[int]:
    """A clock that shows 23:59:59 twice, as that of a kernel that knows of the leap."""
    return [200] * 4 + [-800] + [200] * 20


def stopped() -> Iterable[int]:
    """A clock that stands still for a second."""
    return [200] * 4 + [0] * 5 + [200] * 20


def corrected() -> Iterable[int]:
    """A clock that ignores the leap, and that is set back by a second later."""
    return [200] * 12 + [-1000] + [200] * 20


@pytest.mark.parametrize("clock", [smeared, stepped, stopped, corrected])
@pytest.mark.parametrize("trigger", ["every 200ms", "every 1s", "* * * * * *"])
@pytest.mark.parametrize("kind", ["latest", "all", "skip"])
def test_every_tick_fires_once_whatever_the_clock_does_at_a_leap_second(
    clock: Callable[[], Iterable[int]], trigger: str, kind: str
) -> None:
    now: Instant = MIDNIGHT - 1000
    store = MemoryStore(clock=lambda: now)
    store.open()
    policy = CatchUp(kind, grace=100)  # type: ignore[arg-type]  # one of the three
    made = changes.create(ScheduleRecord(name="leap", task="work", trigger=trigger, catch_up=policy), now)
    assert store.put_schedules([Write(made, None)])[0].accepted
    for step in clock():
        now += step
        store.fire_due(now, 10, plan)
    (row,) = store.find_schedules(ScheduleQuery()).items
    bound = trigger_of(made.schedule)
    found = Counter(run.tick for run in store.find_runs(RunQuery()).items)
    for skipped in store.find_skipped("default", "leap"):
        found.update(bound.between_ms(skipped.first, skipped.last + 1))
    assert row.next_tick is not None
    assert found == Counter(bound.between_ms(MIDNIGHT - 999, row.next_tick))
    assert found.total() >= 3
    assert row.next_tick > now
