"""Every and At: fixed periods in phase with their start, and single instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from evenbeat import At, Every, InvalidValue, at, every, parse_trigger
from evenbeat.core.instants import FIRST, LAST, read_instant, to_ms, write_instant


def ms(text: str) -> int:
    return read_instant(f"2026-{text}:00Z", "moment")


def ticks(trigger: Every | At, after: str, count: int = 3) -> list[str]:
    """The next ticks in 2026, as ``01-31T12:00``."""
    found: list[str] = []
    tick = trigger.next_ms(ms(after))
    while tick is not None and len(found) < count:
        found.append(write_instant(tick)[5:16])
        tick = trigger.next_ms(tick)
    return found


# -- every ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # In phase with its start, wherever the question is asked from.
        (
            "every 10m start=2026-01-01T00:03:00Z",
            "01-01T00:00",
            ["01-01T00:03", "01-01T00:13", "01-01T00:23"],
        ),
        (
            "every 10m start=2026-01-01T00:03:00Z",
            "01-01T00:03",
            ["01-01T00:13", "01-01T00:23", "01-01T00:33"],
        ),
        (
            "every 10m start=2026-01-01T00:03:00Z",
            "01-01T00:04",
            ["01-01T00:13", "01-01T00:23", "01-01T00:33"],
        ),
        (
            "every 10m start=2026-01-01T00:03:00Z",
            "06-01T12:00",
            ["06-01T12:03", "06-01T12:13", "06-01T12:23"],
        ),
        # The start is the first tick: none comes before.
        ("every 1h start=2026-02-01T00:30:00Z", "01-01T00:00", ["02-01T00:30", "02-01T01:30", "02-01T02:30"]),
        # until is the last moment that counts.
        (
            "every 6h start=2026-01-01T00:00:00Z until=2026-01-01T12:00:00Z",
            "01-01T01:00",
            ["01-01T06:00", "01-01T12:00"],
        ),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T11:59:59Z", "01-01T01:00", ["01-01T06:00"]),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T12:00:00Z", "01-01T12:00", []),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T00:00:00Z", "01-01T00:00", []),
        # Without a start the phase is that of 1970: whole periods of the epoch.
        ("every 10m", "01-01T00:03", ["01-01T00:10", "01-01T00:20", "01-01T00:30"]),
        ("every 1d", "01-01T12:00", ["01-02T00:00", "01-03T00:00", "01-04T00:00"]),
        (
            "every 1w",
            "01-01T12:00",  # 1970 began on a Thursday
            ["01-08T00:00", "01-15T00:00", "01-22T00:00"],
        ),
        ("every 7h", "01-01T00:00", ["01-01T07:00", "01-01T14:00", "01-01T21:00"]),
        ("every 1h until=2026-01-01T02:00:00Z", "01-01T00:00", ["01-01T01:00", "01-01T02:00"]),
        # A day is 24 hours, whatever the clocks do.
        (
            "every 1d start=2026-03-07T02:30:00-05:00",
            "03-07T08:00",
            ["03-08T07:30", "03-09T07:30", "03-10T07:30"],
        ),
        # Once.
        ("every 0s start=2026-05-01T00:00:00Z", "01-01T00:00", ["05-01T00:00"]),
        ("every 0s start=2026-05-01T00:00:00Z", "05-01T00:00", []),
        ("every 0s start=2026-05-01T00:00:00Z until=2026-06-01T00:00:00Z", "01-01T00:00", ["05-01T00:00"]),
        ("at 2026-05-01T00:00:00Z", "01-01T00:00", ["05-01T00:00"]),
        ("at 2026-05-01T00:00:00Z", "05-01T00:00", []),
    ],
)
def test_the_next_ticks(text: str, after: str, expected: list[str]) -> None:
    trigger = parse_trigger(text)
    assert isinstance(trigger, Every | At)
    assert ticks(trigger, after) == expected


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ("every 10m start=2026-01-01T00:03:00Z", "01-01T00:23", "01-01T00:13"),
        ("every 10m start=2026-01-01T00:03:00Z", "01-01T00:24", "01-01T00:23"),
        ("every 10m start=2026-01-01T00:03:00Z", "01-01T00:04", "01-01T00:03"),
        ("every 10m start=2026-01-01T00:03:00Z", "01-01T00:03", None),
        ("every 10m start=2026-01-01T00:03:00Z", "01-01T00:00", None),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T13:00:00Z", "06-01T00:00", "01-01T12:00"),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T12:00:00Z", "06-01T00:00", "01-01T12:00"),
        ("every 6h start=2026-01-01T00:00:00Z until=2026-01-01T12:00:00Z", "01-01T12:00", "01-01T06:00"),
        ("every 1d", "01-01T12:00", "01-01T00:00"),
        ("every 1d", "01-02T00:00", "01-01T00:00"),
        ("every 0s start=2026-05-01T00:00:00Z", "05-01T00:01", "05-01T00:00"),
        ("every 0s start=2026-05-01T00:00:00Z", "05-01T00:00", None),
        ("every 0s start=2026-05-01T00:00:00Z until=2026-05-01T00:00:00Z", "06-01T00:00", "05-01T00:00"),
        ("at 2026-05-01T00:00:00Z", "05-01T00:01", "05-01T00:00"),
        ("at 2026-05-01T00:00:00Z", "05-01T00:00", None),
    ],
)
def test_the_tick_before(text: str, before: str, expected: str | None) -> None:
    tick = parse_trigger(text).prev_ms(ms(before))
    assert (None if tick is None else write_instant(tick)[5:16]) == expected


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        (90, 90_000),
        (0.25, 250),
        (timedelta(hours=6), 21_600_000),
        (timedelta(milliseconds=1), 1),
    ],
)
def test_a_period_is_a_text_a_timedelta_or_seconds(period: str | float | timedelta, expected: int) -> None:
    assert every(period) == Every(expected)


@pytest.mark.parametrize("period", [-1, -0.5, "-10s", timedelta(seconds=-1), timedelta(milliseconds=-1)])
def test_a_negative_period_is_refused(period: str | float | timedelta) -> None:
    with pytest.raises(InvalidValue, match="negative"):
        every(period, start="2026-01-01T00:00Z")


def test_a_period_of_zero_needs_a_start() -> None:
    for zero in (0, 0.0, "0s", timedelta(0)):
        with pytest.raises(InvalidValue) as refused:
            every(zero)
        assert refused.value.field == "start"
        assert every(zero, start="2026-01-01T00:00Z").next_ms(0) == ms("01-01T00:00")


def test_the_start_may_be_the_epoch_itself() -> None:
    trigger = every("10s", start=datetime(1970, 1, 1, tzinfo=UTC))
    assert trigger.start == 0
    assert trigger != every("10s")
    assert trigger.next_ms(-5) == 0
    assert trigger.prev_ms(1) == 0
    assert trigger.prev_ms(0) is None
    assert every("10s").prev_ms(0) == -10_000
    assert every(0, start=datetime(1970, 1, 1, tzinfo=UTC)).next_ms(-1) == 0


def test_the_start_may_be_before_1970() -> None:
    trigger = every("1h", start="1969-12-31T22:30Z")
    assert trigger.next_ms(-(10**10)) == -5_400_000
    assert trigger.next_ms(-5_400_000) == -1_800_000
    assert trigger.next_ms(0) == 1_800_000
    assert trigger.prev_ms(0) == -1_800_000


def test_until_may_be_the_moment_of_the_start_but_not_before() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    once = every("1h", start=moment, until=moment)
    assert [*once.between(moment, moment + timedelta(days=1))] == [moment]
    with pytest.raises(InvalidValue, match="is before start"):
        every("1h", start=moment, until=moment - timedelta(milliseconds=1))


def test_a_start_is_fixed_when_a_schedule_is_made_and_the_first_tick_is_a_period_away() -> None:
    since = ms("01-01T00:03")
    bound = every("10m").bind("report", since)
    assert ticks(bound, "01-01T00:03") == ["01-01T00:13", "01-01T00:23", "01-01T00:33"]
    assert bound.prev_ms(since + 1) is None
    assert bound.bind("report", since + 1) is bound
    fixed = every("10m", start="2026-01-01T00:00Z")
    assert fixed.bind("report", since) is fixed


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("01-01T01:03", ["01-01T01:03"]),  # the first tick is the last
        ("01-01T01:02", []),  # over before the first
        ("01-01T00:03", []),
        ("01-01T00:00", []),  # over before it was made
    ],
)
def test_an_interval_that_ends_before_its_first_tick_is_bound_and_never_ticks(
    until: str, expected: list[str]
) -> None:
    bound = every("1h", until=f"2026-{until}:00Z").bind("report", ms("01-01T00:03"))
    assert ticks(bound, "01-01T00:03") == expected
    assert parse_trigger(str(bound)) == bound
    assert bound.bind("report", ms("01-01T00:03")) == bound


def test_an_interval_bound_at_the_end_of_time_reads_back() -> None:
    bound = every("1h").bind("report", LAST)
    assert bound.next_ms(LAST) is None
    assert parse_trigger(str(bound)) == bound


def test_an_interval_without_a_start_has_no_beginning() -> None:
    day = 86_400_000
    assert every("1d").next_ms(FIRST - 1) == FIRST
    assert every("1d").prev_ms(LAST) == LAST // day * day
    assert every("1d").prev_ms(FIRST) is None
    assert every("1d").next_ms(LAST) is None


def test_datetimes_of_an_interval_are_given_in_utc() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))
    tick = every("1h", start=start).next(start)
    assert tick == datetime(2026, 1, 1, 4, tzinfo=UTC)
    assert tick.tzinfo is UTC


def test_periods_finer_than_a_second_keep_their_milliseconds() -> None:
    trigger = every("250ms", start="2026-01-01T00:00:00.100Z")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    found = [tick.microsecond for tick in trigger.between(begin, begin + timedelta(seconds=1))]
    assert found == [100_000, 350_000, 600_000, 850_000]


# -- at -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "tz", "expected"),
    [
        ("2026-03-01T09:00:00Z", None, "2026-03-01T09:00:00Z"),
        ("2026-03-01T09:00:00+01:00", None, "2026-03-01T08:00:00Z"),
        ("2026-03-01 09:00", "Europe/Berlin", "2026-03-01T08:00:00Z"),
        ("2026-03-01", "Europe/Berlin", "2026-02-28T23:00:00Z"),
        ("2026-03-01T09:00:00Z", "Europe/Berlin", "2026-03-01T09:00:00Z"),  # an offset decides
        ("2026-03-08 02:30", "America/New_York", "2026-03-08T07:00:00Z"),  # skipped: right after the gap
        ("2026-11-01 01:30", "America/New_York", "2026-11-01T05:30:00Z"),  # twice: the first pass
        ("2026-03-01T09:00:00.123456Z", None, "2026-03-01T09:00:00.123Z"),
        ("1969-07-20T20:17:40Z", None, "1969-07-20T20:17:40Z"),
    ],
)
def test_at_reads_a_text(moment: str, tz: str | None, expected: str) -> None:
    assert str(at(moment, tz=tz)) == f"at {expected}"


def test_at_reads_a_datetime() -> None:
    moment = datetime(2026, 3, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    assert at(moment) == at("2026-03-01T08:00:00Z") == At(to_ms(moment))
    assert at(moment, tz="Asia/Tokyo") == at(moment)


def test_at_ticks_once() -> None:
    moment = datetime(2026, 3, 1, 9, tzinfo=UTC)
    trigger = at(moment)
    assert trigger.next(moment - timedelta(days=99)) == moment
    assert trigger.next(moment) is None
    assert trigger.prev(moment) is None
    assert trigger.prev(moment + timedelta(days=99)) == moment
    assert list(trigger.between(moment, moment + timedelta(microseconds=1))) == [moment]
    assert list(trigger.between(moment - timedelta(1), moment)) == []
    assert trigger.bind("report", 0) is trigger
