"""What holds for every trigger and every instant, whatever the rule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import Cron, Every, Trigger, at, cron, every
from evenbeat.core.instants import EPOCH, FIRST, LAST, from_ms, to_ms
from tests.lengths import examples
from tests.unit import strategies

TRIGGERS = st.one_of(
    strategies.triggers,
    strategies.cron_triggers(strategies.night_texts),
    strategies.cron_triggers(strategies.night_texts, bounded=False),
)
FRACTION = st.integers(0, 10**6)
MICROSECOND = timedelta(microseconds=1)


def between(low: int, high: int, fraction: int) -> int:
    """An instant in [low, high)."""
    return low + (high - low - 1) * fraction // 10**6


@given(trigger=TRIGGERS, instant=strategies.instants, fraction=FRACTION)
@settings(max_examples=examples(800))
def test_every_instant_between_two_ticks_has_the_same_next(
    trigger: Trigger, instant: int, fraction: int
) -> None:
    following = trigger.next_ms(instant)
    if following is None:
        assert trigger.next_ms(between(instant, LAST + 2, fraction)) is None
        return
    assert following > instant
    for moment in (between(instant, following, fraction), following - 1):
        assert trigger.next_ms(moment) == following


@given(trigger=TRIGGERS, instant=strategies.instants, fraction=FRACTION)
@settings(max_examples=examples(800))
def test_every_instant_between_two_ticks_has_the_same_tick_before(
    trigger: Trigger, instant: int, fraction: int
) -> None:
    preceding = trigger.prev_ms(instant)
    if preceding is None:
        assert trigger.prev_ms(between(FIRST - 1, instant + 1, fraction)) is None
        return
    assert preceding < instant
    for moment in (between(preceding + 1, instant + 1, fraction), preceding + 1):
        assert trigger.prev_ms(moment) == preceding


@given(trigger=TRIGGERS, instant=strategies.instants)
@settings(max_examples=examples(800))
def test_next_and_prev_undo_each_other(trigger: Trigger, instant: int) -> None:
    following, preceding = trigger.next_ms(instant), trigger.prev_ms(instant)
    if following is not None:
        before = trigger.prev_ms(following)
        assert before is None or before <= instant
        assert trigger.next_ms(following - 1) == following
        assert trigger.prev_ms(following + 1) == following
        if before is not None:
            assert trigger.next_ms(before) == following
    if preceding is not None:
        after = trigger.next_ms(preceding)
        assert after is None or after >= instant
        assert trigger.prev_ms(preceding + 1) == preceding
        assert trigger.next_ms(preceding - 1) == preceding
        if after is not None:
            assert trigger.prev_ms(after) == preceding


@given(trigger=TRIGGERS, instant=strategies.instants)
@settings(max_examples=examples(300))
def test_between_gives_what_next_gives_with_its_start_and_without_its_end(
    trigger: Trigger, instant: int
) -> None:
    found: list[int] = []
    tick = trigger.next_ms(instant)
    while tick is not None and len(found) < 20:
        found.append(tick)
        tick = trigger.next_ms(tick)
    assert found == sorted(set(found))
    assert list(islice(trigger.between_ms(instant + 1, LAST + 1), 20)) == found
    if found:
        assert list(trigger.between_ms(found[0], found[-1])) == found[:-1]
        assert list(trigger.between_ms(found[0], found[-1] + 1)) == found


@given(trigger=TRIGGERS, instant=strategies.instants)
@settings(max_examples=examples(300))
def test_datetimes_and_milliseconds_give_the_same_ticks(trigger: Trigger, instant: int) -> None:
    moment = from_ms(instant, ZoneInfo("America/St_Johns"))
    following, preceding = trigger.next(moment), trigger.prev(moment)
    assert (following and to_ms(following)) == trigger.next_ms(instant)
    assert (preceding and to_ms(preceding)) == trigger.prev_ms(instant)
    for tick in (following, preceding):
        assert tick is None or tick.tzinfo is trigger.tzinfo


@given(trigger=TRIGGERS, instant=st.integers(0, 3_000_000_000_000))
@settings(max_examples=examples(300))
def test_microseconds_are_rounded_so_that_next_is_after_and_prev_before(
    trigger: Trigger, instant: int
) -> None:
    ms = trigger.next_ms(instant)
    if ms is None or ms + 1 > LAST:
        return
    tick = from_ms(ms)
    just_before, just_after = tick - MICROSECOND, tick + MICROSECOND
    assert trigger.next(just_before) == tick
    assert trigger.next(tick) == trigger.next(just_after)
    assert trigger.next(just_after) != tick
    assert trigger.prev(just_after) == tick
    assert trigger.prev(tick) == trigger.prev(just_before)
    assert trigger.prev(just_before) != tick
    assert list(trigger.between(just_before, just_after)) == [tick]
    assert list(trigger.between(tick, tick + MICROSECOND)) == [tick]
    assert list(trigger.between(tick + MICROSECOND, tick + 999 * MICROSECOND)) == []
    assert list(trigger.between(tick - 999 * MICROSECOND, tick)) == []


@given(
    trigger=strategies.cron_triggers(bounded=False),
    start=strategies.our_time,
    length=st.timedeltas(timedelta(0), timedelta(days=800)),
)
@settings(max_examples=examples(200))
def test_start_and_until_cut_the_ticks_and_change_nothing_else(
    trigger: Cron, start: datetime, length: timedelta
) -> None:
    first, last = to_ms(start), to_ms(start + length)
    expected = list(islice(trigger.between_ms(first, last + 1), 200))
    bounded = Cron(trigger.expression, trigger.zone, trigger.gap, trigger.repeat, first, last)
    assert list(islice(bounded.between_ms(FIRST, LAST), 200)) == expected
    if expected and len(expected) < 200:
        assert bounded.next_ms(FIRST) == expected[0]
        assert bounded.prev_ms(LAST) == expected[-1]
        assert bounded.next_ms(expected[-1]) is None
        assert bounded.prev_ms(expected[0]) is None


@given(trigger=strategies.every_triggers(), instant=strategies.instants)
@settings(max_examples=examples(300))
def test_an_interval_keeps_its_phase(trigger: Every, instant: int) -> None:
    tick = trigger.next_ms(instant)
    if tick is None:
        return
    anchor = trigger.start if trigger.start is not None else 0
    assert (tick == anchor) if trigger.period == 0 else (tick - anchor) % trigger.period == 0
    following = trigger.next_ms(tick)
    assert following is None or following - tick == trigger.period


@given(trigger=TRIGGERS, since=strategies.instants)
@settings(max_examples=examples(200))
def test_a_bound_trigger_is_bound_for_good(trigger: Trigger, since: int) -> None:
    bound = trigger.bind("report", since)
    assert bound.bind("another", since + 12_345) == bound
    assert bound == trigger.bind("report", since)


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_the_29th_of_february_is_found_across_2100(tz: str) -> None:
    trigger = cron("0 0 29 2 *", tz=tz)
    tick = trigger.next(datetime(2096, 3, 1, tzinfo=UTC))
    assert tick is not None
    assert tick.date().isoformat() == "2104-02-29"
    before = trigger.prev(tick)
    assert before is not None
    assert before.date().isoformat() == "2096-02-29"


def test_a_sunday_29th_of_february_is_found_forty_years_on() -> None:
    trigger = cron("0 0 29 2 */7")  # both must match, as one starts with *
    before, after = datetime(2088, 2, 29, tzinfo=UTC), datetime(2128, 2, 29, tzinfo=UTC)
    assert before.isoweekday() == after.isoweekday() == 7
    assert trigger.next(before) == after
    assert trigger.prev(after) == before


@pytest.mark.parametrize("text", ["* * * * * *", "0 0 * * *", "59 59 23 * * *", "0 0 1 1 *", "0 0 30 12 *"])
@pytest.mark.parametrize("tz", ["UTC", "Pacific/Kiritimati", "Etc/GMT+12", "America/New_York", "Asia/Manila"])
def test_the_ends_of_time_are_reached_and_not_crossed(text: str, tz: str) -> None:
    trigger = cron(text, tz=tz)
    first, last = trigger.next_ms(-(2**70)), trigger.prev_ms(2**70)
    assert first is not None
    assert last is not None
    assert FIRST <= first <= FIRST + 366 * 86_400_000
    assert LAST - 366 * 86_400_000 <= last <= LAST
    assert trigger.prev_ms(first) is None
    assert trigger.next_ms(last) is None
    assert trigger.next(datetime.max.replace(tzinfo=UTC)) is None
    assert trigger.prev(datetime.min.replace(tzinfo=UTC)) is None
    assert trigger.next(datetime.min.replace(tzinfo=UTC)) == EPOCH + timedelta(milliseconds=first)


def test_at_the_first_and_last_instant_there_can_be_a_tick() -> None:
    second, once = cron("* * * * * *"), at(from_ms(FIRST))
    assert second.next_ms(FIRST - 1) == FIRST
    assert second.prev_ms(FIRST + 1) == FIRST
    assert once.next_ms(FIRST - 1) == FIRST
    assert every("1ms").prev_ms(LAST + 1) == LAST
    assert every("1ms").next_ms(FIRST - 5) == FIRST
