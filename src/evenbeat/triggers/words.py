"""Triggers in plain English, so that people can compare what they wrote with what they meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from itertools import pairwise, product

from evenbeat.core.durations import UNITS, write_duration
from evenbeat.core.instants import Instant, from_ms, write_instant
from evenbeat.triggers.days import ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, FINAL, LAST, NEAR, Days, bits
from evenbeat.triggers.expression import MONTH_NAMES, Expression

_WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
_UNIT_WORDS = {"w": "week", "d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}
_DAY = 86_400
# How many clock times are listed; the second number is for times without a pattern.
_FEW, _SOME = 4, 6


def explain_expression(expression: Expression) -> str:
    """Return the whole expression in words: times, days, months. An ``H`` is replaced by an example."""
    times, part_of_the_day = _times(expression)
    days = _days(expression.days)
    if days is None:
        days = (" every day" if part_of_the_day else "") + _in_months(expression.days.months)
    return ("for example " if expression.hashed else "") + times + days


def explain_period(ms: int) -> str:
    """Return ``every 10 minutes``, ``every hour``, or ``every 1h1m1s`` if no single unit fits."""
    for unit, size in UNITS.items():
        if ms % size == 0:
            count = ms // size
            if count == 1:
                return f"every {_UNIT_WORDS[unit]}"
            if count < 120 or unit in "wd":
                return f"every {count:,} {_UNIT_WORDS[unit]}s"
    return f"every {write_duration(ms)}"


def explain_bounds(start: Instant | None, until: Instant | None, tz: tzinfo = UTC) -> str:
    """Return the start and the end in words, on the clock of ``tz``."""
    write: Callable[[Instant], str] = (
        write_instant if tz is UTC else lambda instant: from_ms(instant, tz).isoformat()
    )
    words = "" if start is None else f", from {write(start)}"
    return words if until is None else f"{words}, until {write(until)}"


def clock(second: int) -> str:
    """Return a wall-clock time of day: ``02:30``, with seconds only if there are any."""
    minutes, seconds = divmod(second % _DAY, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


# -- times of day ---------------------------------------------------------------------------------


def _times(expression: Expression) -> tuple[str, bool]:
    """Return the times, and whether they cover only a part of the day."""
    hours, minutes, seconds = (bits(expression.hours), bits(expression.minutes), bits(expression.seconds))
    count = len(hours) * len(minutes) * len(seconds)
    listed = f"at {_listed(_clock_times(hours, minutes, seconds))}" if count <= _SOME else ""
    if count <= _FEW:
        return listed, True
    if (beat := _beat(hours, minutes, seconds, through_midnight=expression.days.every_day)) is not None:
        return beat
    if listed:
        return listed, True
    if seconds != [0]:
        of_hours = "" if len(minutes) == 60 and len(hours) == 24 else _in_hours(hours)
        return _seconds(seconds) + _in_minutes(minutes) + of_hours, len(hours) < 24
    if len(hours) == 1:
        return "at " + _spans(minutes, [clock(hours[0] * 3600 + m * 60) for m in range(60)]), True
    words = _minutes(minutes)
    if len(hours) == 24:
        return (f"every hour {words}" if words.startswith("at") else f"{words} of every hour"), False
    return words + _in_hours(hours), True


def _clock_times(hours: list[int], minutes: list[int], seconds: list[int]) -> list[str]:
    return [clock(h * 3600 + m * 60 + s) for h, m, s in product(hours, minutes, seconds)]


def _beat(
    hours: list[int], minutes: list[int], seconds: list[int], *, through_midnight: bool
) -> tuple[str, bool] | None:
    """Return times of one distance: ``every 5 minutes``, ``every hour from 09:00 to 17:00``; None for
    others."""
    times = [h * 3600 + m * 60 + seconds[0] for h, m in product(hours, minutes)]
    extra = 0
    if len(seconds) > 1 and len(times) == 1:
        times = [times[0] - seconds[0] + second for second in seconds]
    elif len(seconds) > 1:
        # Seconds go on evenly only from one minute to the next.
        extra = seconds[-1] - seconds[0]
        if _step([*seconds, seconds[0] + 60]) is None:
            return None
    step = times[1] - times[0]
    breaks = [i for i, (a, b) in enumerate(pairwise(times), 1) if b - a != step]
    round_the_clock = times[0] + _DAY - times[-1] == step
    if extra:
        if step != 60:
            return None
        step = seconds[1] - seconds[0]
    if round_the_clock and not breaks:
        return _round_the_clock(step, times[0])
    if round_the_clock and len(breaks) == 1 and through_midnight:
        times = times[breaks[0] :] + times[: breaks[0]]
    elif breaks:
        return None
    return f"{_every(step)} from {clock(times[0])} to {clock(times[-1] + extra)}", True


def _round_the_clock(step: int, first: int) -> tuple[str, bool] | None:
    words = _every(step)
    if first == 0:
        return (f"{words}, on the hour" if step % 3600 == 0 else words), False
    if step % 60 == 0 and first < 60:
        return f"{words} at second {first}", False
    if step == 3600:
        return f"{words} at {clock(first)[2:]}", False
    # 5,20,35,50 is better listed, as :05, :20, :35 and :50.
    return None if step < 3600 and 3600 // step <= _SOME else (f"{words}, starting at {clock(first)}", False)


def _minutes(minutes: list[int]) -> str:
    """Return the minutes of an hour: ``at :05 and :35``, ``every 10 minutes``, ``every minute from :00 to
    :10``."""
    names = [f":{minute:02}" for minute in range(60)]
    step = _step(minutes)
    if step is not None and minutes[0] == 0 and minutes[-1] + step == 60:
        return _every(step * 60)
    if step is not None and len(minutes) > _FEW:
        return f"{_every(step * 60)} from {names[minutes[0]]} to {names[minutes[-1]]}"
    return "at " + _spans(minutes, names)


def _seconds(seconds: list[int]) -> str:
    step = _step(seconds)
    if step is not None and seconds[0] == 0 and seconds[-1] + step == 60:
        return _every(step)
    if step is not None and len(seconds) > _FEW:
        return f"{_every(step)} from second {seconds[0]} to {seconds[-1]}"
    return f"at second{'s' if len(seconds) > 1 else ''} {_spans(seconds, [str(s) for s in range(60)])}"


def _in_minutes(minutes: list[int]) -> str:
    step = _step(minutes)
    if len(minutes) == 60:
        return " of every minute"
    if step is not None and step > 1 and len(minutes) > _FEW:
        return f" of every {_nth(step)} minute from :{minutes[0]:02} to :{minutes[-1]:02}"
    names = _spans(minutes, [f":{minute:02}" for minute in range(60)])
    return f" of minute {names}" if len(minutes) == 1 else f" of the minutes {names}"


def _in_hours(hours: list[int]) -> str:
    step = _step(hours)
    if len(hours) == 24:
        return " of every hour"
    if len(hours) == 1:
        return f" from {hours[0]:02}:00 to {hours[0]:02}:59"
    if step == 1:
        return f" of every hour from {hours[0]:02}:00 to {hours[-1]:02}:59"
    if step is not None and len(hours) > _FEW:
        return f" in every {_nth(step)} hour from {hours[0]:02} to {hours[-1]:02}"
    return f" in the hours {_spans(hours, [f'{hour:02}' for hour in range(24)])}"


def _every(seconds: int) -> str:
    return explain_period(seconds * 1000)


def _step(values: list[int]) -> int | None:
    """Return the distance between neighbours if it is always the same, else None."""
    steps = {b - a for a, b in pairwise(values)}
    return steps.pop() if len(steps) == 1 else None


# -- days -----------------------------------------------------------------------------------------


def _days(days: Days) -> str | None:
    """Return the days as a clause with a space or comma in front; None if all days of its months match."""
    all_dates, all_weekdays = days.dom & ALL_DAYS == ALL_DAYS, days.dow & ALL_WEEKDAYS == ALL_WEEKDAYS
    if (all_dates and all_weekdays) or (not days.both and (all_dates or all_weekdays)):
        return None
    within = _in_months(days.months)
    of_month = f" of the month{within}"
    if len(months := bits(days.months)) <= _FEW:
        of_month = f" of {_listed([MONTH_NAMES[month] for month in months])}"
    dates = _dates(days.dom) + of_month
    if all_weekdays:
        return f" {dates}"
    weekdays = _weekdays(days.dow, of_month, within)
    if all_dates:
        return weekdays
    if days.both:
        # Both must match.
        return f"{_weekdays(days.dow, ' of the month', '')}, but only {dates}"
    return f" {dates} and also{weekdays.removeprefix(',')}"


def _in_months(mask: int) -> str:
    if mask == ALL_MONTHS:
        return ""
    months = bits(mask)
    names = [MONTH_NAMES[month] for month in months]
    if len(months) > 2 and (run := _run([month - 1 for month in months], 12)) is not None:
        return f" from {MONTH_NAMES[run[0] + 1]} to {MONTH_NAMES[run[1] + 1]}"
    return " in " + (_listed(names) if len(months) <= _SOME else _spans(months, MONTH_NAMES))


def _dates(dom: int) -> str:
    """Return ``on the 1st and the last day``, ready for "of the month"."""
    plain = bits(dom & ALL_DAYS)
    names = [_nth(day) for day in range(32)]
    items = []
    step = _step(plain)
    if step is not None and step > 1 and len(plain) > _FEW:
        items.append(f"every {_nth(step)} day from the {names[plain[0]]} to the {names[plain[-1]]}")
    elif plain:
        items.append(f"the {_spans(plain, names)}")
    for back in bits(dom >> LAST & (1 << 31) - 1):
        before = {0: "", 1: "day before the "}.get(back, f"{_nth(back)} day before the ")
        items.append(f"the {before}last day")
    for day in bits(dom >> NEAR):
        which = f"weekday (Mon-Fri) nearest to the {names[day]}" if day else "last weekday (Mon-Fri)"
        items.append(f"the {which}")
    return "on " + _listed(items)


def _weekdays(dow: int, of_month: str, within: str) -> str:
    plain = bits(dow & ALL_WEEKDAYS)
    special = [
        f"the {_ORDINALS[bit // 7 + 1]} {_WEEKDAY_NAMES[bit % 7]}" for bit in bits(dow >> 7 & (1 << 35) - 1)
    ]
    special += [f"the last {_WEEKDAY_NAMES[day]}" for day in bits(dow >> FINAL)]
    # A week is read from Monday on; a stretch is read from its own start.
    ordered = [day for day in (*range(1, 7), 0) if day in plain]
    run = _run(plain, 7)
    if len(plain) > 2 and run is not None and not special:
        return f", {_WEEKDAY_NAMES[run[0]]} to {_WEEKDAY_NAMES[run[1]]}{within}"
    names = [f"{_WEEKDAY_NAMES[day]}s" for day in ordered]
    return f" on {_listed(names + special)}{of_month if special else within}"


# -- lists ----------------------------------------------------------------------------------------


def _spans(values: list[int], names: Sequence[str]) -> str:
    """Return names, with three or more in a row as ``June to August``."""
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


def _run(values: list[int], size: int) -> tuple[int, int] | None:
    """Return the ends if the values follow each other, perhaps through the end of a range of ``size``; else
    None."""
    wanted, count = set(values), len(values)
    for first in values:
        if {(first + n) % size for n in range(count)} == wanted:
            return first, (first + count - 1) % size
    return None


def _nth(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
