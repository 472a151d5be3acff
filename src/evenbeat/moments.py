"""Moments as users say them: a datetime, its text, or how long from now."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from typing import TypeAlias

from evenbeat.durations import is_duration, read_duration
from evenbeat.errors import InvalidValue, shown
from evenbeat.instants import Instant, read_instant

Moment: TypeAlias = datetime | timedelta | str
"""An aware datetime or its ISO 8601 text with an offset; or how long from now, like ``"2h"``."""


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
                f"{field} {shown(moment)} is a time to come, and the past is meant", field=field,
                value=moment, hint=f'write "{text}", which counts back from now',
            )  # fmt: skip
        if text != moment.strip() or is_duration(text):
            return now + sign * read_duration(text, field)
    return read_instant(moment, field, tz)
