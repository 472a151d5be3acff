"""Repetitions of calendar events: the rules (RRULE) of RFC 5545 with periods of a day or more. Pure.

A rule may name days that never come, or come millions of times. So ``occurrences`` looks at its days one
period after the other, within the range that is asked for, and counts each look: see ``Steps``. One look
takes the same time however long the lists of the rule are.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from itertools import count, product
from types import MappingProxyType
from typing import NamedTuple

MOST_STEPS = 500_000
"""How many lines, values, days and times of one file are looked at; about a second's work."""
MOST_VALUES = 1_000
"""Of one list in a rule. The longest one that names each value once, BYDAY of a year, has 749."""

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_PERIODS = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY")
_TOO_SHORT = ("HOURLY", "MINUTELY", "SECONDLY")
_NUMBERS = {
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYSETPOS": (1, 366, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
    "BYSECOND": (0, 59, False),
}
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NUMBER = re.compile(r"[+-]?[0-9]{1,6}")
_BYDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")


class TooManySteps(ValueError):
    """A file takes more work than MOST_STEPS."""


class Steps:
    """Counts the work of reading one file."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, number: int) -> None:
        """Count this many steps; raise TooManySteps beyond the bound."""
        self.taken += number
        if self.taken > MOST_STEPS:
            raise TooManySteps(
                f"its lines and repetitions have more than {MOST_STEPS:,} values, days and times to look at"
            )


class Recurrence(NamedTuple):
    """A rule by which an event repeats."""

    period: str
    interval: int = 1
    most: int | None = None
    """How many occurrences there are (COUNT)."""
    until: str = ""
    """As it was written: a date, or a time with or without a Z."""
    week_start: int = 0
    weekdays: frozenset[tuple[int, int]] = frozenset()
    """(n, weekday): each Monday is (0, 0), the last Friday (-1, 4). Within days and weeks, n is 0."""
    numbers: Mapping[str, frozenset[int]] = MappingProxyType({})

    def of(self, part: str) -> frozenset[int]:
        return self.numbers.get(part, frozenset())


def read_recurrence(text: str) -> Recurrence:
    """Return the rule of a text; ``ValueError`` says what is wrong with it."""
    parts: dict[str, str] = {}
    for part in text.strip().upper().rstrip(";").split(";"):
        key, _, value = part.partition("=")
        if key in parts or not value:
            raise ValueError(f"the part {part[:40]} of RRULE is not KEY=VALUE, once for each key")
        parts[key] = value
    period = parts.pop("FREQ", "")
    if period in _TOO_SHORT:
        raise ValueError(f"FREQ={period} repeats within a day; use weekly windows for times of the day")
    if period not in _PERIODS:
        raise ValueError(f"FREQ={period[:40]} is not one of {', '.join(_PERIODS)}")
    start = parts.pop("WKST", "MO")
    if start not in _WEEKDAYS:
        raise ValueError(f"WKST={start[:40]} is not a weekday")
    interval = _whole(parts.pop("INTERVAL", "1"), "INTERVAL")
    times = _whole(parts.pop("COUNT"), "COUNT") if "COUNT" in parts else None
    until = parts.pop("UNTIL", "")
    counts = period in ("MONTHLY", "YEARLY")
    days = _values("BYDAY", parts.pop("BYDAY")) if "BYDAY" in parts else []
    weekdays = frozenset(_weekday(each, counts) for each in days if each)
    unknown = next((key for key in parts if key not in _NUMBERS), None)
    if unknown is not None:
        raise ValueError(f"{unknown[:40]} is not a part of RRULE")
    numbers = {key: _numbers(key, value) for key, value in parts.items()}
    return Recurrence(period, interval, times, until, _WEEKDAYS.index(start), weekdays, numbers)


def _whole(text: str, key: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise ValueError(f"{key}={text[:40]} is not a number from 1 to 999999")
    return int(text)


def _values(key: str, text: str) -> list[str]:
    number = text.count(",") + 1
    if number > MOST_VALUES:
        raise ValueError(f"{key} lists {number:,} values, more than {MOST_VALUES:,}: name each value once")
    return text.split(",")


def _numbers(key: str, text: str) -> frozenset[int]:
    low, high, may_count_back = _NUMBERS[key]
    found = set()
    for each in _values(key, text):
        number = int(each) if _NUMBER.fullmatch(each) else None
        if number is None or not low <= (abs(number) if may_count_back else number) <= high:
            raise ValueError(f"{key}={each[:40]} is not from {low} to {high}")
        found.add(number)
    return frozenset(found)


def _weekday(text: str, counts: bool) -> tuple[int, int]:
    found = _BYDAY.fullmatch(text)
    if found is None:
        raise ValueError(f"BYDAY={text[:40]} is not a weekday such as MO or -1FR")
    return int(found[1] or 0) if counts else 0, _WEEKDAYS.index(found[2])


def occurrences(
    rule: Recurrence, begin: datetime, until: datetime | None, first: date, last: date, steps: Steps
) -> Iterator[datetime]:
    """Yield when an event repeats that begins at ``begin``, from the day ``first`` to ``last``: wall-clock
    times without a zone, in order. It is not an occurrence itself unless the rule names its day."""
    rule = _with_defaults(rule, begin)
    parts = (("BYHOUR", begin.hour), ("BYMINUTE", begin.minute), ("BYSECOND", begin.second))
    chosen = [sorted(rule.of(part) or {default}) for part, default in parts]
    steps.take(len(chosen[0]) * len(chosen[1]) * len(chosen[2]))
    times = [time(hour, minute, second) for hour, minute, second in product(*chosen)]
    positions = rule.of("BYSETPOS")
    left = rule.most
    for days in _periods(rule, begin.toordinal(), first.toordinal(), last.toordinal()):
        steps.take(len(days))
        matching = [day for day in map(date.fromordinal, days) if _matches(rule, day)]
        steps.take(len(matching) * len(times))
        found = [datetime.combine(day, each) for day in matching for each in times]
        if positions:
            # One look for each time, which counted above: a rule may list hundreds of positions.
            end = len(found)
            found = [each for at, each in enumerate(found) if at + 1 in positions or at - end in positions]
        for each in found:
            if each < begin:
                continue
            if (until is not None and each > until) or each.date() > last or left == 0:
                return
            left = None if left is None else left - 1
            if each.date() >= first:
                yield each


def _with_defaults(rule: Recurrence, begin: datetime) -> Recurrence:
    """Return the rule with the day of the event where it names none."""
    if rule.weekdays or any(rule.of(part) for part in ("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO")):
        return rule
    if rule.period == "WEEKLY":
        return rule._replace(weekdays=frozenset(((0, begin.weekday()),)))
    numbers = dict(rule.numbers)
    if rule.period in ("YEARLY", "MONTHLY"):
        numbers["BYMONTHDAY"] = frozenset((begin.day,))
    if rule.period == "YEARLY":
        numbers.setdefault("BYMONTH", frozenset((begin.month,)))
    return rule._replace(numbers=numbers)


def _periods(rule: Recurrence, begin: int, first: int, last: int) -> Iterator[Sequence[int]]:
    """Yield the days of each period, as ordinals, until one begins after ``last``.

    Periods before ``first`` are left out, unless the rule counts its occurrences.
    """
    day = date.fromordinal(begin)
    if rule.most is not None:
        first = begin
    ahead = max(begin, first)
    start = begin - (day.weekday() - rule.week_start) % 7
    month = day.year * 12 + day.month - 1
    until = date.fromordinal(ahead)
    passed = {
        "DAILY": ahead - begin,
        "WEEKLY": (ahead - start) // 7,
        "MONTHLY": until.year * 12 + until.month - 1 - month,
        "YEARLY": until.year - day.year,
    }[rule.period]
    for number in count(passed // rule.interval * rule.interval, rule.interval):
        days: Sequence[int]
        if rule.period == "DAILY":
            days = range(begin + number, begin + number + 1)
        elif rule.period == "WEEKLY":
            days = range(max(1, start + 7 * number), start + 7 * number + 7)
        elif rule.period == "MONTHLY":
            year, at = divmod(month + number, 12)
            days = range(0) if year > last // 365 + 1 else _days_of_month(year, at + 1)
        else:
            year = day.year + number
            days = range(0) if year > last // 365 + 1 else _days_of_year(year, rule.of("BYMONTH"))
        if not days or days[0] > last:
            return
        yield days


def _days_of_month(year: int, month: int) -> range:
    first = date(year, month, 1).toordinal()
    return range(first, first + _length_of_month(year, month))


def _length_of_month(year: int, month: int) -> int:
    return _LENGTHS[month] + (month == 2 and isleap(year))


def _days_of_year(year: int, months: frozenset[int]) -> list[int]:
    """Return the days of the months, or of all months."""
    return [day for month in sorted(months or range(1, 13)) for day in _days_of_month(year, month)]


def _matches(rule: Recurrence, day: date) -> bool:
    numbers = rule.numbers
    if (months := numbers.get("BYMONTH")) and day.month not in months:
        return False
    if among := numbers.get("BYMONTHDAY"):
        length = _length_of_month(day.year, day.month)
        if day.day not in among and day.day - length - 1 not in among:
            return False
    if among := numbers.get("BYYEARDAY"):
        place, length = _place_in_year(day)
        if place not in among and place - length - 1 not in among:
            return False
    if among := numbers.get("BYWEEKNO"):
        number, weeks = _week(day, rule.week_start)
        if number not in among and number - weeks - 1 not in among:
            return False
    return not rule.weekdays or _is_weekday(rule, day)


def _is_weekday(rule: Recurrence, day: date) -> bool:
    """Return whether BYDAY names the day. Three lookups, whatever it lists."""
    weekday, listed = day.weekday(), rule.weekdays
    if (0, weekday) in listed:
        return True
    if rule.period == "MONTHLY" or (rule.period == "YEARLY" and rule.of("BYMONTH")):
        place, length = day.day, _length_of_month(day.year, day.month)
    elif rule.period == "YEARLY":
        place, length = _place_in_year(day)
    else:
        return False
    return ((place - 1) // 7 + 1, weekday) in listed or (-((length - place) // 7 + 1), weekday) in listed


def _place_in_year(day: date) -> tuple[int, int]:
    return day.toordinal() - date(day.year, 1, 1).toordinal() + 1, 365 + isleap(day.year)


def _week(day: date, week_start: int) -> tuple[int, int]:
    """Return the number of a day's week, and how many weeks the year of that week has. The first week has at
    least four days of its year."""
    for year in (day.year + 1, day.year, day.year - 1):
        first = _first_week(year, week_start)
        if day.toordinal() >= first:
            weeks = (_first_week(year + 1, week_start) - first) // 7
            return (day.toordinal() - first) // 7 + 1, weeks
    raise AssertionError("a day is in a week")


def _first_week(year: int, week_start: int) -> int:
    """Return the first day of a year's first week, as an ordinal; in year 0, which no date has, below 1."""
    before = year - 1
    fourth = before * 365 + before // 4 - before // 100 + before // 400 + 4
    # The ordinal 1 is a Monday.
    return fourth - (fourth - 1 - week_start) % 7
