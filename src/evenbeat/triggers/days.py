"""The days that match: day-of-month, month and day-of-week as bitsets, one month at a time.

A day is counted from 1970-01-01. Each field is one integer. Its low bits are plain values (bit d is
day d of the month, bit 0 of a week is Sunday), the bits above are the special tokens:

day of month  bit LAST + k: k days before the last day (``L``, ``L-3``)
              bit NEAR + d: the weekday, Mon-Fri, nearest to day d (``15W``); NEAR + 0: the last one (``LW``)
day of week   bit 7 * n + w: the nth weekday w of the month (``5#3``)
              bit FINAL + w: the last weekday w of the month (``5L``)
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache

import msgspec

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
ALL_DAYS = (1 << 32) - 2
ALL_MONTHS = (1 << 13) - 2
ALL_WEEKDAYS = (1 << 7) - 1
LAST = 32
NEAR = 64
FINAL = 42

_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LAST_YEAR = 9999
_THURSDAY = 4  # 1970-01-01
_FIRST_DAY = date(1, 1, 1).toordinal() - EPOCH_ORDINAL
# A 7-bit week times this is that week five times over, which covers a month.
_FIVE_WEEKS = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28
_WEEKEND_PULL = {6: (-1, 2), 0: (1, -2)}  # Saturday: Friday, else Monday. Sunday: Monday, else Friday.


def lowest(mask: int) -> int:
    """Return the index of the lowest set bit. ``mask`` is not 0."""
    return (mask & -mask).bit_length() - 1


def bits(mask: int) -> list[int]:
    """Return the indexes of the set bits, lowest first."""
    found = []
    while mask:
        found.append(lowest(mask))
        mask &= mask - 1
    return found


class Days(msgspec.Struct, frozen=True, cache_hash=True):
    """The day half of a cron expression."""

    dom: int
    months: int
    dow: int
    dom_star: bool
    dow_star: bool
    both: bool
    """Whether day-of-month and day-of-week must both match: always when either starts with ``*``."""

    @property
    def every_day(self) -> bool:
        all_dom, all_dow = self.dom == ALL_DAYS, self.dow == ALL_WEEKDAYS
        whole = (all_dom and all_dow) if self.both else (all_dom or all_dow)
        return whole and self.months == ALL_MONTHS

    def pattern(self, first: int, length: int) -> int:
        """Return the matching days of a month of ``length`` days whose day 1 is weekday ``first``."""
        by_date, week = self.dom, self.dow & ALL_WEEKDAYS
        by_week = ((week | week << 7) >> first & ALL_WEEKDAYS) * _FIVE_WEEKS << 1
        if by_date > ALL_DAYS:
            by_date |= self._special_dates(first, length)
        if self.dow > ALL_WEEKDAYS:
            by_week |= self._special_weekdays(first, length)
        matching = by_date & by_week if self.both else by_date | by_week
        return matching & (2 << length) - 2

    def _special_dates(self, first: int, length: int) -> int:
        found = 0
        for back in range(length):
            if self.dom >> LAST + back & 1:
                found |= 1 << length - back
        for day in range(length + 1):
            if self.dom >> NEAR + day & 1:
                found |= 1 << _nearest_weekday(day or length, first, length)
        return found

    def _special_weekdays(self, first: int, length: int) -> int:
        found = 0
        for weekday in range(7):
            day = 1 + (weekday - first) % 7
            for nth in range(1, 6):
                if self.dow >> 7 * nth + weekday & 1:
                    found |= 1 << day + 7 * (nth - 1)
            if self.dow >> FINAL + weekday & 1:
                found |= 1 << day + 7 * ((length - day) // 7)
        return found

    def rest_of_month(self, day: int) -> int:
        """Return the matching days from ``day`` to the end of its month; bit 0 is ``day`` itself."""
        at = date.fromordinal(day + EPOCH_ORDINAL)
        number = at.day
        return self._month(at.year, at.month, day - number + 1) >> number

    def after_month(self, day: int) -> int | None:
        """Return the first matching day after the month of ``day``."""
        at = date.fromordinal(day + EPOCH_ORDINAL)
        year, month = at.year, at.month
        while True:
            later = self.months >> month + 1
            if later:
                month += 1 + lowest(later)
            else:
                year, month = year + 1, lowest(self.months)
                if year > _LAST_YEAR:
                    return None
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = self._month(year, month, first)
            if days:
                return first + lowest(days) - 1

    def prev(self, day: int) -> int | None:
        """Return the last matching day at or before ``day``."""
        if day < _FIRST_DAY:
            return None
        at = date.fromordinal(day + EPOCH_ORDINAL)
        year, month = at.year, at.month
        first = day - at.day + 1
        days = self._month(year, month, first) & (2 << at.day) - 1
        while not days:
            earlier = self.months & (1 << month) - 1
            if earlier:
                month = earlier.bit_length() - 1
            else:
                year, month = year - 1, self.months.bit_length() - 1
                if year < 1:
                    return None
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = self._month(year, month, first)
        return first + days.bit_length() - 2

    def count(self, first: int, end: int) -> int:
        """Return how many days in [first, end) match. A month takes 1 us."""
        if first >= end:
            return 0
        at, last = date.fromordinal(first + EPOCH_ORDINAL), date.fromordinal(end - 1 + EPOCH_ORDINAL)
        year, month = at.year, at.month
        begin = first - at.day + 1
        total = -(self._month(year, month, begin) & (1 << at.day) - 1).bit_count()
        while (year, month) < (last.year, last.month):
            total += self._month(year, month, begin).bit_count()
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            begin = date(year, month, 1).toordinal() - EPOCH_ORDINAL
        return total + (self._month(year, month, begin) & (2 << last.day) - 1).bit_count()

    def _month(self, year: int, month: int, first: int) -> int:
        """Return the matching days of a month whose day 1 is the day ``first``."""
        if not self.months >> month & 1:
            return 0
        length = _LENGTHS[month]
        if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
            length = 29
        return _pattern(self, (first + _THURSDAY) % 7, length)

    def possible(self) -> bool:
        """Return whether any day of the Gregorian calendar matches.

        Exact: in its cycle of 400 years every month starts on each weekday, February with 28 and
        with 29 days.
        """
        return any(
            self.pattern(first, length)
            for month in range(1, 13)
            if self.months >> month & 1
            for length in ((28, 29) if month == 2 else (_LENGTHS[month],))
            for first in range(7)
        )


# A month is one of 28 kinds, which are cached: 0.1 us instead of 0.5 us.
@lru_cache(maxsize=1 << 14)
def _pattern(days: Days, first: int, length: int) -> int:
    return days.pattern(first, length)


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """Return the Mon-Fri day nearest to ``day``, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday not in _WEEKEND_PULL:
        return day
    near, far = _WEEKEND_PULL[weekday]
    return day + (near if 1 <= day + near <= length else far)
