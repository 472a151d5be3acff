"""The coming load: every tick is counted in the minute in which it fires."""

from __future__ import annotations

import tracemalloc
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

    assert (load.total(), load.busiest(5), load.peaks(5)) == (0, [], [])


def test_too_many_spread_ticks_are_counted_without_their_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenbeat.timeline.load._UNROLLED", 3 * 60)

    load = Load([expected("a", "* * * * * *", delay=MINUTE)], START, START + 6 * HOUR)
    assert load.undelayed == 1
    assert load.total() == pytest.approx(6 * 3600, abs=120)
    assert load.whose(load.start) == Counter(a=60)
    assert load.whose(load.end - MINUTE) == Counter(a=60)


# -- against counting one by one -----------------------------------------------------------------

TEXTS = [
    "* * * * *",
    "*/7 * * * *",
    "0 9 * * mon-fri tz=Europe/Berlin",
    "30 2 * * * tz=Europe/Berlin",
    "0 0 L * *",
    "15,45 1-3 * * * tz=America/New_York gap=skip repeat=both",
    "*/20 * * * * *",
    "5,59 */3 * * * * start=2026-03-28T22:10:07Z until=2026-03-29T03:00:30Z",
    "* * * * * * start=2026-03-29T00:59:30Z until=2026-03-29T00:59:45Z",
    "30 2 * * * tz=Europe/Berlin start=2026-03-29T01:00:00Z",
    "30 2 * * * tz=Europe/Berlin until=2026-03-29T00:59:59Z",
    "every 1m",
    "every 90s",
    "every 7s start=2026-03-28T23:00:00.123Z",
    "every 5ms start=2026-03-28T23:59:00Z until=2026-03-29T00:03:00Z",
    "every 6h",
    "every 10m start=2026-03-29T00:03:00Z until=2026-03-29T02:13:00Z",
    "at 2026-03-29T01:02:03Z",
]
NIGHT = read_instant("2026-03-28T22:00Z", "start")


def fires(schedule: Expected, start: int, end: int) -> list[int]:
    """When a schedule fires in [start, end): its next tick, and the trigger's ticks after it."""
    first = schedule.first
    resumed = start - schedule.delay - 1 if first is None else max(first, schedule.moved or first)
    ticks = [] if first is None else [first]
    ticks += schedule.trigger.between_ms(max(resumed + 1, start - schedule.delay), end)
    return [tick + schedule.delay for tick in ticks if start <= tick + schedule.delay < end]


@pytest.mark.parametrize("delay", [0, 1, 59_999, 7 * MINUTE + 41_300, 3 * HOUR])
@pytest.mark.parametrize("text", TEXTS)
def test_any_schedule_is_counted_as_it_fires(text: str, delay: int) -> None:
    trigger = parse_trigger(text).bind("a", NIGHT - 5 * HOUR)
    end = NIGHT + 6 * HOUR
    regular = trigger.next_ms(NIGHT - delay - 1)
    for first, moved in (
        (None, None),
        (regular, None),
        (trigger.next_ms(NIGHT + HOUR), None),
        (NIGHT + 61 * MINUTE + 17, None),
        (NIGHT + 7_001, regular),
    ):
        schedule = Expected("a", trigger, first, delay, moved)
        expected = Counter((at - NIGHT) // MINUTE for at in fires(schedule, NIGHT, end))
        load = Load([schedule, Expected("other", parse_trigger("13 * * * *"))], NIGHT, end)

        found = Counter({at: runs for at, runs in enumerate(load.per_minute()) if runs})
        found.subtract({13 + 60 * hour: 1 for hour in range(6)})
        assert +found == expected, (first, moved)
        for minute in list(expected)[:3]:
            assert load.whose(NIGHT + minute * MINUTE)["a"] == expected[minute]


def test_all_of_them_together_are_the_sum() -> None:
    schedules = [
        Expected(f"{text}/{delay}", parse_trigger(text).bind("a", NIGHT - 5 * HOUR), None, delay)
        for text in TEXTS
        for delay in (0, 12_345_678)
    ]
    end = NIGHT + 6 * HOUR
    expected = Counter((at - NIGHT) // MINUTE for schedule in schedules for at in fires(schedule, NIGHT, end))
    load = Load(schedules, NIGHT, end)

    assert {at: runs for at, runs in enumerate(load.per_minute()) if runs} == expected
    assert (load.estimated, load.undelayed) == (0, 0)


# -- within bounds -------------------------------------------------------------------------------


def test_intervals_of_too_many_periods_are_counted_by_their_mean_rates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evenbeat.timeline.load._WORK", 0)
    monkeypatch.setattr("evenbeat.timeline.load._PERIODS", 2)

    schedules = [expected(str(ms), f"every {ms}ms", since=START - HOUR) for ms in (700, 800, 900, 1100)]
    load = Load(schedules, START, START + HOUR)
    assert load.estimated == 2
    exact = sum(schedule.trigger.count_ms(START, START + HOUR) for schedule in schedules)
    assert load.total() == pytest.approx(exact, rel=0.01)


def test_a_peak_is_named_without_unrolling_its_ticks() -> None:
    load = Load([expected(f"s{n}", "every 1ms") for n in range(1000)], START, START + 24 * HOUR)

    assert load.total() == 1000 * 24 * HOUR
    tracemalloc.start()
    try:
        (peak,) = load.peaks(60)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (peak.runs, len(peak.minutes), len(peak.members), len(peak.once)) == (60_000_000, 60, 1000, 0)
    assert most < 20_000_000


def test_minutes_with_the_same_schedules_are_one_peak() -> None:
    load = Load(
        [expected("a", "0 * * * *"), expected("b", "0 9 * * *"), expected("c", "* * * * *")],
        START,
        START + 3 * HOUR,
    )
    nine, full, rest = load.peaks(60)
    assert (nine.runs, nine.minutes) == (3, [START + HOUR])
    assert (full.runs, full.minutes) == (2, [START, START + 2 * HOUR])
    assert [load.schedules[at].id for at in full.members] == ["a", "c"]
    assert (rest.runs, len(rest.minutes)) == (1, 57)
