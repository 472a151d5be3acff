"""Events of iCalendar files: repetitions as dateutil computes them, and the work that a file may cause."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from types import FrameType, ModuleType
from typing import Any

import pytest
from dateutil import rrule
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenbeat import InvalidValue
from evenbeat.app.calendar_sources import Sources, compile_calendar
from evenbeat.core.calendars import LONGEST_ICS
from evenbeat.triggers import recurrences
from evenbeat.triggers.calendar_events import read_events
from evenbeat.triggers.recurrences import (
    MOST_STEPS,
    MOST_VALUES,
    Steps,
    TooManySteps,
    occurrences,
    read_recurrence,
)
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
    keys = draw(st.lists(st.sampled_from(sorted({*optional, "BYDAY"})), max_size=3, unique=True))
    days = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=3, unique=True)
    if period in ("YEARLY", "MONTHLY") and draw(st.booleans()):
        # Of the same kind: RFC 5545 means any of them, dateutil takes "MO,1TU" for both at once.
        # Within a month, dateutil fails with an IndexError beyond a few weeks.
        most = 53 if period == "YEARLY" and "BYMONTH" not in keys else 5
        counts = st.integers(1, most).map(lambda n: n if draw(st.booleans()) else -n)
        days = st.lists(
            st.tuples(counts, st.sampled_from(WEEKDAYS)).map(lambda p: f"{p[0]}{p[1]}"),
            min_size=1,
            max_size=3,
        )
    optional["BYDAY"] = days.map(",".join)
    for key in keys:
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
@example("FREQ=MONTHLY;BYMONTHDAY=29,-1", datetime(2027, 12, 31), 1_300)  # of a leap year
@example("FREQ=YEARLY;BYWEEKNO=1,53", datetime(2024, 12, 1), 900)  # of the weeks around New Year
@example("FREQ=MONTHLY;INTERVAL=7", datetime(2020, 1, 5), 900)
@example("FREQ=DAILY;COUNT=2", datetime(2025, 1, 1), 0)  # the last day is the first one
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
        with pytest.raises(InvalidValue, match="more than 500,000 values, days and times to look at"):
            compile_calendar(Sources(ics=text), TODAY)


def listed(low: int, high: int, *, back: bool = False) -> str:
    return ",".join(str(n * sign) for sign in ((1, -1) if back else (1,)) for n in range(low, high + 1))


ALL_NUMBERS = (
    f"BYMONTH={listed(1, 12)};BYMONTHDAY={listed(1, 31, back=True)};BYYEARDAY={listed(1, 366, back=True)};"
    f"BYWEEKNO={listed(1, 53, back=True)}"
)
ALL_POSITIONS = f"BYSETPOS={listed(1, 366, back=True)}"
ALL_WEEKDAYS = "BYDAY=" + ",".join(f"{n}{day}" for n in range(-53, 54) if n for day in WEEKDAYS)
SUNDAYS = "BYDAY=" + ",".join(["SU"] * MOST_VALUES)
ANCIENT = "DTSTART;VALUE=DATE:00010101"
HOSTILE = {
    "equal weekdays": ics(ANCIENT, f"RRULE:FREQ=DAILY;COUNT=999999;{SUNDAYS}"),
    "weekdays of a week": ics(ANCIENT, f"RRULE:FREQ=WEEKLY;COUNT=999999;{ALL_WEEKDAYS}"),
    "weekdays of a month": ics(ANCIENT, f"RRULE:FREQ=MONTHLY;COUNT=999999;{ALL_WEEKDAYS}"),
    "weekdays of a year": ics(ANCIENT, f"RRULE:FREQ=YEARLY;COUNT=999999;{ALL_WEEKDAYS}"),
    "weekdays that never come": ics(ANCIENT, f"RRULE:FREQ=YEARLY;COUNT=999999;{ALL_NUMBERS};BYDAY=99MO"),
    "positions": ics(ANCIENT, f"RRULE:FREQ=DAILY;COUNT=999999;{ALL_POSITIONS}"),
    "all parts": ics(ANCIENT, f"RRULE:FREQ=DAILY;COUNT=999999;{ALL_POSITIONS};{ALL_NUMBERS};{SUNDAYS}"),
    "rules": ics(ANCIENT, *["RRULE:FREQ=DAILY;COUNT=1"] * 20_000),
    "long rules": ics(ANCIENT, *[f"RRULE:FREQ=DAILY;COUNT=1;{SUNDAYS};{ALL_POSITIONS}"] * 100),
    "equal dates": ics(ANCIENT, "RDATE:" + ",".join(["20260301"] * 20_000)),
    "lists of dates": ics(ANCIENT, *["EXDATE:20260301"] * 20_000),
    "parameters": ics("DTSTART" + ";X=" * 20_000 + ":20260301"),
    "parts of a rule": ics(ANCIENT, "RRULE:" + "".join(f"X{n}=1;" for n in range(20_000))),
    "lines": ics(*["X:"] * 20_000, ANCIENT),
    "blank lines": ics(*[""] * 20_000, ANCIENT),
    "parts": ics(*["BEGIN:X", "END:X"] * 10_000, ANCIENT),
    "events": ics(*[ANCIENT, "END:VEVENT", "BEGIN:VEVENT"] * 7_000, ANCIENT),
}


def bytecodes(work: Callable[[], object]) -> int:
    """Return how many bytecodes Python executes for some work: unlike time, the same on each machine."""
    executed = 0

    def watch(frame: FrameType, event: str, _: object) -> Any:
        nonlocal executed
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        executed += event == "opcode"
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        work()
    finally:
        sys.settrace(before)
    return executed


@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_is_longer_than_others_whatever_a_file_lists(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Fewer steps, and so a quick test: the bytecodes for each of them are what counts.
    monkeypatch.setattr(recurrences, "MOST_STEPS", 5_000)
    text, taken = HOSTILE[name], 0

    def work() -> None:
        nonlocal taken
        taken = steps_of(text)

    executed = bytecodes(work)
    assert taken > 5_000
    # At most 330, for a day that all parts of a rule look at. A walk along 700 values takes thousands.
    assert executed < 500 * min(taken, 5_000)


def test_a_list_of_a_rule_may_name_each_value_but_not_one_of_them_thousands_of_times() -> None:
    rule = read_recurrence(f"FREQ=YEARLY;{ALL_WEEKDAYS};{ALL_NUMBERS};{ALL_POSITIONS}")
    assert (len(rule.weekdays), len(rule.of("BYYEARDAY")), len(rule.of("BYSETPOS"))) == (742, 732, 732)
    assert read_recurrence(f"FREQ=DAILY;{SUNDAYS}").weekdays == {(0, 6)}
    assert read_recurrence("FREQ=WEEKLY;BYDAY=1MO,-2MO,MO").weekdays == {(0, 0)}
    for key, value in (("BYDAY", "SU"), ("BYHOUR", "1"), ("BYSETPOS", "-1")):
        wanted = f"{key} lists 1,001 values, more than 1,000: name each value once"
        with pytest.raises(ValueError, match=wanted):
            read_recurrence(f"FREQ=DAILY;{key}=" + ",".join([value] * (MOST_VALUES + 1)))


def test_lines_values_and_days_of_all_events_share_one_bound() -> None:
    assert steps_of(ics("DTSTART:20260301")) == 5
    assert steps_of(ics("", "X:1;2,3", "DTSTART;VALUE=DATE:20260301")) == 8
    assert steps_of(ics("DTSTART:20260301", "RDATE:20260302,20260302,20260303")) == 8
    # One line, one semicolon and one comma more; then one time of a day, and three days.
    rule = "RRULE:FREQ=DAILY;COUNT=2;BYMONTH=3,4"
    assert steps_of(ics("DTSTART:20260301", rule)) == 5 + 4 + 1 + 3 + 3
    third = ics(ANCIENT, "RRULE:FREQ=DAILY;COUNT=170000")
    assert steps_of(third) < MOST_STEPS
    event = third.removeprefix("BEGIN:VCALENDAR\n").removesuffix("END:VCALENDAR\n")
    with pytest.raises(InvalidValue, match="takes too long to read") as refusal:
        compile_calendar(Sources(ics=f"BEGIN:VCALENDAR\n{event * 3}END:VCALENDAR\n"), TODAY)
    assert "give fewer events, and a recent DTSTART" in str(refusal.value)


@pytest.mark.parametrize("start", WEEKDAYS)
def test_the_first_days_of_year_1_are_in_weeks_too(start: str) -> None:
    def weeks(begin: datetime) -> list[int]:
        texts = {week: f"FREQ=DAILY;COUNT=1;BYWEEKNO={week};WKST={start}" for week in range(1, 54)}
        within = (begin, None, begin.date(), begin.date())
        return [
            week
            for week, text in texts.items()
            if list(occurrences(read_recurrence(text), *within, Steps())) == [begin]
        ]

    for day in range(1, 8):
        # Some are in a week of year 0, which no date has. Calendars repeat after 400 years.
        (found,) = weeks(datetime(1, 1, day))
        assert [found] == weeks(datetime(2001, 1, day))


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
        (("DTSTART;VALUE=DATE:20260301", "DTEND;VALUE=DATE:20260303"), [1, 2]),
        (("DTSTART;VALUE=DATE:20260301", "RRULE:FREQ=DAILY;COUNT=3", "EXDATE:20260302T120000Z"), [1, 2, 3]),
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
    ("lines", "seconds"),
    [
        (("DTSTART:20260301T090000Z", "DURATION:PT2H"), 7_200),
        (("DTSTART:20260301T090000Z", "DURATION:P1DT1H1M1S"), 90_061),
        (("DTSTART:20260301T090000Z",), 1),
        (("DTSTART:20260301T090000Z", "DURATION:-PT2H"), 1),
        # A leap second is the second before it.
        (("DTSTART:20260301T085960Z", "DTEND:20260301T090000Z"), 1),
        (("DTSTART:20260301T090000", "EXDATE:20260301T090001", "DTEND:20260301T090005"), 5),
    ],
)
def test_lengths_of_events(lines: tuple[str, ...], seconds: int) -> None:
    ((first, last),) = compile_calendar(Sources(ics=ics(*lines)), TODAY).times.spans
    assert last - first == seconds


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(InvalidValue, match="END:VCALENDAR ends no part"):
        compile_calendar(Sources(ics=ics("DTSTART:20260301") + "END:VCALENDAR\n"), TODAY)


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
