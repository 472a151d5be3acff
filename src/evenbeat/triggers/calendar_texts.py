"""Days and weekly windows as people write them. Pure.

``2026-12-25``, ``2026-12-24..2026-12-31``, every year ``12-25`` or ``12-24..12-26``; ``mon-fri``,
``mon-fri 09:00-17:00``, ``sat,sun 22:00-06:00`` (over midnight).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from typing import NamedTuple

from evenbeat.errors import InvalidValue, shown
from evenbeat.triggers.time_sets import DAY, EPOCH_ORDINAL, WEEK, Span, YearDay, merged

MOST_DAYS = 20_000
"""The most days, and the most spans, of one calendar."""
MOST_NAMED = 100_000
"""The most days that the texts of one list name, counted again where ranges overlap."""
MOST_TEXTS = 10_000
DAY_HINT = 'write "2026-12-25", "2026-12-24..2026-12-31", or "12-25" for every year'
WEEK_HINT = 'write "mon-fri", "mon-fri 09:00-17:00" or "sat,sun 22:00-06:00"'

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_YEARLY = re.compile(r"(\d{2})-(\d{2})")
_WINDOW = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})")


class DayList(NamedTuple):
    """Days as numbers: single ones since 1970-01-01, and those of every year."""

    days: tuple[int, ...]
    yearly: tuple[YearDay, ...]


def read_days(texts: object, field: str) -> DayList:
    """Return the days of some texts or dates; refuse others, naming the text."""
    days: set[int] = set()
    yearly: set[YearDay] = set()
    named = 0
    for text in _listed(texts, field, "2026-12-25"):
        if isinstance(text, date) and not isinstance(text, datetime):
            days.add(text.toordinal() - EPOCH_ORDINAL)
            continue
        if not isinstance(text, str):
            raise _refused(field, text, "is not a day", DAY_HINT)
        first, separator, last = (part.strip() for part in text.partition(".."))
        if _YEARLY.fullmatch(first):
            found = _yearly(field, text, first, last if separator else first)
            yearly.update(found)
            named += len(found)
        else:
            begin = _day(field, text, first)
            end = _day(field, text, last) if separator else begin
            if end < begin:
                raise _refused(field, text, "ends before it begins", DAY_HINT)
            if end - begin >= MOST_DAYS:
                raise _refused(field, text, f"has more than {MOST_DAYS:,} days", "shorten it")
            days.update(range(begin, end + 1))
            named += end - begin
        if named > MOST_NAMED:
            words = f"is beyond the {MOST_NAMED:,} days that may be named"
            raise _refused(field, text, words, "leave out ranges that overlap")
        if len(days) > MOST_DAYS:
            raise _refused(field, text, f"is beyond the {MOST_DAYS:,} days of a calendar", "give fewer days")
    return DayList(tuple(sorted(days)), tuple(sorted(yearly)))


def read_weekly(texts: object, field: str = "weekly") -> tuple[Span, ...]:
    """Return the weekly windows of some texts, in seconds since Monday, 00:00."""
    spans: list[Span] = []
    for text in _listed(texts, field, "mon-fri 09:00-17:00"):
        words = text.lower().split() if isinstance(text, str) else []
        if not 1 <= len(words) <= 2:
            raise _refused(field, text, "is not a weekly window", WEEK_HINT)
        begin, end = _times(field, text, words[1]) if len(words) == 2 else (0, DAY)
        for day in _weekdays(field, text, words[0]):
            spans += _within_week(day * DAY + begin, day * DAY + end)
    return merged(spans)


def _within_week(start: int, end: int) -> list[Span]:
    """Return a window that may go beyond Sunday as parts of one week."""
    return [(start, end)] if end <= WEEK else [(start, WEEK), (0, end - WEEK)]


def _times(field: str, text: object, word: str) -> Span:
    found = _WINDOW.fullmatch(word)
    numbers = [int(number) for number in found.groups()] if found else []
    if not found or numbers[1] > 59 or numbers[3] > 59:
        raise _refused(field, text, "has no times like 09:00-17:00", WEEK_HINT)
    begin, end = numbers[0] * 3600 + numbers[1] * 60, numbers[2] * 3600 + numbers[3] * 60
    if begin >= DAY or end > DAY:
        raise _refused(field, text, "has a time that is not 00:00 to 24:00", WEEK_HINT)
    if begin == end:
        raise _refused(field, text, "is empty: it ends when it begins", "write the day alone for all of it")
    return begin, end if end > begin else end + DAY


def _weekdays(field: str, text: object, word: str) -> list[int]:
    found: list[int] = []
    for part in word.split(","):
        first, separator, last = part.partition("-")
        if first not in _WEEKDAYS or (separator and last not in _WEEKDAYS):
            wrong = last if first in _WEEKDAYS else first
            raise _refused(field, text, f"is not a weekly window: {shown(wrong)} is not a weekday", WEEK_HINT)
        begin = _WEEKDAYS.index(first)
        count = (_WEEKDAYS.index(last) - begin) % 7 + 1 if separator else 1
        found += [(begin + step) % 7 for step in range(count)]
    return found


def _yearly(field: str, text: str, first: str, last: str) -> list[YearDay]:
    if not _YEARLY.fullmatch(last):
        raise _refused(field, text, "is not a day", DAY_HINT)
    # In a leap year, so that 02-29 is a day.
    begin, end = (_day(field, text, f"2024-{part}") for part in (first, last))
    if end < begin:
        end += 366  # over New Year
    days = (date.fromordinal(day + EPOCH_ORDINAL) for day in range(begin, end + 1))
    return [(day.month, day.day) for day in days]


def _day(field: str, text: str, word: str) -> int:
    found = _DATE.fullmatch(word)
    try:
        if found is None:
            raise ValueError
        return date(*map(int, found.groups())).toordinal() - EPOCH_ORDINAL
    except ValueError:
        raise _refused(field, text, "is not a day", DAY_HINT) from None


def _listed(texts: object, field: str, example: str) -> list[object]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        entry = shown(texts if isinstance(texts, str) else example)
        raise _refused(field, texts, "is not a list", f"write {field}=[{entry}]")
    found = list(texts)
    if len(found) > MOST_TEXTS:
        raise InvalidValue(
            f"{field} has {len(found):,} entries, more than {MOST_TEXTS:,}",
            field=field,
            value=len(found),
            hint="write ranges: 2026-12-24..2026-12-31",
        )
    return found


def _refused(field: str, value: object, problem: str, hint: str) -> InvalidValue:
    return InvalidValue(f"{field} {shown(value)} {problem}", field=field, value=value, hint=hint)


def write_day(day: int) -> str:
    """Return the date of a day since 1970-01-01."""
    return date.fromordinal(day + EPOCH_ORDINAL).isoformat()
