"""A cron expression as a whole: the wall-clock seconds that it matches, without zones and clock changes.

A *label* is a wall-clock time counted in seconds as if the wall clock were UTC, so that calendar
arithmetic needs no zone.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

import msgspec

from evenbeat.core.durations import is_duration
from evenbeat.errors import InvalidTrigger, shown
from evenbeat.triggers.days import ALL_DAYS, ALL_WEEKDAYS, LAST, NEAR, Days, bits, lowest
from evenbeat.triggers.fields import (
    DOM,
    DOW,
    FIELDS,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    FieldProblem,
    is_hashed,
    is_stepped,
    read_field,
    write_field,
    write_hashed,
)

# All sixty values of two fields, every hour, day, month and weekday, spelled out, take 530.
LONGEST_TEXT = 1000
_OPTIONS_TEXT = 200

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

MONTH_NAMES = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAY = 86_400
_SIMPLE = {str(value): 1 << value for value in range(60)}
_TO_28 = (1 << 29) - 2


class Expression(msgspec.Struct, frozen=True, cache_hash=True):
    """A compiled cron text. Two are equal if they match the same labels for the same reasons."""

    seconds: int
    minutes: int
    hours: int
    days: Days
    minute_star: bool
    hour_star: bool
    hashed: tuple[tuple[int, str], ...]
    """Fields with an ``H`` that is not resolved yet: (index, text)."""
    every_day: bool
    """Derived: the day fields exclude nothing."""
    any_day_on_the_minute: bool
    """Derived: neither the day fields nor the seconds exclude anything."""
    first: int
    """Derived: the first matching second of a matching day."""

    @property
    def follows_real_time(self) -> bool:
        """Whether there is a wildcard in minute or hour (one in seconds alone does not count)."""
        return self.minute_star or self.hour_star

    @property
    def times_a_day(self) -> int:
        """How many times of a day match."""
        return self.hours.bit_count() * self.minutes.bit_count() * self.seconds.bit_count()

    def at_or_after(self, label: int) -> int | None:
        """Return the first matching label at or after ``label``."""
        day, second = divmod(label, _DAY)
        rest = 3 if self.every_day else self.days.rest_of_month(day)
        if rest & 1:
            hour, second = divmod(second, 3600)
            hours = self.hours >> hour
            if hours & 1:
                minute, second = divmod(second, 60)
                minutes = self.minutes >> minute
                if minutes & 1 and (seconds := self.seconds >> second):
                    return label + (seconds & -seconds).bit_length() - 1
                minutes &= -2
                if minutes:
                    minute += (minutes & -minutes).bit_length() - 1
                    return day * _DAY + hour * 3600 + minute * 60 + self.first % 60
            hours &= -2
            if hours:
                hour += (hours & -hours).bit_length() - 1
                return day * _DAY + hour * 3600 + self.first % 3600
        rest &= -2
        following = day + lowest(rest) if rest else self.days.after_month(day)
        return None if following is None else following * _DAY + self.first

    def at_or_before(self, label: int) -> int | None:
        """Return the last matching label at or before ``label``."""
        day, second = divmod(label, _DAY)
        if self._on(day):
            hour, second = divmod(second, 3600)
            if self.hours >> hour & 1:
                minute, second = divmod(second, 60)
                if self.minutes >> minute & 1 and (seconds := self.seconds & (2 << second) - 1):
                    return label - second + seconds.bit_length() - 1
                if minutes := self.minutes & (1 << minute) - 1:
                    return day * _DAY + hour * 3600 + self._last_second(minutes)
            if hours := self.hours & (1 << hour) - 1:
                return day * _DAY + (hours.bit_length() - 1) * 3600 + self._last_second(self.minutes)
        earlier = day - 1 if self.every_day else self.days.prev(day - 1)
        if earlier is None:
            return None
        return earlier * _DAY + (self.hours.bit_length() - 1) * 3600 + self._last_second(self.minutes)

    def count(self, first: int, end: int) -> int:
        """Return how many labels in [first, end) match: by counting bits, not labels."""
        if first >= end:
            return 0
        first_day, first_second = divmod(first, _DAY)
        last_day, last_second = divmod(end - 1, _DAY)
        days = last_day - first_day + 1 if self.every_day else self.days.count(first_day, last_day + 1)
        total = days * self._count_from(0)
        if self._on(first_day):
            total -= self._count_from(0) - self._count_from(first_second)
        if self._on(last_day):
            total -= self._count_from(last_second + 1)
        return total

    def _on(self, day: int) -> bool:
        return self.every_day or self.days.prev(day) == day

    def _count_from(self, second: int) -> int:
        """Return how many seconds of a matching day match from ``second`` on."""
        hour, second = divmod(second, 3600)
        minute, second = divmod(second, 60)
        minutes, seconds = self.minutes.bit_count(), self.seconds.bit_count()
        total = (self.hours >> hour + 1).bit_count() * minutes * seconds
        if self.hours >> hour & 1:
            total += (self.minutes >> minute + 1).bit_count() * seconds
            if self.minutes >> minute & 1:
                total += (self.seconds >> second).bit_count()
        return total

    def _last_second(self, minutes: int) -> int:
        return (minutes.bit_length() - 1) * 60 + self.seconds.bit_length() - 1

    def __str__(self) -> str:
        days = self.days
        texts = [
            write_field(SECOND, self.seconds, star=is_stepped(SECOND, self.seconds)),
            write_field(MINUTE, self.minutes, star=self.minute_star),
            write_field(HOUR, self.hours, star=self.hour_star),
            write_field(DOM, days.dom, star=days.dom_star),
            write_field(MONTH, days.months, star=is_stepped(MONTH, days.months)),
            write_field(DOW, days.dow, star=days.dow_star),
        ]
        for index, text in self.hashed:
            texts[index] = text
        return " ".join(texts[1:] if texts[0] == "0" else texts)


def parse_expression(text: str, name: str | None = None, *, both: bool = False) -> Expression:
    """Compile a cron text of five or six fields, or a macro.

    ``name`` resolves ``H``. Without it, H stays visible in the text and is hashed from no name.
    ``both`` asks for days that match both day fields, also where neither starts with ``*``.
    """
    if len(text) > LONGEST_TEXT:
        raise too_long(text)
    parts = text.split()
    if len(parts) == 1 and parts[0].startswith("@"):
        parts = _expand(text, parts[0]).split()
    if len(parts) == 5:
        parts.insert(0, "0")
    elif len(parts) != 6:
        raise _wrong_count(text, parts)
    masks = []
    for index, part in enumerate(parts):
        field = FIELDS[index]
        # Most fields are a star or a number: 0.1 us each here, 1 to 4 us by the general way.
        mask = field.full if part == "*" else _SIMPLE.get(part)
        if mask is None or mask & ~field.full:
            mask = _read(text, index, part, name)
        masks.append(mask)
    hashed: tuple[tuple[int, str], ...] = ()
    if name is None and ("h" in text or "H" in text):
        hashed = tuple((i, write_hashed(FIELDS[i], part)) for i, part in enumerate(parts) if is_hashed(part))
    expression = _compile(text, parts, masks, hashed, both)
    # With H in long lists the canonical text may be longer than the written one, and must be readable, too.
    if hashed and len(text) > _OPTIONS_TEXT and len(str(expression)) > LONGEST_TEXT - _OPTIONS_TEXT:
        raise too_long(text)
    return expression


def too_long(text: str) -> InvalidTrigger:
    return InvalidTrigger(
        text,
        f" is {len(text):,} characters long",
        field="expression",
        value=text,
        allowed=f"at most {LONGEST_TEXT:,} characters",
        hint=f"the longest allowed is {LONGEST_TEXT:,}",
    )


def _compile(
    text: str, parts: list[str], masks: list[int], hashed: tuple[tuple[int, str], ...], both: bool
) -> Expression:
    seconds, minutes, hours, dom, months, dow = masks
    dom_star, dow_star = parts[3][0] in "*?", parts[5][0] in "*?"
    # Vixie's rule. A star makes both=True say nothing new: the two texts give equal expressions.
    days = Days(dom, months, dow, dom_star, dow_star, both or dom_star or dow_star)
    # Days 1 to 28 are in every month, and any weekday is: only the rest needs a closer look.
    if not ((dom & _TO_28 and dow == ALL_WEEKDAYS) or dom == ALL_DAYS) and not days.possible():
        raise _never(text, parts, days)
    stars = (parts[1][0] == "*", parts[2][0] == "*")
    if any(stars) and not hashed:
        # One star is enough to follow real time: where the other stands is a matter of spelling.
        spelled = (is_stepped(MINUTE, minutes), is_stepped(HOUR, hours))
        stars = spelled if any(spelled) else stars
    any_day = days.every_day
    first = lowest(hours) * 3600 + lowest(minutes) * 60 + lowest(seconds)
    return Expression(seconds, minutes, hours, days, *stars, hashed, any_day, any_day and seconds == 1, first)


def _read(text: str, index: int, part: str, name: str | None) -> int:
    try:
        return read_field(FIELDS[index], part, name or "")
    except FieldProblem as problem:
        raise InvalidTrigger(
            text,
            f": {problem.field.name} {problem}",
            field=problem.field.name,
            value=problem.item,
            position=_position(text, index) + problem.offset,
            allowed=problem.field.allowed,
            hint=problem.hint,
        ) from None


def _expand(text: str, macro: str) -> str:
    if expanded := MACROS.get(macro.lower()):
        return expanded
    near = get_close_matches(macro.lower()[:20], MACROS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(MACROS)} and @every 10s"
    if macro.lower() == "@reboot":
        hint = "a schedule outlives its process, so there is no boot to run at: use at(…)"
    raise InvalidTrigger(text, " is not a known macro", field="expression", value=macro, hint=hint)


def _wrong_count(text: str, parts: list[str]) -> InvalidTrigger:
    hint = 'minute hour day-of-month month day-of-week, e.g. "0 9 * * mon-fri"; seconds may come first'
    if len(parts) == 7:
        hint = "there is no year field: bound the schedule with start and until"
    elif len(parts) == 1 and is_duration(parts[0]):
        hint = f'for a period write every("{parts[0]}")'
    count = f"has {len(parts) or 'no'} field{'' if len(parts) == 1 else 's'}"
    return InvalidTrigger(
        text, f" {count}, cron has 5 or 6", field="expression", value=text, allowed="5 or 6 fields", hint=hint
    )


def _never(text: str, parts: list[str], days: Days) -> InvalidTrigger:
    reason = f"day of month {shown(parts[3])} and day of week {shown(parts[5])} never fall together"
    starred = days.dom_star or days.dow_star
    hint = f"both must match, {'as one of them starts with *' if starred else 'by days=both'}"
    if not Days(days.dom, days.months, ALL_WEEKDAYS, True, True, True).possible():
        names = [MONTH_NAMES[month] for month in bits(days.months)]
        *most, final = names
        those = f"{', '.join(most)} and {final} have" if most else f"{final} has"
        numbers = bits(days.dom & ALL_DAYS | days.dom >> NEAR)
        longest = 1 + lowest(days.dom >> LAST) if not numbers else 0
        reason = f"{those} no day {numbers[0]}" if numbers else f"{those} fewer than {longest} days"
        hint = "for the last day of a month write L"
    return InvalidTrigger(
        text,
        f" never matches: {reason}",
        field="day of month",
        value=parts[3],
        position=_position(text, 3),
        hint=hint,
    )


def _position(text: str, index: int) -> int:
    """Return the position of a field in the text; 0 in a macro."""
    found = [match.start() for match in re.finditer(r"\S+", text)]
    return found[index - 6] if len(found) >= 5 else 0
