"""Instants: integer milliseconds since 1970-01-01 UTC inside, aware datetimes at the edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TypeAlias

from evenbeat.core.durations import is_duration, read_duration
from evenbeat.errors import InvalidValue, shown

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00:00Z."""

Moment: TypeAlias = datetime | timedelta | str
"""An aware datetime or its ISO 8601 text with an offset; or how long from now, like ``"2h"``."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

# A day inside what datetime can hold, so that no conversion to a local time overflows.
FIRST: Instant = -62_135_510_400_000  # 0001-01-02T00:00:00Z
LAST: Instant = 253_402_214_399_999  # 9999-12-30T23:59:59.999Z

_LONGEST_TEXT = 100


def to_ms(moment: datetime, field: str = "datetime") -> Instant:
    """The instant of an aware datetime, rounded down to the millisecond. A naive one is refused."""
    try:
        return (moment - EPOCH) // MILLISECOND
    except TypeError:  # the subtraction is the check: it costs nothing when all is well
        if not isinstance(moment, datetime):
            raise InvalidValue(
                f"{field} {shown(moment)} is not a datetime", field=field, value=moment
            ) from None
        raise InvalidValue(
            f"{field} {moment.isoformat()} has no time zone",
            field=field,
            value=moment,
            hint='say which one: datetime(…, tzinfo=UTC) or .replace(tzinfo=ZoneInfo("Europe/Berlin"))',
        ) from None


def to_ms_up(moment: datetime, field: str = "datetime") -> Instant:
    """The instant of an aware datetime, rounded up to the millisecond."""
    # Not by moment.microsecond: an offset may have microseconds, too.
    return to_ms(moment, field) + (1 if (moment - EPOCH) % MILLISECOND else 0)


def from_ms(instant: Instant, tz: tzinfo = UTC) -> datetime:
    """The aware datetime of an instant, in ``tz``."""
    # Whole seconds only: a float of seconds is off by 30 us at the far end of the calendar.
    moment = datetime.fromtimestamp(instant // 1000, tz)
    ms = instant % 1000
    return moment.replace(microsecond=ms * 1000) if ms else moment


def read_instant(value: datetime | str, field: str, tz: tzinfo | None = None) -> Instant:
    """An instant from an aware datetime or an ISO 8601 text with an offset.

    With ``tz``, a text without an offset is a wall-clock time there: one that the clock skips is the
    instant right after the gap, one that it repeats is the first of the two.
    """
    if isinstance(value, str):
        try:
            # No date is that long, and a slice would hide what stands behind it.
            moment = datetime.fromisoformat(value.strip() if len(value) <= _LONGEST_TEXT else "")
        except ValueError:
            raise InvalidValue(
                f"{field} {shown(value)} is not a date and time",
                field=field,
                value=value,
                hint='write it as "2026-03-01T09:00:00Z" or "2026-03-01T09:00:00+01:00"',
            ) from None
        if moment.tzinfo is None:
            if tz is None:
                raise InvalidValue(
                    f"{field} {shown(value)} has no offset and no time zone",
                    field=field,
                    value=value,
                    hint=f'write "{_in_utc(value.strip())}" if UTC is meant, or an offset such as +01:00',
                )
            moment = _on_the_wall(moment, tz)
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


def _in_utc(text: str) -> str:
    """A date, or a date and time, with the mark of UTC."""
    return f"{text}Z" if len(text) > len("2026-03-01") else f"{text}T00:00Z"


def _on_the_wall(moment: datetime, tz: tzinfo) -> datetime:
    """A naive moment on the clock of ``tz``: the first such instant, or the end of the gap it lies in."""
    first, second = moment.replace(tzinfo=tz), moment.replace(tzinfo=tz, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before >= after:
        return first
    # The clock jumps between these two: find the second at which it does.
    low, high = (moment - after).replace(tzinfo=UTC), (moment - before).replace(tzinfo=UTC)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        if middle.astimezone(tz).utcoffset() == after:
            high = middle
        else:
            low = middle
    return high.replace(microsecond=0)


def write_instant(instant: Instant) -> str:
    """RFC 3339 in UTC, with milliseconds only where there are some: ``2026-03-01T08:00:00Z``."""
    moment = from_ms(instant).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds" if instant % 1000 else "seconds") + "Z"


def read_moment(
    moment: Moment, field: str, now: Instant, tz: tzinfo | None = None, *, ago: bool = False
) -> Instant:
    """The instant that is meant. With ``tz``, a text without an offset is a wall-clock time there. With
    ``ago``, a duration counts back from now, and one with a plus sign, which means "from now", is refused."""
    sign = -1 if ago else 1
    if isinstance(moment, timedelta):
        return now + sign * read_duration(moment, field)
    if isinstance(moment, str):
        text = moment.strip().removeprefix("+")
        if ago and text != moment.strip():
            raise InvalidValue(
                f"{field} {shown(moment)} is a time to come, and the past is meant",
                field=field,
                value=moment,
                hint=f'write "{text}", which counts back from now',
            )
        if text != moment.strip() or is_duration(text):
            return now + sign * read_duration(text, field)
    return read_instant(moment, field, tz)
