"""Durations: ``"90s"``, ``"1h30m"``, a timedelta or seconds; integer milliseconds inside."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction
from typing import TypeAlias

from evenbeat.errors import InvalidValue, shown

Duration: TypeAlias = str | timedelta | int | float
"""The forms in which users may give a duration. A bare number is seconds."""

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
LONGEST = 100 * 366 * UNITS["d"]

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[wdhms])\s*", re.ASCII)
_WORDS = {
    "second": "s",
    "seconds": "s",
    "sec": "s",
    "minute": "m",
    "minutes": "m",
    "min": "m",
    "hour": "h",
    "hours": "h",
    "day": "d",
    "days": "d",
    "week": "w",
    "weeks": "w",
}


def read_duration(value: Duration, field: str) -> int:
    """Return whole milliseconds. Refuse negative values, unknown units and more than 100 years."""
    if isinstance(value, str):
        ms = _parse(value, field)
    elif isinstance(value, timedelta):
        ms = _whole(Fraction(value // timedelta(microseconds=1), 1000), value, field)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = value * 1000
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _refused(value, field, "is not a finite number")
        ms = _whole(Fraction(str(value)) * 1000, value, field)
    else:
        raise _refused(value, field, "is not a duration")
    if ms < 0:
        raise _refused(value, field, "is negative")
    if ms > LONGEST:
        raise _refused(value, field, "is longer than 100 years")
    return ms


def is_duration(text: str) -> bool:
    """Return whether a text has the form of a duration; it may be too long to be one."""
    try:
        _parse(text, "duration")
    except InvalidValue:
        return False
    return True


def write_duration(duration: int | timedelta) -> str:
    """Return the shortest exact text of milliseconds or a timedelta: 90,000 is ``"1m30s"``, 0 is ``"0s"``.

    Weeks are written as days.
    """
    ms = duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration
    parts = []
    for unit, size in UNITS.items():
        if unit == "w":
            continue
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _parse(text: str, field: str) -> int:
    stripped = text.strip()
    if len(stripped) > 100 or not stripped:
        raise _refused(text, field, "is not a duration")
    # Fractions are exact, and unlike decimals do not depend on a context that a program may set.
    total, position = Fraction(0), 0
    while position < len(stripped):
        part = _PART.match(stripped, position)
        # "5 minutes" is not 5m followed by "inutes".
        if part is None or stripped[part.end(2) : part.end(2) + 1].isalpha():
            raise _refused(text, field, "is not a duration", _suggestion(stripped[position:]))
        total += Fraction(part[1]) * UNITS[part[2]]
        position = part.end()
    return _whole(total, text, field)


def _suggestion(rest: str) -> str | None:
    """Return a hint for the part of a text that is not a duration."""
    word = re.match(r"(-?\d+(?:\.\d+)?)?\s*([A-Za-z]*)", rest, re.ASCII)
    assert word is not None
    number, unit = word[1], word[2]
    if number and number.startswith("-"):
        return "a duration can't be negative"
    if number and (short := _WORDS.get(unit.lower())):
        return f'write "{number}{short}"'
    if unit.lower() in {"month", "months", "mo", "y", "year", "years"}:
        return "months and years vary in length: use cron for those"
    if number and not unit and word.end() == len(rest):
        return f'give it a unit: "{number}s" or "{number}m"'
    return None


def _whole(ms: Fraction, value: object, field: str) -> int:
    if ms.denominator != 1:
        raise _refused(value, field, "is finer than a millisecond")
    return ms.numerator


def _refused(value: object, field: str, problem: str, hint: str | None = None) -> InvalidValue:
    if hint is None:
        hint = 'write it like "10s", "5m", "1h30m" or "7d"'
    return InvalidValue(f"{field} {shown(value)} {problem}", field=field, value=value, hint=hint)
