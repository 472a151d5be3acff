"""Cron against a reference that looks at every minute: the same ticks, forwards and backwards."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import Cron, InvalidTrigger, cron
from tests.lengths import examples
from tests.unit import reference, strategies
from tests.unit.strategies import GAPS, REPEATS, ZONES

DAY = 86_400
YEARS = (2011, 2012, 2018, 2019, 2025, 2026, 2073)

# Changes of the clock less than an hour from a multiple of 2**25 s, the length of the stretches by
# which evenbeat learns a zone: what repeats on one side of the edge began on the other.
AT_THE_EDGE_OF_A_STRETCH = {
    "America/Santiago": [100_666_800, 171_362_487_600],  # 1973-03-10, 7400-04-05
    "America/New_York": [117_071_416_800, 129_788_546_400],  # 5679-11-05, 6082-11-01
    "Australia/Lord_Howe": [174_013_282_800, 186_730_412_400],  # 7484-04-06, 7887-04-03
    "Europe/Riga": [240_048_406_800, 252_765_536_400],  # 9576-10-31, 9979-10-28
}


def read(text: str, **options: Any) -> Cron | None:
    """The trigger, or None if the text was refused as one that never matches."""
    try:
        trigger = cron(text, **options)
    except InvalidTrigger as refused:
        if "never matches" not in str(refused):
            raise
        return None
    assert isinstance(trigger, Cron)
    return trigger


def moments(key: str) -> list[int]:
    """Changes of the clock, and an ordinary day where there are none."""
    found = [moment for year in YEARS for moment in reference.transitions(key, year, year)]
    return found + AT_THE_EDGE_OF_A_STRETCH.get(key, []) or [1_774_000_000]


MOMENTS = [(key, moment) for key in ZONES for moment in moments(key)]


@given(
    text=st.one_of(strategies.night_texts, strategies.night_texts, strategies.texts),
    moment=st.sampled_from(MOMENTS),
    hours=st.one_of(st.integers(-30, 30), st.integers(-3, 3)),
    seconds=st.one_of(st.sampled_from([0, 1, -1, 1800]), st.integers(0, 3599)),
    days=st.sampled_from(strategies.DAYS),
)
@settings(max_examples=examples(800))
def test_around_a_change_of_the_clock_every_rule_gives_the_ticks_of_the_reference(
    text: str, moment: tuple[str, int], hours: int, seconds: int, days: str
) -> None:
    key, change = moment
    start = change + hours * 3600 + seconds
    span = 2 * DAY if ticks_per_day(text) < 300 else 3 * 3600
    begin, end = change - span, change + span
    for gap, repeat in product(GAPS, REPEATS):
        trigger = read(text, tz=key, gap=gap, repeat=repeat, days=days)
        if trigger is None:
            continue
        expected = [t * 1000 for t in reference.ticks(text, key, begin, end, gap, repeat, days)]
        assert list(trigger.between_ms(begin * 1000, end * 1000)) == expected
        check_next_and_prev(trigger, expected, start * 1000, begin * 1000, end * 1000)


def ticks_per_day(text: str) -> int:
    rule = reference.read(text)
    return len(rule.hours) * len(rule.minutes) * len(rule.seconds)


def check_next_and_prev(trigger: Cron, expected: list[int], start: int, begin: int, end: int) -> None:
    if not begin <= start <= end:
        return
    following = trigger.next_ms(start)
    later = [tick for tick in expected if tick > start]
    if later:
        assert following == later[0]
    else:
        assert following is None or following >= end
    preceding = trigger.prev_ms(start)
    earlier = [tick for tick in expected if tick < start]
    if earlier:
        assert preceding == earlier[-1]
    else:
        assert preceding is None or preceding < begin


@given(text=strategies.texts)
@settings(max_examples=examples(200))
def test_without_a_choice_wildcards_follow_real_time_and_fixed_times_run_once(text: str) -> None:
    gap, repeat = ("skip", "both") if reference.read(text).real_time else ("shift", "first")
    assert read(text, tz="Europe/Riga") == read(text, tz="Europe/Riga", gap=gap, repeat=repeat)


@given(
    dates=strategies.dates,
    months=strategies.months,
    weekdays=strategies.weekdays,
    which=st.sampled_from(strategies.DAYS),
)
@settings(max_examples=examples(400))
def test_the_day_fields_match_the_days_of_the_reference(
    dates: str, months: str, weekdays: str, which: str
) -> None:
    text = f"0 0 {dates} {months} {weekdays}"
    rule = reference.read(text, which)
    first = date(2023, 11, 1)
    days = [day for n in range(1600) if reference.day_matches(rule, day := first + timedelta(n))]
    trigger = read(text, days=which)
    if trigger is None:
        assert days == []
        return
    begin = datetime(2023, 11, 1, tzinfo=UTC)
    end = begin + timedelta(1600)
    assert [tick.date() for tick in trigger.between(begin, end)] == days
    backwards = []
    tick = trigger.prev(end)
    while tick is not None and tick >= begin:
        backwards.append(tick.date())
        tick = trigger.prev(tick)
    assert backwards[::-1] == days


def every_kind_of_month() -> list[date]:
    """The days of each month on each weekday that it can begin with, of February also with 29 days."""
    kinds = {}
    for year, month in product(range(2000, 2040), range(1, 13)):
        kinds[month, calendar.monthrange(year, month)] = (year, month)
    return [
        date(*kind, day) for kind in kinds.values() for day in range(1, calendar.monthrange(*kind)[1] + 1)
    ]


DAYS = every_kind_of_month()


@pytest.mark.parametrize(
    "dates", ["*", "29", "30", "31", "30,31", "30W", "31W", "L", "L-29", "L-30", "LW", "*/31"]
)
@pytest.mark.parametrize("months", ["*", "2", "4", "2,4,6,9,11", "1"])
def test_a_text_is_refused_as_never_matching_exactly_if_no_day_matches(dates: str, months: str) -> None:
    weekdays = ("*", "1", "*/6", "*/7", "6#5", "1#1", "*/6,3#2", "0L", "6")
    for weekday, days in product(weekdays, strategies.DAYS):
        text = f"0 0 {dates} {months} {weekday}"
        rule = reference.read(text, days)
        matching = any(reference.day_matches(rule, day) for day in DAYS)
        assert (read(text, days=days) is not None) == matching, (text, days)


@pytest.mark.parametrize("key", ZONES)
@pytest.mark.parametrize("text", reference.MACROS)
def test_macros_tick_as_in_the_reference(text: str, key: str) -> None:
    change = moments(key)[0]
    trigger = read(text, tz=key)
    assert trigger is not None
    expected = list(reference.ticks(text, key, change - 2 * DAY, change + 2 * DAY))
    ticks = trigger.between_ms((change - 2 * DAY) * 1000, (change + 2 * DAY) * 1000)
    assert [tick // 1000 for tick in ticks] == expected
