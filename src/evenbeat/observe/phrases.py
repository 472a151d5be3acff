"""Lengths of time, dates, numbers of things and commands, as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))


def span(length: timedelta | float, *, units: int = 2) -> str:
    """Return a length of time (milliseconds if it is a number) in its largest units, rounded down.

    ``3 h 12 min``, ``1 d``, ``250 ms``; with one unit, ``3 h``.
    """
    ms = int(_milliseconds(length))
    for index, (unit, size) in enumerate(_UNITS):
        number, rest = divmod(ms, size)
        if number > 0:
            words = f"{number:,} {unit}"
            if units > 1 and unit != "ms":
                smaller, smaller_size = _UNITS[index + 1]
                if rest >= smaller_size:
                    words += f" {rest // smaller_size} {smaller}"
            return words
    return "0 s"


def measured(length: timedelta | float) -> str:
    """Return a measured length of time: ``0.4 ms``, ``230 ms``, ``2.1 s``, ``3 min 5 s``."""
    ms = max(0.0, _milliseconds(length))
    if round(ms) >= 60_000:
        return span(ms - ms % 1000)
    if round(ms) >= 1_000:
        return f"{ms / 1000:.1f} s"
    if ms >= 10 or ms == int(ms):
        return f"{ms:.0f} ms"
    return f"{max(ms, 0.1):.1f} ms"


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return ``1 run`` or ``2,000 runs``."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def some(names: Sequence[str], most: int, more: int = 0) -> str:
    """Return the first names, and how many others there are: ``a, b and 3 more``. ``more`` are not listed."""
    rest = len(names) + more - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def command_line(words: str, tenant: str) -> str:
    """Return a command that works when it is pasted: ``evenbeat schedules resume nightly --tenant acme``."""
    return f"evenbeat {words}" + ("" if tenant == "default" else f" --tenant {tenant}")


def timespec(instants: list[int]) -> str:
    """Return the coarsest precision that shows all of them in full, as a ``timespec`` of ``isoformat``."""
    if any(instant % 1000 for instant in instants):
        return "milliseconds"
    return "seconds" if any(instant % 60_000 for instant in instants) else "minutes"


def date_time(moment: datetime, precision: str = "minutes", *, weekday: bool = True) -> str:
    """Return ``Mon 2026-03-02 09:00 +01:00``."""
    day = f"{moment:%a} " if weekday else ""
    return f"{day}{moment.replace(tzinfo=None).isoformat(' ', precision)} {utc_offset(moment)}"


def utc_time(instant: Instant) -> str:
    """Return ``Mon 2026-03-02 09:00 UTC``, with seconds only if there are any."""
    # An instant that was edited by hand may lie outside the calendar.
    moment = from_ms(min(max(instant, FIRST), LAST))
    return f"{date_time(moment, timespec([instant - instant % 1000])).removesuffix('+00:00')}UTC"


def utc_offset(moment: datetime) -> str:
    """Return ``+01:00``; with seconds for dates before time zones had whole minutes."""
    return moment.isoformat().removeprefix(moment.replace(tzinfo=None).isoformat())


def _milliseconds(length: timedelta | float) -> float:
    return length / timedelta(milliseconds=1) if isinstance(length, timedelta) else length
