"""Instants: integer milliseconds since 1970-01-01 UTC inside, aware datetimes at the edges."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

from evenbeat.core.durations import is_duration, read_duration
from evenbeat.errors import InvalidValue, shown

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

Moment: TypeAlias = datetime | timedelta | str
"""An aware datetime, its ISO 8601 text with an offset, or the time from now, like ``"2h"``."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

# A day inside the range of datetime, so that no conversion to a local time overflows.
FIRST: Instant = -62_135_510_400_000  # 0001-01-02T00:00:00Z
LAST: Instant = 253_402_214_399_999  # 9999-12-30T23:59:59.999Z

_LONGEST_TEXT = 100
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def to_ms(moment: datetime, field: str = "datetime") -> Instant:
    """Return the instant of an aware datetime, rounded down to the millisecond. Refuse a naive one."""
    try:
        return (moment - EPOCH) // MILLISECOND
    except TypeError:  # the subtraction is the check, which costs nothing for a good value
        if not isinstance(moment, datetime):
            raise InvalidValue(
                f"{field} {shown(moment)} is not a datetime", field=field, value=moment
            ) from None
        raise InvalidValue(
            f"{field} {moment.isoformat()} has no time zone",
            field=field,
            value=moment,
            hint='give one: datetime(…, tzinfo=UTC) or .replace(tzinfo=ZoneInfo("Europe/Berlin"))',
        ) from None


def to_ms_up(moment: datetime, field: str = "datetime") -> Instant:
    """Return the instant of an aware datetime, rounded up to the millisecond."""
    # Not by moment.microsecond: an offset may have microseconds, too.
    return to_ms(moment, field) + (1 if (moment - EPOCH) % MILLISECOND else 0)


def from_ms(instant: Instant, tz: tzinfo = UTC) -> datetime:
    """Return the aware datetime of an instant, in ``tz``."""
    # Whole seconds only: a float of seconds is off by 30 us at the far end of the calendar.
    moment = datetime.fromtimestamp(instant // 1000, tz)
    ms = instant % 1000
    return moment.replace(microsecond=ms * 1000) if ms else moment


def read_instant(value: datetime | str, field: str, tz: tzinfo | None = None) -> Instant:
    """Return the instant of an aware datetime or of an ISO 8601 text with an offset.

    With ``tz``, a text without an offset is a wall-clock time in that zone. A time that the clock skips is
    the instant right after the gap; of a time that the clock repeats, the first is meant.
    """
    if isinstance(value, str):
        written = read_date(value)
        if written is None:
            raise InvalidValue(
                f"{field} {shown(value)} is not a date and time",
                field=field,
                value=value,
                hint='write it as "2026-03-01T09:00:00Z" or "2026-03-01T09:00:00+01:00"',
            )
        moment = written
        if moment.tzinfo is None:
            if tz is None:
                raise InvalidValue(
                    f"{field} {shown(value)} has no offset and no time zone",
                    field=field,
                    value=value,
                    hint=f'write "{_in_utc(value.strip())}" if UTC is meant, or an offset such as +01:00',
                )
            moment = _wall_clock_time(moment, tz)
    elif isinstance(value, datetime):
        moment = value
    else:
        raise InvalidValue(
            f"{field} {shown(value)} is neither a datetime nor a text", field=field, value=value
        )
    try:
        instant = to_ms(moment, field)
    except OverflowError:
        instant = LAST + 1
    if not FIRST <= instant <= LAST:
        raise InvalidValue(
            f"{field} {shown(str(value))} is outside the years 1 to 9999", field=field, value=value
        )
    return instant


def read_date(text: str) -> datetime | None:
    """Return the date and time that a text names, with its offset if it has one; None for any other text."""
    try:
        # No date is longer, and a slice would hide the rest of the text.
        return datetime.fromisoformat(text.strip() if len(text) <= _LONGEST_TEXT else "")
    except ValueError:
        return None


def _in_utc(text: str) -> str:
    """Return the text of a date, or of a date and time, as one in UTC."""
    return f"{text}Z" if len(text) > len("2026-03-01") else f"{text}T00:00Z"


def _wall_clock_time(moment: datetime, tz: tzinfo) -> datetime:
    """Return the first instant of a naive time on the clock of ``tz``, or the end of the gap around it."""
    first, second = moment.replace(tzinfo=tz), moment.replace(tzinfo=tz, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before >= after:
        return first
    # The clock jumps between these two: find the second of the jump.
    low, high = (moment - after).replace(tzinfo=UTC), (moment - before).replace(tzinfo=UTC)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        if middle.astimezone(tz).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)


def write_instant(instant: Instant) -> str:
    """Return RFC 3339 text in UTC, with milliseconds only if there are any: ``2026-03-01T08:00:00Z``."""
    moment = from_ms(instant).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if instant % 1000 else "seconds") + "Z"


def read_moment(
    moment: Moment, field: str, now: Instant, tz: tzinfo | None = None, *, ago: bool = False
) -> Instant:
    """Return the instant of a moment.

    With ``tz``, a text without an offset is a wall-clock time in that zone.
    With ``ago``, a duration counts back from now, and the text "now" is accepted; a duration with a plus
    sign, which means "from now", is refused.
    """
    sign = -1 if ago else 1
    if isinstance(moment, timedelta):
        return now + sign * read_duration(moment, field)
    if isinstance(moment, str):
        text = moment.strip().removeprefix("+")
        if ago and text != moment.strip():
            raise InvalidValue(
                f"{field} {shown(moment)} is in the future, and a past time is needed",
                field=field,
                value=moment,
                hint=f'write "{text}", which counts back from now',
            )
        if text != moment.strip() or is_duration(text):
            return now + sign * read_duration(text, field)
        if ago and text.lower() == "now":
            return now
        if _DATE.match(text) and read_date(moment) is None:
            raise _no_such_day(moment, field)
        if read_date(moment) is None:
            when = "ago" if ago else "from now"
            raise InvalidValue(
                f"{field} {shown(moment)} is neither a date and time nor a duration",
                field=field,
                value=moment,
                hint=f'write it like "2026-03-01T09:00:00Z", or "2h" for two hours {when}',
            )
    return read_instant(moment, field, tz)


def _no_such_day(text: str, field: str) -> InvalidValue:
    """Return the refusal of a text that begins like a date."""
    day = text.strip()[: len("2026-03-01")]
    if read_date(day) is None:
        problem, hint = "there is no such day", 'a date alone is enough: "2026-03-01"'
    else:
        problem, hint = "there is no such time", 'write it like "2026-03-01T09:00", or the date alone'
    return InvalidValue(f"{field} {shown(text)}: {problem}", field=field, value=text, hint=hint)


def read_period(
    since: Moment | None, until: Moment | None, now: Instant, tz: tzinfo | None = None
) -> tuple[Instant | None, Instant | None]:
    """Return the instants of a period, where they are given. A duration counts back from now.

    With ``tz``, a text without an offset is a wall-clock time in that zone.
    """
    start = None if since is None else read_moment(since, "since", now, tz, ago=True)
    end = None if until is None else read_moment(until, "until", now, tz, ago=True)
    if start is not None and end is not None and end <= start:
        raise InvalidValue(
            f"until {shown(until)} is not after the start {shown(since)}",
            field="until",
            value=until,
            hint="give a later end, or leave it out: until now",
        )
    return start, end
