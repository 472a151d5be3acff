"""Durations: what may be written, what it means, what is refused and with which advice."""

from __future__ import annotations

import decimal
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import InvalidValue
from evenbeat.core.durations import LONGEST, Duration, is_duration, read_duration, write_duration
from tests.lengths import examples

SECOND, MINUTE, HOUR, DAY, WEEK = 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1ms", 1),
        ("1s", SECOND),
        ("1m", MINUTE),
        ("1h", HOUR),
        ("1d", DAY),
        ("1w", WEEK),
        ("90s", 90 * SECOND),
        ("1h30m", HOUR + 30 * MINUTE),
        ("1h 30m", HOUR + 30 * MINUTE),
        (" 1 h 30 m ", HOUR + 30 * MINUTE),
        ("30m1h", HOUR + 30 * MINUTE),
        ("1w2d3h4m5s6ms", WEEK + 2 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6),
        ("1.5h", 90 * MINUTE),
        ("0.5s", 500),
        ("0.001s", 1),
        ("1.25m", 75 * SECOND),
        ("2.000s", 2 * SECOND),
        ("007s", 7 * SECOND),
        ("1m30m", 31 * MINUTE),
        ("0s", 0),
        ("0ms", 0),
        ("36600d", LONGEST),
        (0, 0),
        (10, 10 * SECOND),
        (0.25, 250),
        (0.1, 100),
        (1.001, 1001),
        (1e3, 1000 * SECOND),
        (1e-3, 1),
        (-0.0, 0),
        (timedelta(0), 0),
        (timedelta(minutes=5), 5 * MINUTE),
        (timedelta(days=1, milliseconds=1), DAY + 1),
        (timedelta(weeks=2), 2 * WEEK),
    ],
)
def test_a_duration_is_read_to_the_millisecond(value: Duration, expected: int) -> None:
    assert read_duration(value, "timeout") == expected


ADVICE = 'write it like "10s", "5m", "1h30m" or "7d"'


@pytest.mark.parametrize(
    ("value", "problem", "hint"),
    [
        ("", '"" is not a duration', ADVICE),
        ("   ", '"   " is not a duration', ADVICE),
        ("x", '"x" is not a duration', ADVICE),
        ("10", '"10" is not a duration', 'give it a unit: "10s" or "10m"'),
        ("1m30", '"1m30" is not a duration', 'give it a unit: "30s" or "30m"'),
        ("5 minutes", '"5 minutes" is not a duration', 'write "5m"'),
        ("1 hour", '"1 hour" is not a duration', 'write "1h"'),
        ("10 Seconds", '"10 Seconds" is not a duration', 'write "10s"'),
        ("2 weeks", '"2 weeks" is not a duration', 'write "2w"'),
        ("30min", '"30min" is not a duration', 'write "30m"'),
        ("3 days", '"3 days" is not a duration', 'write "3d"'),
        ("1 month", '"1 month" is not a duration', "months and years vary in length: use cron for those"),
        ("2y", '"2y" is not a duration', "months and years vary in length: use cron for those"),
        ("1mo", '"1mo" is not a duration', "months and years vary in length: use cron for those"),
        ("-5m", '"-5m" is not a duration', "a duration can't be negative"),
        ("1h-5m", '"1h-5m" is not a duration', "a duration can't be negative"),
        ("+5m", '"+5m" is not a duration', ADVICE),
        ("5M", '"5M" is not a duration', ADVICE),
        ("1.s", '"1.s" is not a duration', ADVICE),
        (".5s", '".5s" is not a duration', ADVICE),
        ("1,5h", '"1,5h" is not a duration', ADVICE),
        ("1e3s", '"1e3s" is not a duration', ADVICE),
        ("٣s", '"٣s" is not a duration', ADVICE),
        ("1s\x00", '"1s\\x00" is not a duration', ADVICE),
        ("PT5M", '"PT5M" is not a duration', ADVICE),
        ("0.5ms", '"0.5ms" is finer than a millisecond', ADVICE),
        ("0.0001s", '"0.0001s" is finer than a millisecond', ADVICE),
        ("1." + "0" * 60 + "1s", '"1.' + "0" * 60 + '1s" is finer than a millisecond', ADVICE),
        ("36601d", '"36601d" is longer than 100 years', ADVICE),
        (0.0001, "0.0001 is finer than a millisecond", ADVICE),
        (timedelta(microseconds=1), "datetime.timedelta(microseconds=1) is finer than a millisecond", ADVICE),
        (-1, "-1 is negative", ADVICE),
        (-0.001, "-0.001 is negative", ADVICE),
        (timedelta(seconds=-1), "datetime.timedelta(days=-1, seconds=86399) is negative", ADVICE),
        (float("inf"), "inf is not a finite number", ADVICE),
        (float("nan"), "nan is not a finite number", ADVICE),
        (2**63, "9223372036854775808 is longer than 100 years", ADVICE),
        (1e300, "1e+300 is longer than 100 years", ADVICE),
        pytest.param(10**5000, "<int> is longer than 100 years", ADVICE, id="a number of 5000 digits"),
        pytest.param(-(10**5000), "<int> is negative", ADVICE, id="minus a number of 5000 digits"),
        (True, "True is not a duration", ADVICE),
        (None, "None is not a duration", ADVICE),
        (b"5m", "b'5m' is not a duration", ADVICE),
    ],
)
def test_a_value_that_is_not_a_duration_is_refused_with_a_hint(
    value: Duration, problem: str, hint: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_duration(value, "timeout")
    assert str(refused.value) == f"timeout {problem}; {hint}"
    assert refused.value.field == "timeout"
    assert refused.value.value == value or value != value
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "0s"),
        (1, "1ms"),
        (SECOND, "1s"),
        (90 * SECOND, "1m30s"),
        (90 * MINUTE, "1h30m"),
        (DAY, "1d"),
        (WEEK, "7d"),
        (DAY + HOUR + MINUTE + SECOND + 1, "1d1h1m1s1ms"),
        (DAY + 1, "1d1ms"),
        (LONGEST, "36600d"),
    ],
)
def test_a_duration_is_written_exactly(ms: int, expected: str) -> None:
    assert write_duration(ms) == expected


@given(ms=st.one_of(st.integers(0, LONGEST), st.integers(0, 10_000)))
@settings(max_examples=examples(500))
def test_a_written_value_is_read_back(ms: int) -> None:
    assert read_duration(write_duration(ms), "timeout") == ms
    assert read_duration(timedelta(milliseconds=ms), "timeout") == ms


@given(value=st.decimals(0, 10**6, places=3))
@settings(max_examples=examples(300))
def test_decimals_are_exact_as_text_and_as_number(value: decimal.Decimal) -> None:
    expected = int(value.scaleb(3))
    assert read_duration(f"{value}s", "timeout") == expected
    assert read_duration(float(value), "timeout") == expected


def test_the_decimal_context_of_the_application_does_not_matter() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        context.traps[decimal.Inexact] = True
        assert read_duration("90061.5s", "timeout") == 90_061_500
        assert read_duration(90061.5, "timeout") == 90_061_500
        assert read_duration(timedelta(days=9999, milliseconds=1), "timeout") == 9999 * DAY + 1


def test_a_text_is_a_duration_or_not() -> None:
    assert is_duration("10m")
    assert not is_duration("10")
    assert not is_duration("* * * * *")
