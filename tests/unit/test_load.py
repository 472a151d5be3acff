"""The coming load: every tick is counted in the minute in which it fires."""

from __future__ import annotations

from collections import Counter

import pytest

from evenbeat import parse_trigger
from evenbeat.core.instants import read_instant
from evenbeat.timeline import Expected, Load

MINUTE, HOUR = 60_000, 3_600_000
START = read_instant("2026-03-02T08:00Z", "start")


def expected(
    name: str, text: str, first: int | None = None, delay: int = 0, since: int = START - HOUR
) -> Expected:
    return Expected(name, parse_trigger(text).bind(name, since), first, delay)


def test_ticks_are_counted_by_the_minute() -> None:
    load = Load([expected("a", "*/15 * * * *"), expected("b", "0 * * * *")], START, START + HOUR)

    assert (load.start, load.end, load.total()) == (START, START + HOUR, 5)
    assert {minute: count for minute, count in enumerate(load.per_minute()) if count} == {
        0: 2,
        15: 1,
        30: 1,
        45: 1,
    }
    assert load.busiest(2) == [START, START + 15 * MINUTE]
    assert load.whose(START) == Counter(a=1, b=1)


def test_a_window_is_whole_minutes() -> None:
    load = Load([expected("a", "* * * * *")], START + 1, START + 2 * MINUTE + 1)

    assert (load.start, load.end, load.per_minute()) == (START + MINUTE, START + 3 * MINUTE, [1, 1])


def test_spread_ticks_are_counted_where_they_fire() -> None:
    load = Load([expected("a", "0 * * * *", delay=7 * MINUTE + 5)], START, START + 2 * HOUR)

    assert [minute for minute, count in enumerate(load.per_minute()) if count] == [7, 67]
    assert load.whose(START + 67 * MINUTE) == Counter(a=1)


def test_a_spread_tick_from_before_the_window_falls_into_it() -> None:
    tick = START - MINUTE
    load = Load([expected("a", "59 7 * * *", first=tick, delay=2 * MINUTE)], START, START + HOUR)

    assert [minute for minute, count in enumerate(load.per_minute()) if count] == [1]


def test_nothing_counts_before_the_next_tick_which_may_lie_off_the_trigger() -> None:
    first = START + 67 * MINUTE
    load = Load([expected("a", "*/30 * * * *", first=first)], START, START + 2 * HOUR)

    assert [minute for minute, count in enumerate(load.per_minute()) if count] == [67, 90]


@pytest.mark.parametrize("first", [None, START - HOUR, START])
def test_overdue_and_regular_ticks_need_no_care(first: int | None) -> None:
    load = Load([expected("a", "*/30 * * * *", first=first)], START, START + HOUR)

    assert [minute for minute, count in enumerate(load.per_minute()) if count] == [0, 30]


def test_no_schedules_are_no_load() -> None:
    load = Load([], START, START + HOUR)

    assert (load.total(), load.busiest(5), load.complete) == (0, [], True)


def test_too_many_spread_ticks_make_the_load_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.timeline.load._UNROLLED", 200)

    load = Load([expected("a", "* * * * * *", delay=1)], START, START + HOUR)
    assert not load.complete
    assert 0 < load.total() <= 200
