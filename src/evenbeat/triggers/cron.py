"""Cron: an expression on the wall clock of a zone, with a rule for clock changes.

Windows of constant offset (zones.py) turn the problem into integer arithmetic: within a window,
wall clock and UTC differ by a constant. What happens at its edges is the rule:

- the clock goes forward: the labels in the gap do not exist. ``gap="shift"`` gives one tick right
  after the gap if any of them matches, ``gap="skip"`` none;
- the clock goes back: some labels come twice. ``repeat`` says which pass counts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any, Literal

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms, read_instant, to_ms, write_instant
from evenbeat.errors import InvalidTrigger, InvalidValue, shown
from evenbeat.triggers.base import Trigger, check_text
from evenbeat.triggers.calendar_moves import Move
from evenbeat.triggers.calendar_options import with_calendars
from evenbeat.triggers.calendared import Calendared
from evenbeat.triggers.every import Every, every, read_every_macro
from evenbeat.triggers.expression import Expression, parse_expression
from evenbeat.triggers.fields import HOUR
from evenbeat.triggers.words import clock, explain_bounds, explain_expression
from evenbeat.triggers.zones import CALM_MARGIN, SETTLED, Zone, read_zone

Gap = Literal["shift", "skip"]
Repeat = Literal["first", "last", "both"]
DayFields = Literal["either", "both"]

# Once rules are settled, a year's clock changes follow from its calendar, and 40 years have all
# fourteen of those.
_ALL_CALENDARS: Instant = 5_364_662_400_000  # 2140-01-01T00:00:00Z

_TWO_DAYS = 172_800
# No expression that matches at all waits longer for its day: 29 February on a given weekday, across 2100.
_LONGEST_WAIT = 41 * 366 * 86_400
# No zone that keeps changing its clock skips more than two hours (Antarctica/Troll does).
_MOST_HOURS_SKIPPED = 3

_GAP_WORDS = {"shift": "runs right after", "skip": "does not run"}
_REPEAT_WORDS = {
    "first": "one that it repeats runs the first time",
    "last": "one that it repeats runs the second time",
    "both": "one that it repeats runs twice",
}
_DAY_FIELDS = ("either", "both")


class Cron(Trigger, frozen=True, cache_hash=True):
    """A trigger with ticks at the wall-clock times that a cron expression matches. ``cron(…)`` makes it."""

    expression: Expression
    zone: Zone
    gap: Gap
    repeat: Repeat
    start: Instant | None = None
    until: Instant | None = None

    @property
    def tzinfo(self) -> tzinfo:
        return self.zone.info

    def next(self, after: datetime) -> datetime | None:
        # Cron ticks are whole seconds: this takes a third less time than the base class.
        tick = self.next_ms(to_ms(after, "after"))
        return None if tick is None else datetime.fromtimestamp(tick // 1000, self.zone.info)

    def next_ms(self, after: Instant) -> Instant | None:
        if self.start is not None and after < self.start:
            after = self.start - 1
        if after >= LAST:
            return None
        if after < FIRST:
            after = FIRST - 1
        second = after // 1000 + 1
        expression = self.expression
        lo, hi, offset = self.zone.calm
        if expression.any_day_on_the_minute and lo <= second < hi - _TWO_DAYS:
            # Most schedules end here: 0.5 to 0.7 us, instead of 0.9 us by the general way.
            minute = (second + offset + 59) // 60
            minutes = expression.minutes >> minute % 60
            if minutes and expression.hours >> minute // 60 % 24 & 1:
                minute += (minutes & -minutes).bit_length() - 1
            else:
                minute = _in_a_later_hour(expression, minute)
            tick: int | None = minute * 60 - offset
        else:
            tick = self._next(second)
        if tick is None or tick * 1000 > (LAST if self.until is None else self.until):
            return None
        return tick * 1000

    def _next(self, second: int) -> int | None:
        """Return the first tick at or after ``second``, in seconds."""
        expression, zone = self.expression, self.zone
        lo, hi, offset = zone.calm
        if not lo <= second < hi:
            lo, hi, offset = zone.calm_around(second)
            if not lo <= second < hi:
                return self._next_by_window(second)
        label = expression.at_or_after(second + offset)
        if label is None or label - offset < hi:
            return None if label is None else label - offset
        # Nothing matches before label; try the stretch that it lies in before going step by step.
        lo, hi, offset = zone.calm_around(label - offset)
        if lo <= label - offset < hi:
            return label - offset
        return self._next_by_window(max(second, label - CALM_MARGIN))

    def _next_by_window(self, second: int) -> int | None:
        """Return the first tick at or after ``second``, in seconds."""
        expression = self.expression
        last = (LAST if self.until is None else self.until) // 1000
        # A clock that skips all matching times of these years skips those of all later years.
        last = min(last, max(second, SETTLED) + _LONGEST_WAIT)
        while second <= last:
            lo, hi, offset, before, after = self.zone.window(second)
            begin = second
            if offset > before:
                if second == lo and self.gap == "shift":
                    label = expression.at_or_after(lo + before)
                    if label is not None and label < lo + offset:
                        return lo
            elif offset < before and self.repeat == "first" and begin < lo + before - offset:
                begin = lo + before - offset
            end = hi
            if after < offset and self.repeat == "last":
                end = hi - (offset - after)
            label = expression.at_or_after(begin + offset)
            if label is not None and label - offset < end:
                return label - offset
            if begin + offset > hi + after:
                # The clock goes back over labels that this search started after: they come again.
                second = hi
            elif label is None:
                return None
            else:
                second = max(hi, label - CALM_MARGIN)
        return None

    def prev_ms(self, before: Instant) -> Instant | None:
        if self.until is not None and before > self.until:
            before = self.until + 1
        if before <= FIRST:
            return None
        second = (min(before, LAST) - 1) // 1000
        tick = self._prev_by_window(second)
        if tick is None or tick * 1000 < (FIRST if self.start is None else self.start):
            return None
        return tick * 1000

    def _prev_by_window(self, second: int) -> int | None:
        """Return the last tick at or before ``second``, in seconds."""
        expression = self.expression
        first = (FIRST if self.start is None else self.start) // 1000
        searched = second - _LONGEST_WAIT
        while second >= first:
            if SETTLED < second < searched:
                second = SETTLED  # the clock skips all matching times of these years, and of those between
            lo, hi, offset, before, after = self.zone.window(second)
            begin, end = lo, second
            if offset < before and self.repeat == "first":
                begin = lo + before - offset
            if after < offset and self.repeat == "last":
                end = min(end, hi - (offset - after) - 1)
            label = expression.at_or_before(end + offset)
            if label is not None and label - offset >= begin:
                return label - offset
            if offset > before and self.gap == "shift" and label is not None and label >= lo + before:
                return lo
            if end + offset < lo + before:
                # The clock went back at lo over labels that this search did not reach yet.
                second = lo - 1
            elif label is None:
                return None
            else:
                second = min(lo - 1, label + CALM_MARGIN)
        return None

    def count_ms(self, start: Instant, end: Instant) -> int:
        start = max(start, FIRST if self.start is None else self.start)
        end = min(end, (LAST if self.until is None else self.until) + 1)
        # The first and the last whole second inside.
        second, stop = -(-start // 1000), -(-end // 1000)
        total = 0
        while second < stop:
            window = self.zone.window(second)
            lo, hi, offset, before, _ = window
            begin, until = window.counted(self.repeat)
            total += self.expression.count(max(begin, second) + offset, min(until, stop) + offset)
            if second == lo and offset > before and self.gap == "shift":
                # One tick for all the labels of the gap, unless there is one right after it anyway.
                missing = self.expression.count(lo + before, lo + offset)
                total += int(missing > 0 and self.expression.at_or_after(lo + offset) != lo + offset)
            second = hi
        return total

    def explain(self) -> str:
        words = f"{explain_expression(self.expression)} ({self.zone.key})"
        words += explain_bounds(self.start, self.until, self.zone.info)
        if self.expression.hashed:
            words += "; H is chosen by the schedule's name"
        if not self.zone.keeps_changing:
            return words
        if (self.gap, self.repeat) == ("skip", "both") and self.expression.hours == HOUR.full:
            return f"{words}; follows real time when the clock changes"
        if (self.gap, self.repeat) == ("shift", "first"):
            return f"{words}; a time that the clock skips or repeats runs once"
        return f"{words}; a time that the clock skips {_GAP_WORDS[self.gap]}, {_REPEAT_WORDS[self.repeat]}"

    def note(self, tick: Instant) -> str | None:
        """Return the effect of a clock change on this tick, in words; None without one."""
        if self.zone.fixed is not None:
            return None
        second = tick // 1000
        lo, hi, offset, before, after = self.zone.window(second)
        if second == lo and offset > before and self.gap == "shift":
            label = self.expression.at_or_after(lo + before)
            if label is not None and label < lo + offset:
                jump = f"the clock goes from {clock(lo + before)} to {clock(lo + offset)}"
                return f"{clock(label)} does not exist on this day: {jump}"
        if offset < before and second < lo + before - offset:
            return f"{clock(second + offset)} comes twice on this day: second pass"
        if after < offset and second >= hi - (offset - after):
            return f"{clock(second + offset)} comes twice on this day: first pass"
        return None

    def label_of(self, tick: Instant) -> int:
        """Return the wall-clock time that a tick stands for, as the seconds that it would have in UTC.

        For a tick right after a gap, that is the time in the gap.
        """
        second = tick // 1000
        lo, _, offset, before, _ = self.zone.window(second)
        if second == lo and offset > before and self.gap == "shift":
            label = self.expression.at_or_after(lo + before)
            if label is not None and label < lo + offset:
                return label
        return second + offset

    def bind(self, name: str, since: Instant) -> Cron:
        if not self.expression.hashed:
            return self
        expression = _resolved(self.expression, name)
        return Cron(expression, self.zone, self.gap, self.repeat, self.start, self.until)

    def __str__(self) -> str:
        gap, repeat = _default_rule(self.expression)
        days = self.expression.days
        options = [
            "" if self.zone.key == "UTC" else f"tz={self.zone.key}",
            "" if self.gap == gap else f"gap={self.gap}",
            "" if self.repeat == repeat else f"repeat={self.repeat}",
            "days=both" if days.both and not (days.dom_star or days.dow_star) else "",
            "" if self.start is None else f"start={write_instant(self.start)}",
            "" if self.until is None else f"until={write_instant(self.until)}",
        ]
        return " ".join([str(self.expression), *filter(None, options)])


def cron(
    expression: str,
    *,
    tz: str | tzinfo = "UTC",
    gap: Gap | None = None,
    repeat: Repeat | None = None,
    days: DayFields | None = None,
    start: datetime | str | None = None,
    until: datetime | str | None = None,
    skip: str | Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    move: Move | None = None,
) -> Cron | Every | Calendared:
    """Return a trigger with ticks at the times that a cron expression matches on the wall clock of ``tz``.

    Five fields, or six with seconds first, or a macro such as ``@daily``; docs/cron.md has the
    syntax. ``gap`` (shift, skip) and ``repeat`` (first, last, both) say what a change of the clock
    does; by default fixed times are shifted and run once, wildcards follow real time. ``days="both"``
    wants days that match the day of month and the day of week; the default, ``either``, is cron's
    rule. ``start`` and ``until`` are inclusive. ``@every 10s`` gives an ``Every``.

    ``skip`` and ``only`` name calendars: ticks are in all of ``only``, and in none of ``skip``. ``move``
    (skip, next, previous) says what becomes of another tick: it is left out, or moves to the same time on
    the next or the previous day that is free.
    """
    check_text(expression)
    if "=" in expression:
        raise InvalidTrigger(
            expression[:200],
            " has options in it",
            field="expression",
            value=expression,
            position=expression.index("="),
            hint='give them apart, cron("0 9 * * *", tz="Europe/Berlin"), or use parse_trigger',
        )
    zone = read_zone(tz)
    first = None if start is None else read_instant(start, "start", zone.info)
    last = None if until is None else read_instant(until, "until", zone.info)
    every_macro = read_every_macro(expression)
    if every_macro is not None:
        for field, value in (("gap", gap), ("repeat", repeat), ("days", days)):
            if value is not None:
                raise InvalidTrigger(
                    expression,
                    f" is a period: {field} does not apply",
                    field=field,
                    value=value,
                    hint="leave it out",
                )
        return every(
            every_macro,
            start=None if first is None else from_ms(first),
            until=None if last is None else from_ms(last),
            skip=skip,
            only=only,
            move=move,
        )
    both = days is not None and _one_of("days", days, _DAY_FIELDS) == "both"
    compiled = parse_expression(expression, both=both)
    default_gap, default_repeat = _default_rule(compiled)
    trigger = Cron(
        compiled,
        zone,
        default_gap if gap is None else _one_of("gap", gap, _GAP_WORDS),
        default_repeat if repeat is None else _one_of("repeat", repeat, _REPEAT_WORDS),
        first,
        last,
    )
    _check_ticks(trigger, expression)
    return with_calendars(trigger, skip, only, move)


# A schedule is bound again whenever it fires, and all of them for each forecast: 0.1 us instead of 25 us.
@lru_cache(maxsize=1 << 14)
def _resolved(expression: Expression, name: str) -> Expression:
    return parse_expression(_text(expression), name, both=expression.days.both)


@lru_cache(maxsize=1 << 10)
def _text(expression: Expression) -> str:
    return str(expression)


def _in_a_later_hour(expression: Expression, minute: int) -> int:
    """Return the first matching minute after the hour of ``minute``, of an expression that matches every
    day."""
    hour = minute // 60 + 1
    hours = expression.hours >> hour % 24
    if not hours:
        hours = expression.hours
        hour += 24 - hour % 24
    return (hour + (hours & -hours).bit_length() - 1) * 60 + expression.first % 3600 // 60


def _default_rule(expression: Expression) -> tuple[Gap, Repeat]:
    """Return the rule of Debian's cron: wildcards follow real time; a fixed time runs once, late rather than
    never."""
    return ("skip", "both") if expression.follows_real_time else ("shift", "first")


def _check_ticks(trigger: Cron, text: str) -> None:
    """Refuse a trigger that will never tick for another reason than its day fields."""
    if trigger.expression.hashed:
        return  # its ticks are not known yet
    if trigger.start is not None and trigger.until is not None:
        if trigger.next_ms(trigger.start - 1) is None:
            raise InvalidTrigger(
                text,
                f" has no tick from {write_instant(trigger.start)} until {write_instant(trigger.until)}",
                field="until",
                value=write_instant(trigger.until),
                hint="both ends count",
            )
    elif trigger.gap == "skip" and trigger.zone.fixed is None and trigger.until is None:
        if trigger.expression.hours.bit_count() > _MOST_HOURS_SKIPPED:
            return  # one of them always exists; most wildcards are like this
        expression, zone, gap, repeat = trigger.expression, trigger.zone, trigger.gap, trigger.repeat
        if Cron(expression, zone, gap, repeat, None, _ALL_CALENDARS).next_ms(SETTLED * 1000) is None:
            raise InvalidTrigger(
                text,
                f' never matches in {trigger.zone.key} with gap="skip": the clock always skips that time',
                field="gap",
                value=trigger.gap,
                hint='use gap="shift" to run right after the gap',
            )


def _one_of(field: str, value: str, known: Collection[str]) -> Any:
    if value not in known:
        raise InvalidValue(
            f"{field} {shown(value)} is not one of {', '.join(known)}", field=field, value=value
        )
    return value
