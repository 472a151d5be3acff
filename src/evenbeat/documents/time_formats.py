"""Times in databases without a type for them: texts, seconds or milliseconds."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import ROUND_CEILING, Context, Decimal, InvalidOperation
from typing import Final, Literal, TypeAlias, assert_never

from evenbeat.core.instants import EPOCH, FIRST, LAST, MILLISECOND, Instant, from_ms
from evenbeat.errors import InvalidValue, shown

TimeFormat: TypeAlias = Literal["text", "seconds", "milliseconds"]
"""ISO 8601 texts; or numbers, or texts of numbers: seconds or milliseconds since 1970-01-01 UTC."""

_FORMS: Final = ("text", "seconds", "milliseconds")
# No time has a longer text, and a number of so many digits fits into the precision below.
_LONGEST = 100
_EXACT = Context(prec=2 * _LONGEST, traps=[InvalidOperation])
_MANY_SECONDS = 1e11
_DIGITS = {"seconds": 3, "milliseconds": 0}

_TEXT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:(?P<between>[ Tt])(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r"(?P<zone> ?(?:[Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?))?)?"
)


def check(form: object, field: str = "times") -> TimeFormat:
    """Refuse a value that is not a format."""
    for known in _FORMS:
        if form == known:
            return known
    raise InvalidValue(f"{field} {shown(form)} is not one of {', '.join(_FORMS)}", field=field, value=form)


def read(value: object, form: TimeFormat, field: str = "sleep_until") -> Instant | None:
    """Return the instant of a value, rounded up to the millisecond, so that none is early. A text without an
    offset is in UTC. None for an empty value; ``InvalidValue`` for any other that is not a time."""
    if value is None or value == "" or value == b"":
        return None
    # Most times are milliseconds that Evenbeat wrote, and need no exact arithmetic.
    if type(value) is int and form == "milliseconds":
        instant = value
    else:
        text = _as_text(value)
        found = _read_text(text) if form == "text" else _read_number(text, _DIGITS[form])
        # Where times are texts, a number is not a time.
        if found is None or (form == "text" and not isinstance(value, str | bytes)):
            raise InvalidValue(
                f"{field} {shown(value)} is not a time", field=field, value=value, hint=_hint(form)
            )
        instant = found
    if not FIRST <= instant <= LAST:
        raise InvalidValue(f"{field} {shown(value)} is outside the years 1 to 9999", field=field, value=value)
    return instant


def write(instant: Instant, form: TimeFormat, like: object = None) -> str | int | float:
    """Return the value of an instant, exact to the millisecond: ``read`` returns the same instant.

    ``like`` is a value whose style is kept: whether a text has a space or a T, and Z, an offset or neither;
    whether a number is a text. Without it, a text is RFC 3339 in UTC. Milliseconds are written only where
    they are not 0.
    """
    if form == "text":
        return _write_text(instant, _as_text(like))
    if form == "milliseconds":
        number: int | float = instant
    elif form == "seconds":
        number = instant / 1000 if instant % 1000 else instant // 1000
    else:
        assert_never(form)
    return str(number) if isinstance(like, str | bytes) else number


def advice(value: object) -> str:
    """Return what to do about a value that is not a time in the given format."""
    if isinstance(value, int | float):
        # In seconds it would be the year 5138.
        return f'set times="{"milliseconds" if abs(value) >= _MANY_SECONDS else "seconds"}"'
    if isinstance(value, str) and _read_text(value.strip()) is not None:
        return 'set times="text"'
    return "write it as 2026-03-01T09:00:00Z, or as a number"


def _hint(form: TimeFormat) -> str:
    if form == "text":
        return 'write it as 2026-03-01T09:00:00Z; if times are numbers, set times="seconds" or "milliseconds"'
    return f'write it as a number of {form} since 1970; if times are texts like 2026-03-01, set times="text"'


def _as_text(value: object) -> str:
    """Return the text of a text or number; for anything else, a text that is not a time."""
    if isinstance(value, bytes):
        return value.decode(errors="replace").strip()
    if isinstance(value, str):
        return value.strip()
    # The shortest text of this float is the number that was meant: 1773050400.123, not …122999907.
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _read_text(text: str) -> Instant | None:
    found = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    try:
        day = datetime.fromisoformat(found["date"]).replace(tzinfo=UTC)
        hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
        # Raises ValueError for 24 hours or 60 minutes.
        moment = day.replace(hour=hour, minute=minute, second=second)
        whole = (moment - EPOCH) // MILLISECOND - _offset(found) // MILLISECOND
    except ValueError:
        return None
    fraction = (found["fraction"] or "").ljust(3, "0")
    return whole + int(fraction[:3]) + (1 if fraction[3:].strip("0") else 0)


def _offset(found: re.Match[str]) -> timedelta:
    if found["sign"] is None:
        return timedelta(0)
    offset = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
    if offset >= timedelta(days=1) or int(found["minutes"] or 0) > 59:
        raise ValueError("the offset is out of range")
    return -offset if found["sign"] == "-" else offset


def _read_number(text: str, digits: int) -> Instant | None:
    try:
        number = Decimal(text) if len(text) <= _LONGEST else Decimal("nan")
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    if not -LAST <= number <= LAST:
        # As an int it could fill the memory: 1e999999999.
        return LAST + 1
    return int(number.scaleb(digits, _EXACT).to_integral_value(rounding=ROUND_CEILING))


def _write_text(instant: Instant, like: str) -> str:
    found = _TEXT.fullmatch(like) if len(like) <= _LONGEST else None
    between, zone, offset = "T", "Z", timedelta(0)
    if found is not None:
        with contextlib.suppress(ValueError):  # an invalid offset is ignored
            between, zone, offset = found["between"] or " ", found["zone"] or "", _offset(found)
    moment = from_ms(instant, timezone(offset)).replace(tzinfo=None)
    return moment.isoformat(sep=between, timespec="milliseconds" if instant % 1000 else "seconds") + zone
