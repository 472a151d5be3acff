"""Instants: milliseconds inside, aware datetimes and ISO 8601 texts at the edges."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import InvalidValue
from evenbeat.core.instants import FIRST, LAST, from_ms, read_instant, to_ms, to_ms_up, write_instant
from tests.lengths import examples
from tests.unit import strategies

NEW_YORK = ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("moment", "down", "up"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0, 0),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000, 1000),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 0, 1),
        (datetime(1970, 1, 1, 0, 0, 0, 999, tzinfo=UTC), 0, 1),
        (datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC), 1, 1),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), -1, -1),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0, 0),
        # An offset may have microseconds of its own.
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), -1, 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=timezone(timedelta(microseconds=1))), 0, 0),
        # The same wall-clock time, before and after the clock goes back.
        (datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK), 1_793_511_000_000, 1_793_511_000_000),
        (datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=NEW_YORK), 1_793_514_600_000, 1_793_514_600_000),
    ],
)
def test_a_datetime_is_rounded_to_the_millisecond(moment: datetime, down: int, up: int) -> None:
    assert to_ms(moment) == down
    assert to_ms_up(moment) == up


@given(instant=strategies.instants, key=st.timezone_keys())
@settings(max_examples=examples(500))
def test_an_instant_survives_the_conversion_to_a_datetime_and_back(instant: int, key: str) -> None:
    moment = from_ms(instant, ZoneInfo(key))
    assert to_ms(moment) == to_ms_up(moment) == instant
    assert moment.utcoffset() is not None


@given(instant=strategies.instants)
@settings(max_examples=examples(300))
def test_a_written_value_is_read_back(instant: int) -> None:
    text = write_instant(instant)
    assert read_instant(text, "at") == instant
    assert text.endswith("Z")
    assert len(text) in (20, 24)


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_772_355_600_000, "2026-03-01T09:00:00Z"),
        (FIRST, "0001-01-02T00:00:00Z"),
        (LAST, "9999-12-30T23:59:59.999Z"),
    ],
)
def test_an_instant_is_written_in_utc(instant: int, expected: str) -> None:
    assert write_instant(instant) == expected


@pytest.mark.parametrize(
    ("text", "tz", "expected"),
    [
        ("2026-03-01T09:00:00Z", None, "2026-03-01T09:00:00Z"),
        ("2026-03-01T09:00Z", None, "2026-03-01T09:00:00Z"),
        ("2026-03-01 09:00:00+00:00", None, "2026-03-01T09:00:00Z"),
        ("  2026-03-01T09:00:00Z  ", None, "2026-03-01T09:00:00Z"),
        ("2026-03-01T09:00:00-05:00", None, "2026-03-01T14:00:00Z"),
        ("2026-03-01T09:00:00+05:30", None, "2026-03-01T03:30:00Z"),
        ("2026-03-01T09:00:00.5Z", None, "2026-03-01T09:00:00.500Z"),
        ("2026-03-01T09:00:00.123999Z", None, "2026-03-01T09:00:00.123Z"),
        ("20260301T090000Z", None, "2026-03-01T09:00:00Z"),
        ("2026-03-01", NEW_YORK, "2026-03-01T05:00:00Z"),
        ("2026-03-01T09:00", NEW_YORK, "2026-03-01T14:00:00Z"),
        ("2026-03-01T09:00Z", NEW_YORK, "2026-03-01T09:00:00Z"),
        ("2026-03-08T02:30", NEW_YORK, "2026-03-08T07:00:00Z"),
        ("2026-11-01T01:30", NEW_YORK, "2026-11-01T05:30:00Z"),
    ],
)
def test_a_text_is_read_as_iso_8601(text: str, tz: tzinfo | None, expected: str) -> None:
    assert write_instant(read_instant(text, "at", tz)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "tomorrow",
        "2026",
        "2026-13-01T00:00Z",
        "2026-02-30",
        "09:00",
        "1772355600",
        "2026-03-01T09:00:00Z and more",
        "2026-03-01T09:00:00Z" + " " * 100 + "x",
        "2026-03-01T09:00:00Zz",
        "2026-03-01T09:00:00+25:00",
        "\x00",
        "\ud800",
        "２０２６-03-01T09:00:00Z",
        "2026-03-01T09:00:61Z",
    ],
)
def test_a_text_that_is_not_a_date_and_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"start .* is not a date and time; write it as") as refused:
        read_instant(text, "start", UTC)
    assert refused.value.field == "start"


@pytest.mark.parametrize(
    "value",
    [
        "0001-01-01T00:00:00Z",
        "9999-12-31T00:00:00Z",
        "9999-12-31T23:59:59-12:00",
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
        datetime.max.replace(tzinfo=NEW_YORK),
    ],
)
def test_an_instant_outside_the_calendar_is_refused(value: datetime | str) -> None:
    with pytest.raises(InvalidValue, match="is outside the years 1 to 9999"):
        read_instant(value, "at")


def test_the_first_and_last_instants_can_be_shown_in_every_zone() -> None:
    for key in ("Pacific/Kiritimati", "Etc/GMT+12", "America/Adak", "Asia/Manila"):
        for instant in (FIRST, LAST):
            assert to_ms(from_ms(instant, ZoneInfo(key))) == instant
            assert read_instant(from_ms(instant, ZoneInfo(key)), "at") == instant


def test_naive_datetimes_are_refused_and_texts_without_offset_need_a_zone() -> None:
    naive = datetime(2026, 3, 1)
    calls: list[Callable[[], int]] = [
        lambda: to_ms(naive, "after"),
        lambda: to_ms_up(naive, "after"),
        lambda: read_instant(naive, "after"),
        lambda: read_instant(naive, "after", UTC),
        lambda: read_instant("2026-03-01T00:00", "after"),
    ]
    for call in calls:
        with pytest.raises(InvalidValue, match=r"after .*has no (offset|time zone)"):
            call()


class Lost(tzinfo):
    """A zone that does not know its offset, which makes a datetime naive."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str:
        return "lost"


def test_a_zone_without_an_offset_counts_as_none() -> None:
    with pytest.raises(InvalidValue, match="has no time zone"):
        to_ms(datetime(2026, 3, 1, tzinfo=Lost()))


@pytest.mark.parametrize("value", [5, None, date(2026, 3, 1), timedelta(1), 1.5])
def test_a_value_that_is_not_a_datetime_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="is neither a datetime nor a text"):
        read_instant(value, "at")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="is not a datetime"):
        to_ms(value)  # type: ignore[arg-type]
