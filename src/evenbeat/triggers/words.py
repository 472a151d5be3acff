"""Triggers in plain English, so that a person can check what was meant against what was written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from evenbeat.durations import UNITS, write_duration
from evenbeat.instants import Instant, write_instant
from evenbeat.triggers.days import ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, FINAL, LAST, NEAR, Days, bits
from evenbeat.triggers.expression import MONTH_NAMES, Expression
from evenbeat.triggers.fields import HOUR, MINUTE, SECOND, Field

_WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
_UNIT_WORDS = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}
# More clock times than this are said as "minutes … of hours …".
_LISTED_TIMES = 6


def explain_expression(expression: Expression) -> str:
    """The whole expression: times, days, months."""
    words = _times(expression) + _days(expression.days)
    if expression.hashed:
        words += ", where H is chosen by the schedule's name"
    return words


def explain_period(ms: int) -> str:
    """``every 10 minutes``; ``every hour``; ``every 1h30m`` where no single unit will do."""
    for unit, size in UNITS.items():
        if ms % size == 0:
            count = ms // size
            word = _UNIT_WORDS[unit]
            return f"every {word}" if count == 1 else f"every {count:,} {word}s"
    return f"every {write_duration(ms)}"


def explain_bounds(start: Instant | None, until: Instant | None) -> str:
    words = "" if start is None else f", from {write_instant(start)}"
    return words if until is None else f"{words}, until {write_instant(until)}"


def clock(second: int) -> str:
    """A wall-clock time of day: ``02:30``, with seconds only where there are some."""
    minutes, seconds = divmod(second % 86_400, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


def _times(expression: Expression) -> str:
    hours, minutes, seconds = (
        bits(expression.hours),
        bits(expression.minutes),
        bits(expression.seconds),
    )
    if len(hours) * len(minutes) * len(seconds) <= _LISTED_TIMES:
        times = [clock(h * 3600 + m * 60 + s) for h in hours for m in minutes for s in seconds]
        return "at " + _listed(times)
    if seconds == [0]:
        return _minutes(minutes, hours)
    if len(seconds) == 60 and len(minutes) == 60:
        return "every second" + _of_hours(hours)
    second = _unit(SECOND, seconds)
    if len(minutes) == 60 and (len(seconds) > 1 or len(hours) == 24):
        return (second if len(seconds) > 1 else f"{second} of every minute") + _of_hours(hours)
    return f"{second}, {_minutes(minutes, hours)}"


def _minutes(minutes: list[int], hours: list[int]) -> str:
    if len(minutes) == 60:
        return "every minute" + _of_hours(hours)
    words = _unit(MINUTE, minutes)
    if words.startswith("every"):
        return words + _of_hours(hours)
    if len(hours) == 24:
        return "every hour, on the hour" if minutes == [0] else f"{words} of every hour"
    if minutes == [0]:
        return _unit(HOUR, hours) + ", on the hour"
    return words + _of_hours(hours)


def _of_hours(hours: list[int]) -> str:
    """The hours during which something repeats, as a clause."""
    if len(hours) == 24:
        return ""
    if len(hours) == 1:
        return f" from {hours[0]:02}:00 to {hours[0]:02}:59"
    if _is_run(hours):
        return f" from {hours[0]:02}:00 to {hours[-1]:02}:59"
    if (step := _step(HOUR, hours)) is not None:
        return f" of {_every(step, 'hour')}"
    return f" of hours {_listed([str(hour) for hour in hours])}"


def _unit(field: Field, values: list[int]) -> str:
    """``every 5 minutes``, ``at minutes 0 to 10``, ``at minute 7``."""
    if (step := _step(field, values)) is not None:
        return _every(step, field.name)
    if len(values) == 1:
        return f"at {field.name} {values[0]}"
    if _is_run(values):
        return f"at {field.name}s {values[0]} to {values[-1]}"
    return f"at {field.name}s {_listed([str(value) for value in values])}"


def _every(step: int, word: str) -> str:
    return f"every {word}" if step == 1 else f"every {step} {word}s"


def _step(field: Field, values: list[int]) -> int | None:
    """The step if the values are evenly spread over the whole field, from its first value on."""
    if len(values) < 2 or values[0] != field.low:
        return None
    step = values[1] - values[0]
    whole = values == list(range(field.low, field.high + 1, step))
    # 0,7,…,56 of 60 is not "every 7 minutes": the last gap is shorter.
    return step if whole and field.size % step == 0 else None


def _days(days: Days) -> str:
    dates, weekdays = _dates(days.dom), _weekdays(days.dow)
    words = ""
    if days.both:
        if dates and weekdays:
            words = f", {dates} if that is {weekdays.removeprefix('on ')}"
        elif dates or weekdays:
            words = f", {dates or weekdays}"
    elif days.dom & ALL_DAYS != ALL_DAYS and days.dow & ALL_WEEKDAYS != ALL_WEEKDAYS:
        words = f", {dates} or {weekdays}"
    if days.months != ALL_MONTHS:
        words += f", in {_spans(bits(days.months), MONTH_NAMES)}"
    return words


def _dates(dom: int) -> str:
    plain = bits(dom & ALL_DAYS)
    if len(plain) == 31:
        return ""
    said = []
    if len(plain) == 1:
        said.append(f"on day {plain[0]} of the month")
    elif plain and plain[0] == 1 and plain == list(range(1, 32, plain[1] - 1)):
        said.append(f"on every {_nth(plain[1] - 1)} day of the month from the 1st on")
    elif plain:
        said.append(f"on days {_spans(plain, [str(d) for d in range(32)])} of the month")
    for back in bits(dom >> LAST & (1 << 31) - 1):
        before = {0: "on", 1: "on the day before"}.get(back, f"{back} days before")
        said.append(f"{before} the last day of the month")
    for day in bits(dom >> NEAR):
        which = f"weekday (Mon-Fri) nearest to day {day}" if day else "last weekday (Mon-Fri) of the month"
        said.append(f"on the {which}")
    return " or ".join(said)


def _weekdays(dow: int) -> str:
    plain = bits(dow & ALL_WEEKDAYS)
    if len(plain) == 7:
        return ""
    said = []
    if plain:
        # A week is read from Monday on.
        ordered = [d for d in (*range(1, 7), 0) if d in plain]
        if plain == [0, 6]:
            said.append("on Saturday and Sunday")
        elif len(ordered) > 2 and all((b - a) % 7 == 1 for a, b in pairwise(ordered)):
            said.append(f"{_WEEKDAY_NAMES[ordered[0]]} to {_WEEKDAY_NAMES[ordered[-1]]}")
        else:
            said.append("on " + _listed([_WEEKDAY_NAMES[d] for d in ordered]))
    for bit in bits(dow >> 7 & (1 << 35) - 1):
        said.append(f"on the {_ORDINALS[bit // 7 + 1]} {_WEEKDAY_NAMES[bit % 7]} of the month")
    for day in bits(dow >> FINAL):
        said.append(f"on the last {_WEEKDAY_NAMES[day]} of the month")
    return " or ".join(said)


def _spans(values: list[int], names: Sequence[str]) -> str:
    """Names, with three or more in a row as ``June to August``."""
    items, at = [], 0
    while at < len(values):
        end = at
        while end + 1 < len(values) and values[end + 1] == values[end] + 1:
            end += 1
        if end - at >= 2:
            items.append(f"{names[values[at]]} to {names[values[end]]}")
        else:
            items += [names[value] for value in values[at : end + 1]]
        at = end + 1
    return _listed(items)


def _is_run(values: list[int]) -> bool:
    return len(values) > 1 and values[-1] - values[0] == len(values) - 1


def _nth(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
