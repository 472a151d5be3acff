"""Times as texts and numbers."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.documents import time_formats
from evenbeat.documents.base import HELD_AT
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue

NOON: Instant = 1_794_744_000_000  # 2026-11-15T12:00:00Z

STYLES = [
    None,
    "soon",
    "",
    "2026-11-15",
    "2026-11-15 12:00",
    "2026-11-15 12:00:00",
    "2026-11-15T12:00:00.5Z",
    "2026-11-15T12:00:00z",
    "2026-11-15t12:00:00",
    "2026-11-15T13:00:00+01:00",
    "2026-11-15 06:30:00.1 -0530",
    "2026-11-15 13:00:00+01",
    b"2026-11-15T12:00:00",
    "2026-11-15T12:00:00+99:99",
    5,
    "1" * 200,
]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-15T12:00:00Z", NOON),
        ("2026-11-15T12:00:00z", NOON),
        ("2026-11-15t12:00:00", NOON),
        ("2026-11-15 12:00:00", NOON),
        (b"2026-11-15 12:00:00", NOON),
        (" 2026-11-15 12:00\n", NOON),
        ("2026-11-15", NOON - 12 * 3_600_000),
        ("2026-11-15T13:30:00+01:30", NOON),
        ("2026-11-15 13:00:00+01", NOON),
        ("2026-11-15 06:30:00.000 -0530", NOON),
        ("2026-11-15T12:00:00.1", NOON + 100),
        ("2026-11-15T12:00:00,123Z", NOON + 123),
        ("2026-11-15T12:00:00.123000000Z", NOON + 123),
        ("2026-11-15T12:00:00.123000000001Z", NOON + 124),
        ("2026-11-15T12:00:00.9991", NOON + 1000),
        ("1969-12-31 23:59:59.9999", 0),
        ("1969-12-31 23:59:59.998", -2),
    ],
)
def test_texts_are_read(text: str, instant: Instant) -> None:
    assert time_formats.read(text, "text") == instant


@pytest.mark.parametrize(
    ("value", "form", "instant"),
    [
        (1_794_744_000, "seconds", NOON),
        (1_794_744_000.123, "seconds", NOON + 123),
        (1_794_744_000.1231, "seconds", NOON + 124),
        ("1794744000.123", "seconds", NOON + 123),
        (b"1794744000", "seconds", NOON),
        ("1.794744e9", "seconds", NOON),
        ("1794744000." + "0" * 80 + "1", "seconds", NOON + 1),
        ("1e-90", "seconds", 1),
        (-0.0005, "seconds", 0),
        (NOON, "milliseconds", NOON),
        (float(NOON), "milliseconds", NOON),
        (NOON + 0.25, "milliseconds", NOON + 1),
        (str(NOON), "milliseconds", NOON),
        ("0", "milliseconds", 0),
        (0, "seconds", 0),
    ],
)
def test_numbers_are_read(value: object, form: TimeFormat, instant: Instant) -> None:
    assert time_formats.read(value, form) == instant


@pytest.mark.parametrize("form", ["text", "seconds", "milliseconds"])
@pytest.mark.parametrize("value", [None, "", b""])
def test_an_empty_value_has_no_time(value: object, form: TimeFormat) -> None:
    assert time_formats.read(value, form) is None


@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "now",
        "12:00:00",
        "2026-02-29",
        "2026-11-15T24:00:00",
        "2026-11-15T12:00:60",
        20261115,
        "2026-11-15T12:00:00+24:00",
        "2026-11-15T12:00:00+01:60",
        "0000-01-01",
        "10000-01-01",
        "0001-01-01",
        "9999-12-31T23:00:00",
        "2026-W46-7",
        "20261115T120000",
        "2026-11-15T12:00:00Z garbage",
        b"\xff",
        "٢٠٢٦-11-15",
        "2026-11-15T12:00:00." + "0" * 200,
        2460995.0,
        True,
        [],
        {"$date": 0},
    ],
)
def test_texts_that_are_not_times_are_refused(value: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        time_formats.read(value, "text", "wake_at")
    assert refused.value.field == "wake_at"


@pytest.mark.parametrize("form", ["seconds", "milliseconds"])
@pytest.mark.parametrize(
    "value",
    [
        "soon",
        "2026-11-15",
        float("nan"),
        float("inf"),
        "nan",
        "-Infinity",
        "1e999999999",
        10**30,
        -(10**30),
        "1" * 200,
        True,
        [],
        b"\xff",
        1e300,
    ],
)
def test_numbers_that_are_not_times_are_refused(value: object, form: TimeFormat) -> None:
    with pytest.raises(InvalidValue):
        time_formats.read(value, form)


@pytest.mark.parametrize(
    ("like", "whole", "broken"),
    [
        (None, "2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123Z"),
        ("soon", "2026-11-15T12:00:00Z", "2026-11-15T12:00:00.123Z"),
        ("2026-11-15", "2026-11-15 12:00:00", "2026-11-15 12:00:00.123"),
        ("2020-01-01 00:00:00", "2026-11-15 12:00:00", "2026-11-15 12:00:00.123"),
        (b"2020-01-01T00:00:00", "2026-11-15T12:00:00", "2026-11-15T12:00:00.123"),
        ("2020-01-01 00:00:00.5Z", "2026-11-15 12:00:00Z", "2026-11-15 12:00:00.123Z"),
        ("2020-01-01T00:00:00+01:00", "2026-11-15T13:00:00+01:00", "2026-11-15T13:00:00.123+01:00"),
        ("2020-01-01 00:00:00 -0530", "2026-11-15 06:30:00 -0530", "2026-11-15 06:30:00.123 -0530"),
    ],
)
def test_texts_are_written_in_the_style_of_the_old_one(like: object, whole: str, broken: str) -> None:
    assert time_formats.write(NOON, "text", like) == whole
    assert time_formats.write(NOON + 123, "text", like) == broken


def test_numbers_are_written_in_the_style_of_the_old_one() -> None:
    assert time_formats.write(NOON, "seconds") == NOON // 1000
    assert isinstance(time_formats.write(NOON, "seconds", 1.5), int)
    assert time_formats.write(NOON + 123, "seconds", 5) == 1_794_744_000.123
    assert time_formats.write(NOON + 123, "seconds", "5") == "1794744000.123"
    assert time_formats.write(NOON, "milliseconds", b"5") == str(NOON)
    assert time_formats.write(NOON, "milliseconds") == NOON


@example(HELD_AT)
@example(FIRST)
@example(LAST)
@example(-1)
@given(st.integers(FIRST, LAST))
def test_a_written_time_is_read_back(instant: Instant) -> None:
    for form in ("text", "seconds", "milliseconds"):
        for like in STYLES:
            written = time_formats.write(instant, form, like)
            assert time_formats.read(written, form) == instant
            # It keeps the style of the example, also after it was written once.
            assert time_formats.write(instant, form, written) == written


@given(st.floats(-62e9, 253e9))
def test_a_float_of_seconds_is_never_early_and_in_order(seconds: float) -> None:
    instant = time_formats.read(seconds, "seconds")
    assert instant is not None
    assert instant / 1000 >= seconds
    assert (instant - 1) / 1000 < seconds


def test_an_unknown_format_is_refused() -> None:
    assert time_formats.check("seconds") == "seconds"
    with pytest.raises(InvalidValue, match='times "minutes" is not one of text, seconds, milliseconds'):
        time_formats.check("minutes")
