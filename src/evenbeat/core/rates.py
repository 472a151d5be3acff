"""Rates as users write them: ``100/m``, ``10/30s``."""

from __future__ import annotations

import re

import msgspec

from evenbeat.core.durations import UNITS, read_duration, write_duration
from evenbeat.errors import InvalidValue, shown

MOST_STARTS = 1_000_000
"""The highest count of a rate, and the highest burst."""
SHORTEST_PERIOD, LONGEST_PERIOD = UNITS["s"], 31 * UNITS["d"]
LONGEST_RATE = 50
RATE_FORM = 'write it like "100/m", "5/s", "1000/h" or "10/30s"'

_COUNT = re.compile(r"\d{1,20}", re.ASCII)
_LONG_UNITS = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "day": "d", "week": "w"}


class Rate(msgspec.Struct, frozen=True):
    """At most ``count`` starts in ``period`` ms, evenly."""

    count: int
    period: int


def read_rate(text: object, field: str = "rate") -> Rate:
    """Return the rate of a text: a count, a slash, and a unit or a duration."""
    if not isinstance(text, str):
        raise _refused(text, field, "is not a rate")
    count, _, period = (part.strip() for part in text.partition("/"))
    if len(text) > LONGEST_RATE or not _COUNT.fullmatch(count) or not period:
        raise _refused(text, field, "is not a rate")
    if not 1 <= int(count) <= MOST_STARTS:
        raise _refused(text, field, f"has a count that is not 1 to {MOST_STARTS:,}")
    short = _LONG_UNITS.get(period.lower().removesuffix("s"))
    if short is not None:
        raise _refused(text, field, "is not a rate", f'write "{count}/{short}"')
    try:
        ms = read_duration(f"1{period}" if period in UNITS else period, field)
    except InvalidValue:
        raise _refused(text, field, f"has a period {shown(period)} that is not a duration") from None
    if not SHORTEST_PERIOD <= ms <= LONGEST_PERIOD:
        raise _refused(text, field, "has a period that is not 1s to 31d")
    return Rate(int(count), ms)


def check_rate(rate: Rate, field: str) -> None:
    """Refuse a rate that no text could have given."""
    if not (1 <= rate.count <= MOST_STARTS and SHORTEST_PERIOD <= rate.period <= LONGEST_PERIOD):
        raise InvalidValue(
            f"{field} {rate.count}/{rate.period}ms is out of bounds",
            field=field,
            value=f"{rate.count}/{rate.period}ms",
            hint=RATE_FORM,
        )


def write_rate(rate: Rate) -> str:
    """Return the text of a rate: ``100/m``, ``10/30s``."""
    period = write_duration(rate.period)
    unit = period.removeprefix("1")
    return f"{rate.count}/{unit if unit in UNITS else period}"


def _refused(value: object, field: str, problem: str, hint: str = RATE_FORM) -> InvalidValue:
    return InvalidValue(f"{field} {shown(value)} {problem}", field=field, value=value, hint=hint)
