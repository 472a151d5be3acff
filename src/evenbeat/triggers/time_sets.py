"""Sets of times: days, yearly days, weekly windows and spans, and the stretches that they make. Pure.

A trigger with calendars asks for the stretch around a tick: whether the tick is inside the set, and until
when that does not change. So it jumps over a holiday or a night in one step, however often it ticks.
Everything here counts in seconds; the edges of a set are whole seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import date
from typing import NamedTuple, TypeAlias

import msgspec

from evenbeat.triggers.zones import Zone

DAY, WEEK = 86_400, 604_800
YearDay: TypeAlias = tuple[int, int]
"""A month and a day of it."""
Span: TypeAlias = tuple[int, int]
"""From its start to before its end."""

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_MONDAY = 3  # 1970-01-01 was a Thursday: day + 3 is a multiple of 7 on Mondays
# No stretch is longer: a set without any more days is asked again after so many seconds.
_FAR = 400 * DAY
# A yearly 29 February comes within 8 years.
_LEAP_YEARS = 9


class TimeSet(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The times of a calendar: in any of its days, windows and spans, and not on a day that is taken out."""

    tz: str = ""
    """The zone of its days and windows; empty: that of the trigger."""
    days: tuple[int, ...] = ()
    """Local days since 1970-01-01, sorted."""
    yearly: tuple[YearDay, ...] = ()
    """Days of every year, sorted."""
    weekly: tuple[Span, ...] = ()
    """Windows in seconds since Monday, 00:00: sorted, apart from each other, within one week."""
    spans: tuple[Span, ...] = ()
    """Seconds since 1970-01-01T00:00:00Z: sorted, apart from each other."""
    without: tuple[int, ...] = ()
    """Local days that are taken out, sorted."""
    without_yearly: tuple[YearDay, ...] = ()


BUILT_IN = {
    "business-days": TimeSet(weekly=((0, 5 * DAY),)),
    "weekends": TimeSet(weekly=((5 * DAY, 7 * DAY),)),
}


class Stretch(NamedTuple):
    """Whether a second is inside a set, and until when that certainly does not change."""

    inside: bool
    until: int


class ZonedSet:
    """A set of times on the clock of a zone, ready to be asked."""

    __slots__ = ("_days", "_set", "_week_ends", "_week_starts", "_without", "_zone")

    def __init__(self, times: TimeSet, zone: Zone) -> None:
        self._set = times
        self._zone = zone
        self._days = _DaySet(times.days, times.yearly)
        self._without = _DaySet(times.without, times.without_yearly)
        self._week_starts = [start for start, _ in times.weekly]
        self._week_ends = [end for _, end in times.weekly]

    def stretch(self, second: int) -> Stretch:
        """Return whether ``second`` is inside, and until when that certainly holds."""
        _, hi, offset, _, _ = self._zone.window(second)
        label = second + offset
        day = label // DAY
        # The clock changes at hi: other labels follow.
        day_end = min((day + 1) * DAY - offset, hi)
        if self._without.has(day):
            return Stretch(False, day_end)
        inside, until = self._by_label(day, label)
        until = min(until - offset, hi)
        if not self._set.spans:
            return Stretch(inside, min(until, day_end) if inside and self._without else until)
        in_span, span_until = self._by_span(second)
        if inside and in_span:
            until = max(until, span_until)
        elif in_span:
            until = span_until
        elif not inside:
            until = min(until, span_until)
        inside = inside or in_span
        return Stretch(inside, min(until, day_end) if inside and self._without else until)

    def _by_label(self, day: int, label: int) -> Stretch:
        """Return the stretch of days and weekly windows around a time on the wall clock."""
        if self._days.has(day):
            return Stretch(True, (day + 1) * DAY)
        following = self._days.after(day)
        until = label + _FAR if following is None else min(label + _FAR, following * DAY)
        if not self._week_starts:
            return Stretch(False, until)
        monday = (day - (day + _MONDAY) % 7) * DAY
        index = bisect_right(self._week_starts, label - monday) - 1
        if index >= 0 and label - monday < self._week_ends[index]:
            return Stretch(True, monday + self._week_ends[index])
        if index + 1 < len(self._week_starts):
            return Stretch(False, min(until, monday + self._week_starts[index + 1]))
        return Stretch(False, min(until, monday + WEEK + self._week_starts[0]))

    def _by_span(self, second: int) -> Stretch:
        spans = self._set.spans
        index = bisect_right(spans, (second, 1 << 62)) - 1
        if index >= 0 and second < spans[index][1]:
            return Stretch(True, spans[index][1])
        following = spans[index + 1][0] if index + 1 < len(spans) else second + _FAR
        return Stretch(False, min(second + _FAR, following))


class _DaySet:
    """Single days and yearly ones."""

    __slots__ = ("_days", "_sorted", "_yearly")

    def __init__(self, days: tuple[int, ...], yearly: tuple[YearDay, ...]) -> None:
        self._sorted = days
        self._days = frozenset(days)
        self._yearly = yearly

    def __bool__(self) -> bool:
        return bool(self._sorted or self._yearly)

    def has(self, day: int) -> bool:
        if day in self._days:
            return True
        if not self._yearly:
            return False
        named = date.fromordinal(day + EPOCH_ORDINAL)
        return (named.month, named.day) in self._yearly

    def after(self, day: int) -> int | None:
        """Return the first day of the set after ``day``."""
        index = bisect_right(self._sorted, day)
        single = self._sorted[index] if index < len(self._sorted) else None
        if not self._yearly:
            return single
        yearly = self._yearly_after(date.fromordinal(day + EPOCH_ORDINAL))
        if single is None or yearly is None:
            return yearly if single is None else single
        return min(single, yearly)

    def _yearly_after(self, named: date) -> int | None:
        index = bisect_right(self._yearly, (named.month, named.day))
        for year in range(named.year, min(named.year + _LEAP_YEARS, 10_000)):
            for month, day in self._yearly[index:]:
                if (month, day) != (2, 29) or _is_leap(year):
                    return date(year, month, day).toordinal() - EPOCH_ORDINAL
            index = 0
        return None


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


class Admission:
    """The times that a trigger may tick at: inside all of ``only``, and inside none of ``skip``."""

    __slots__ = ("_only", "_skip")

    def __init__(self, only: tuple[ZonedSet, ...], skip: tuple[ZonedSet, ...]) -> None:
        self._only = only
        self._skip = skip

    def stretch(self, second: int) -> Stretch:
        """Return whether ``second`` is admitted, and until when that certainly holds."""
        admitted_until, refused_until = second + _FAR, second
        for times in self._only:
            inside, until = times.stretch(second)
            if inside:
                admitted_until = min(admitted_until, until)
            else:
                refused_until = max(refused_until, until)
        for times in self._skip:
            inside, until = times.stretch(second)
            if inside:
                refused_until = max(refused_until, until)
            else:
                admitted_until = min(admitted_until, until)
        return Stretch(False, refused_until) if refused_until > second else Stretch(True, admitted_until)

    def admits(self, second: int) -> bool:
        return self.stretch(second).inside

    def since(self, second: int, limit: int) -> int:
        """Return since when ``second`` has been admitted, or refused, without a break; ``limit`` if it has
        been so since before that."""
        state = self.stretch(second).inside
        back = DAY
        while True:
            start = max(limit, second - back)
            changed, cursor = start, start
            while cursor <= second:
                inside, until = self.stretch(cursor)
                if inside is not state:
                    changed = until
                cursor = until
            if changed > start or start == limit:
                return changed
            back *= 4


class PhasedAdmission(Admission):
    """The times of several admissions, each of which applies until a second; the last one after that."""

    __slots__ = ("earlier", "present")

    def __init__(self, earlier: tuple[tuple[int, Admission], ...], present: Admission) -> None:
        super().__init__((), ())
        self.earlier = earlier
        self.present = present

    def stretch(self, second: int) -> Stretch:
        for end, admission in self.earlier:
            if second < end:
                inside, until = admission.stretch(second)
                return Stretch(inside, min(until, end))
        return self.present.stretch(second)


def merged(spans: list[Span]) -> tuple[Span, ...]:
    """Return the spans sorted, those that overlap or touch as one, without empty ones."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)


def days_within(times: TimeSet, zone: Zone, first: int, last: int) -> list[tuple[int, tuple[Span, ...]]]:
    """Return the local days from ``first`` to ``last`` that have some of the set: each with its parts, in
    seconds since its midnight on the wall clock. A part of a repeated hour counts once."""
    placed = ZonedSet(times, zone)
    found: list[tuple[int, tuple[Span, ...]]] = []
    for day in range(first, last + 1):
        parts: list[Span] = []
        cursor = start_of_day(zone, day)
        end = start_of_day(zone, day + 1)
        while cursor < end:
            inside, until = placed.stretch(cursor)
            until = min(until, end)
            if inside:
                parts.append((_label(zone, cursor) - day * DAY, _label(zone, until - 1) + 1 - day * DAY))
            cursor = until
        if parts:
            found.append((day, merged(parts)))
    return found


def start_of_day(zone: Zone, day: int) -> int:
    """Return the first second of a local day; if the clock skips midnight, the first one after it."""
    return second_of(zone, day * DAY)


def second_of(zone: Zone, label: int, repeat: str = "first") -> int:
    """Return the second at which the wall clock shows ``label``: right after the gap if the clock skips it,
    the first or last pass if it shows it twice."""
    if zone.fixed is not None:
        return label - zone.fixed
    passes: list[int] = []
    after_gap: int | None = None
    window = zone.window(label - DAY)
    while window.lo <= label + DAY:
        second = label - window.offset
        if window.lo <= second < window.hi:
            passes.append(second)
        if window.offset > window.before and window.lo + window.before <= label < window.lo + window.offset:
            after_gap = window.lo
        window = zone.window(window.hi)
    if passes:
        return passes[-1] if repeat == "last" else passes[0]
    assert after_gap is not None, label
    return after_gap


def _label(zone: Zone, second: int) -> int:
    return second + zone.window(second).offset
