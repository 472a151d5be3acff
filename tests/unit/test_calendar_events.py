"""Events of iCalendar files: repetitions as dateutil computes them, and the work that a file may cause."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from types import ModuleType
from typing import Any

import pytest
from dateutil import rrule
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import InvalidValue
from evenbeat.app.calendar_sources import Sources, compile_calendar
from evenbeat.core.calendars import LONGEST_ICS
from evenbeat.triggers.calendar_events import read_events
from evenbeat.triggers.recurrences import MOST_STEPS, Steps, TooManySteps, occurrences, read_recurrence
from evenbeat.triggers.time_sets import EPOCH_ORDINAL

FIRST, LAST = date(2025, 1, 1), date(2036, 12, 31)
TODAY = date(2026, 3, 1)
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


def numbers(low: int, high: int, *, back: bool = False) -> st.SearchStrategy[str]:
    one = st.integers(low, high)
    signed = st.tuples(st.sampled_from((1, -1)) if back else st.just(1), one).map(
        lambda pair: pair[0] * pair[1]
    )
    return st.lists(signed, min_size=1, max_size=4, unique=True).map(lambda some: ",".join(map(str, some)))


@st.composite
def rules(draw: st.DrawFn) -> str:
    period = draw(st.sampled_from(("YEARLY", "MONTHLY", "WEEKLY", "DAILY")))
    parts = [f"FREQ={period}"]
    optional = {
        "INTERVAL": st.integers(1, 40).map(str),
        "WKST": st.sampled_from(WEEKDAYS),
        "BYMONTH": numbers(1, 12),
        "BYMONTHDAY": numbers(1, 31, back=True),
        "BYYEARDAY": numbers(1, 366, back=True),
        "BYHOUR": numbers(0, 23),
        "BYMINUTE": numbers(0, 59),
        "BYSETPOS": numbers(1, 40, back=True),
    }
    if period == "YEARLY":
        optional["BYWEEKNO"] = numbers(1, 53, back=True)
    days = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=3, unique=True)
    if period in ("YEARLY", "MONTHLY") and draw(st.booleans()):
        # Of the same kind: RFC 5545 means any of them, dateutil takes "MO,1TU" for both at once.
        most = 5 if period == "MONTHLY" else 53
        counts = st.integers(1, most).map(lambda n: n if draw(st.booleans()) else -n)
        days = st.lists(
            st.tuples(counts, st.sampled_from(WEEKDAYS)).map(lambda p: f"{p[0]}{p[1]}"),
            min_size=1,
            max_size=3,
        )
    optional["BYDAY"] = days.map(",".join)
    for key in draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True)):
        parts.append(f"{key}={draw(optional[key])}")
    if draw(st.booleans()):
        parts.append(
            draw(st.sampled_from(("COUNT=1", "COUNT=17", "UNTIL=20300301", "UNTIL=20280229T101500")))
        )
    return ";".join(parts)


@pytest.fixture(scope="module")
def oracle() -> Iterator[Callable[..., Any]]:
    """dateutil, which stops looking in 2040 instead of 9999: rules that match nothing take it long."""
    until_2040 = ModuleType("datetime")
    vars(until_2040).update({**vars(dt), "MAXYEAR": 2040})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rrule, "datetime", until_2040)
        yield rrule.rrulestr


@settings(max_examples=400, deadline=None)
@given(rules(), st.datetimes(datetime(2020, 1, 1), datetime(2028, 12, 31)), st.integers(1, 900))
def test_repetitions_are_those_of_dateutil(
    oracle: Callable[..., Any], text: str, begin: datetime, days: int
) -> None:
    begin, last = begin.replace(microsecond=0), FIRST + timedelta(days)
    rule, until = read_recurrence(text), None
    if rule.until:
        until = datetime.strptime(rule.until, "%Y%m%dT%H%M%S" if "T" in rule.until else "%Y%m%d")
    found = list(occurrences(rule, begin, until, FIRST, last, Steps()))
    wanted = takewhile(lambda each: each.date() <= last, oracle(text, dtstart=begin))
    assert found == [each for each in wanted if each.date() >= FIRST]


def ics(*lines: str) -> str:
    return "\n".join(("BEGIN:VCALENDAR", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""))


def steps_of(text: str) -> int:
    """Read a file to its end, or until it is refused; return the steps that it took."""
    steps = Steps()
    with contextlib.suppress(TooManySteps):
        for _ in read_events(text, "UTC", FIRST, LAST, steps):
            pass
    return steps.taken


@pytest.mark.parametrize(
    "rule", ["FREQ=SECONDLY", "FREQ=MINUTELY;INTERVAL=1440", "FREQ=HOURLY", "FREQ=OFTEN"]
)
def test_repetitions_within_a_day_are_refused(rule: str) -> None:
    for start in ("DTSTART;VALUE=DATE:20260301", "DTSTART:20260301T090000Z"):
        with pytest.raises(InvalidValue, match="FREQ=") as refusal:
            compile_calendar(Sources(ics=ics(start, f"RRULE:{rule}")), TODAY)
        assert refusal.value.field == "ics"


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=WEEKLY;BYMONTHDAY=31;BYMONTH=4",
        "FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1",
        "FREQ=YEARLY;BYYEARDAY=366;BYMONTH=1;UNTIL=99991231",
        "FREQ=DAILY;INTERVAL=999999",
        "FREQ=YEARLY;INTERVAL=999999",
    ],
)
@pytest.mark.parametrize("year", [1, 1604, 2026, 9999])
def test_a_rule_that_never_matches_takes_no_longer_than_the_years_ahead(rule: str, year: int) -> None:
    text = ics(f"DTSTART;VALUE=DATE:{year:04}0630", f"RRULE:{rule}")
    assert steps_of(text) < 20 * 366


def test_the_work_of_a_file_is_bounded_whatever_it_repeats() -> None:
    everything = "BYHOUR={};BYMINUTE={};BYSECOND={}".format(
        *(",".join(map(str, range(most))) for most in (24, 60, 60))
    )
    never = ("DTSTART;VALUE=DATE:20260301", "RRULE:FREQ=DAILY;COUNT=999999;BYMONTHDAY=31;BYMONTH=4")
    events = ["BEGIN:VEVENT", *never, "END:VEVENT"] * 9_000
    for text in (
        ics("DTSTART:20260301T000000Z", f"RRULE:FREQ=DAILY;{everything}"),
        ics("DTSTART:20260301T000000Z", f"RRULE:FREQ=YEARLY;BYSETPOS=-1;BYDAY=MO;{everything}"),
        ics("DTSTART;VALUE=DATE:00010101", "RRULE:FREQ=DAILY;COUNT=999999"),
        "\n".join(("BEGIN:VCALENDAR", *events, "END:VCALENDAR", "")),
    ):
        assert len(text) <= LONGEST_ICS
        # The last take is the one that was refused.
        assert MOST_STEPS < steps_of(text) <= MOST_STEPS + 366 * 86_400
        with pytest.raises(InvalidValue, match="more than 500,000 days and times to look at"):
            compile_calendar(Sources(ics=text), TODAY)


def test_days_that_follow_each_other_for_long_are_refused() -> None:
    for length in ("DURATION:P999999D", "DURATION:P999999W", "DTEND;VALUE=DATE:99991231"):
        with pytest.raises(InvalidValue, match="more than 3,660"):
            compile_calendar(Sources(ics=ics("DTSTART;VALUE=DATE:20260301", length)), TODAY)
    with pytest.raises(InvalidValue, match="is not a duration"):
        compile_calendar(Sources(ics=ics("DTSTART;VALUE=DATE:20260301", f"DURATION:P{'9' * 4_000}D")), TODAY)
    many = ics("DTSTART;VALUE=DATE:20260301", "DURATION:P3000D", "RRULE:FREQ=DAILY")
    with pytest.raises(InvalidValue, match="more than 20,000 days"):
        compile_calendar(Sources(ics=many), TODAY)


def test_parts_may_be_nested_deeply_and_lines_may_be_long() -> None:
    depth = 20_000
    nested = ["BEGIN:X"] * depth + ["END:X"] * depth
    summary = "SUMMARY:" + "\n ".join(["x" * 60] * 5_000)
    made = compile_calendar(Sources(ics=ics(summary, "DTSTART;VALUE=DATE:20260301", *nested)), TODAY)
    assert made.times.days == (date(2026, 3, 1).toordinal() - EPOCH_ORDINAL,)


@pytest.mark.parametrize(
    ("lines", "days"),
    [
        (("DTSTART;VALUE=DATE:20260301", "RDATE;VALUE=DATE:20260303,20260305", "EXDATE:20260303"), [1, 5]),
        (("DTSTART;VALUE=DATE:20260301", "RRULE:FREQ=DAILY;UNTIL=20260303T000000Z"), [1, 2, 3]),
        (("DTSTART;VALUE=DATE:20260301", "RRULE:FREQ=WEEKLY;COUNT=2", "RRULE:FREQ=DAILY;COUNT=2"), [1, 2, 8]),
        (("DTSTART;VALUE=DATE:20260301", "DURATION:P1DT12H"), [1]),
        (("DTSTART;VALUE=DATE:20260301", "DURATION:P1W"), [1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_days_of_events(lines: tuple[str, ...], days: list[int]) -> None:
    found = compile_calendar(Sources(ics=ics(*lines)), TODAY).times.days
    assert [date.fromordinal(day + EPOCH_ORDINAL) for day in found] == [date(2026, 3, day) for day in days]


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", '"W. Europe Standard Time"', "/freeassociation.sourceforge.net/Europe/Berlin"]
)
def test_times_of_events_are_in_their_zone(zone: str) -> None:
    lines = (
        f"DTSTART;TZID={zone}:20260327T090000",
        f"DTEND;TZID={zone}:20260327T100000",
        "RRULE:FREQ=DAILY;UNTIL=20260330T070000Z",
    )
    spans = compile_calendar(Sources(ics=ics(*lines)), TODAY).times.spans
    # The clocks change on 29 March.
    wanted = [datetime(2026, 3, day, 8 if day < 29 else 7, tzinfo=UTC) for day in (27, 28, 29, 30)]
    assert [datetime.fromtimestamp(first, UTC) for first, _ in spans] == wanted
    assert {last - first for first, last in spans} == {3_600}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("SUMMARY:x",), "has no DTSTART"),
        (("DTSTART:yesterday",), "is not a date or a time"),
        (("DTSTART:20260230",), "day"),
        (("DTSTART;TZID=Mars/Base:20260301T090000",), "TZID 'Mars/Base' is not an IANA or Windows time zone"),
        (("DTSTART;VALUE=DATE",), "has no value"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;BYDAY=XX"), "BYDAY=XX is not a weekday"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;COUNT=0"), "COUNT=0 is not a number"),
        (("DTSTART:20260301", f"RRULE:FREQ=DAILY;COUNT={'9' * 5_000}"), "is not a number"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;BYMONTH=13"), "BYMONTH=13 is not from 1 to 12"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;BYEASTER=1"), "BYEASTER is not a part of RRULE"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;FREQ=DAILY"), "once for each key"),
        (("DTSTART:20260301", "RRULE:FREQ=DAILY;WKST=XX"), "WKST=XX is not a weekday"),
        (("DTSTART:20260301", "END:VALARM"), "ends no part"),
        (("DTSTART:20260301", "BEGIN:VALARM"), "ends no part"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidValue, match="can't be read as an iCalendar file") as refusal:
        compile_calendar(Sources(ics=ics(*lines)), TODAY)
    assert words in str(refusal.value)
