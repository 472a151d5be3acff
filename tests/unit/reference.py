"""Cron by brute force: look at every minute, one after the other, and ask whether it is a tick.

Slow, and written to be checked by reading. It shares neither code nor ideas with evenbeat.triggers:
fields are sets of numbers, days are asked one by one, and zoneinfo says what the clock shows.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

NAMES = {
    "jan": 1,
    "feb": 2,
    "mar": 3,
    "apr": 4,
    "may": 5,
    "jun": 6,
    "jul": 7,
    "aug": 8,
    "sep": 9,
    "oct": 10,
    "nov": 11,
    "dec": 12,
    "sun": 0,
    "mon": 1,
    "tue": 2,
    "wed": 3,
    "thu": 4,
    "fri": 5,
    "sat": 6,
}
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
DAY = 86_400
MINUTE = timedelta(minutes=1)


class Rule(NamedTuple):
    seconds: list[int]
    minutes: set[int]
    hours: set[int]
    dates: list[str]
    months: set[int]
    weekdays: list[str]
    both: bool
    """The date and the weekday must match; otherwise either will do."""
    real_time: bool
    """A wildcard in hour or minute."""


@lru_cache(maxsize=4096)
def read(text: str, days: str = "either") -> Rule:
    """A valid cron text without H, taken apart."""
    fields = MACROS.get(text.lower(), text).lower().split()
    if len(fields) == 5:
        fields = ["0", *fields]
    second, minute, hour, dom, month, dow = fields
    return Rule(
        sorted(_numbers(second, 0, 59)),
        _numbers(minute, 0, 59),
        _numbers(hour, 0, 23),
        dom.split(","),
        _numbers(month, 1, 12),
        dow.split(","),
        both=days == "both" or dom[0] in "*?" or dow[0] in "*?",
        real_time=minute[0] == "*" or hour[0] == "*",
    )


def _numbers(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        found.update(_item_numbers(item, low, high))
    return found


def _item_numbers(item: str, low: int, high: int) -> list[int]:
    span, slash, step = item.partition("/")
    if span in ("*", "?"):
        members = list(range(low, high + 1))
    elif "-" in span:
        first, last = (_number(end) for end in span.split("-"))
        members = [first]
        while members[-1] != last:
            members.append(members[-1] + 1 if members[-1] < high else low)
    elif slash:
        members = list(range(_number(span), high + 1))
    else:
        members = [_number(span)]
    return members[:: int(step or 1)]


def _number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def day_matches(rule: Rule, day: date) -> bool:
    if day.month not in rule.months:
        return False
    by_date = any(_date_matches(item, day) for item in rule.dates)
    by_weekday = any(_weekday_matches(item, day) for item in rule.weekdays)
    return (by_date and by_weekday) if rule.both else (by_date or by_weekday)


def _date_matches(item: str, day: date) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    if item == "l":
        return day.day == length
    if item == "lw":
        return day.day == _working_days(day)[-1]
    if item.startswith("l-"):
        return day.day == length - int(item[2:])
    if item.endswith("w"):
        wanted = int(item[:-1])
        return wanted <= length and day.day == min(_working_days(day), key=lambda d: abs(d - wanted))
    return day.day in _item_numbers(item, 1, 31)


def _working_days(day: date) -> list[int]:
    """The days of the month, Monday to Friday."""
    length = calendar.monthrange(day.year, day.month)[1]
    return [number for number in range(1, length + 1) if day.replace(day=number).weekday() < 5]


def _weekday_matches(item: str, day: date) -> bool:
    weekday = day.isoweekday() % 7
    length = calendar.monthrange(day.year, day.month)[1]
    if item.endswith("l"):
        return _number(item[:-1]) % 7 == weekday and day.day + 7 > length
    if "#" in item:
        wanted, nth = item.split("#")
        return _number(wanted) % 7 == weekday and (day.day - 1) // 7 + 1 == int(nth)
    return weekday in _weekday_numbers(item)


def _weekday_numbers(item: str) -> set[int]:
    """0 and 7 are the same Sunday; a range may run through the end of the week."""
    span, slash, step = item.partition("/")
    if span in ("*", "?"):
        members = range(7)
    elif "-" in span:
        first, last = (_number(end) for end in span.split("-"))
        members = range(first, last + 1 if last >= first else last + 8)
    elif slash:
        members = range(_number(span), 8)
    else:
        members = range(_number(span), _number(span) + 1)
    return {number % 7 for number in members[:: int(step or 1)]}


class Minute(NamedTuple):
    """One minute of real time, and what the clock on the wall shows."""

    utc: int
    date: date
    hour: int
    minute: int
    passes: str
    """``only``, or ``first`` or ``second`` if the clock shows this time twice."""
    skipped: tuple[datetime, ...]
    """The minutes that the clock skipped right before this one."""


@cache
def minutes_of_day(key: str, day: int) -> tuple[Minute, ...]:
    """The 1440 minutes from a UTC midnight, counted in days from 1970."""
    zone = ZoneInfo(key)
    minutes = []
    last = datetime.fromtimestamp(day * DAY - 60, zone)
    for utc in range(day * DAY, (day + 1) * DAY, 60):
        now = datetime.fromtimestamp(utc, zone)
        passes = "only"
        if now.replace(fold=0).utcoffset() != now.replace(fold=1).utcoffset():
            passes = "second" if now.fold else "first"
        skipped = []
        label = last.replace(tzinfo=None) + MINUTE
        while label < now.replace(tzinfo=None):
            skipped.append(label)
            label += MINUTE
        minutes.append(Minute(utc, now.date(), now.hour, now.minute, passes, tuple(skipped)))
        assert now.second == 0, "the clock changed within a minute"
        last = now
    return tuple(minutes)


@cache
def dates_of_day(key: str, day: int) -> frozenset[date]:
    """The dates that the wall clock shows, or skips, during a UTC day."""
    minutes = minutes_of_day(key, day)
    return frozenset(m.date for m in minutes) | {label.date() for m in minutes for label in m.skipped}


_COUNTED = {"first": ("only", "first"), "last": ("only", "second"), "both": ("only", "first", "second")}


def ticks(
    text: str,
    key: str,
    begin: int,
    end: int,
    gap: str | None = None,
    repeat: str | None = None,
    days: str = "either",
) -> Iterator[int]:
    """The ticks in [begin, end), in UTC seconds."""
    rule = read(text, days)
    gap = gap or ("skip" if rule.real_time else "shift")
    repeat = repeat or ("both" if rule.real_time else "first")
    for day in range(begin // DAY, (end - 1) // DAY + 1):
        wanted = {date for date in dates_of_day(key, day) if day_matches(rule, date)}
        if not wanted:
            continue
        for minute in minutes_of_day(key, day):
            if minute.minute not in rule.minutes and not minute.skipped:
                continue
            for tick in _ticks_of_minute(rule, wanted, minute, gap, repeat):
                if begin <= tick < end:
                    yield tick


def _ticks_of_minute(rule: Rule, wanted: set[date], minute: Minute, gap: str, repeat: str) -> list[int]:
    found: set[int] = set()
    if minute.minute in rule.minutes and minute.hour in rule.hours and minute.date in wanted:
        if minute.passes in _COUNTED[repeat]:
            found.update(minute.utc + second for second in rule.seconds)
    if gap == "shift":
        for label in minute.skipped:
            if label.minute in rule.minutes and label.hour in rule.hours and label.date() in wanted:
                found.add(minute.utc)
    return sorted(found)


@cache
def transitions(key: str, first_year: int, last_year: int) -> tuple[int, ...]:
    """The seconds at which the clock changes, to the minute, found by looking at every day.

    No zone of these tests changes its clock and changes it back within a day.
    """
    zone = ZoneInfo(key)
    found = []
    begin = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    old = datetime.fromtimestamp(begin, zone).utcoffset()
    for day in range(begin, end, DAY):
        new = datetime.fromtimestamp(day + DAY, zone).utcoffset()
        if new != old:
            moment = day
            for step in (3600, 60):
                while datetime.fromtimestamp(moment + step, zone).utcoffset() == old:
                    moment += step
            found.append(moment + 60)
            old = new
    return tuple(found)
