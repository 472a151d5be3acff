"""Moments as people read and write them in a terminal: in the local zone, and from now."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import NamedTuple

from evenbeat.cli.local import LocalZone, local_zone
from evenbeat.core.instants import Instant, read_instant, read_moment, to_ms
from evenbeat.errors import InvalidValue, shown
from evenbeat.observe.phrases import date_time, span, timespec

_WEEK = 6
_DAY = timedelta(days=1)
_TIME_OF_DAY = re.compile(r"\d\d?:\d\d(:\d\d)?", re.ASCII)
_NOW = 1_000
_SOON = 600_000


class LocalTime(NamedTuple):
    """The local zone, and ``now`` by the store's clock."""

    zone: LocalZone
    now: Instant

    @classmethod
    def at(cls, now: Instant) -> LocalTime:
        return cls(local_zone(), now)

    def full(self, moment: datetime) -> str:
        """Return ``Mon 2026-03-02 09:00 +01:00``."""
        instant = whole(to_ms(moment))
        return date_time(self.zone.show(instant), timespec([instant]))

    def near(self, moment: datetime) -> str:
        """Return the shortest clear text: ``09:00`` today, ``Tue 09:00`` this week, else the date."""
        instant = to_ms(moment)
        there, here = self.zone.show(instant), self.zone.show(self.now)
        time = there.time().isoformat("minutes" if instant % 60_000 == 0 else "seconds")
        days = abs((there.date() - here.date()).days)
        if days == 0:
            return time
        return f"{there:%a} {time}" if days <= _WEEK else f"{there.date()} {time}"

    def away(self, moment: datetime) -> str:
        """Return ``in 3 h 12 min``, ``2 d ago`` or ``now``."""
        ms = to_ms(moment) - self.now
        if abs(ms) < _NOW:
            return "now"
        # Milliseconds beside seconds, and soon seconds beside minutes, only distract.
        unit = 1_000 if abs(ms) < _SOON else 60_000
        near = abs(ms) // unit * unit
        return f"in {span(near)}" if ms > 0 else f"{span(near)} ago"

    def ago(self, moment: datetime) -> str:
        """Return ``2 h ago``: the largest unit, for a moment in the past."""
        words = self.away(moment)
        return words if words == "now" else " ".join(words.split()[:2]) + " ago"

    def read(self, text: str, field: str) -> Instant:
        """Return a time to come: a date and time (local without an offset), the next such time of day, or a
        duration from now (``2h``, ``+2h``)."""
        try:
            if _TIME_OF_DAY.fullmatch(text.strip()):
                return self._time_of_day(text.strip(), field, self.now)
            return read_moment(text, field, self.now, self.zone.tzinfo)
        except InvalidValue as error:
            raise InvalidValue(
                f"{field} {shown(text)} is neither a date and time nor a duration",
                field=field,
                value=text,
                hint='write 18:00 or 2026-03-01T09:00, in your zone unless it has an offset, or "+2h"',
            ) from error

    def read_window(self, since: str | None, until: str | None) -> tuple[Instant | None, Instant | None]:
        """Return a period of the past from dates and times, durations before now (``2h``), or times of day.

        A time of day is the latest one in the past; as an end, the first one after the start.
        """
        start = None if since is None else self._read_past(since, "--since", None)
        end = None if until is None else self._read_past(until, "--until", start)
        if start is not None and end is not None and end <= start:
            raise InvalidValue(
                f"--until {until} is not after --since {since}",
                field="until",
                value=until,
                hint="leave it out to look until now",
            )
        return start, end

    def _read_past(self, text: str, field: str, after: Instant | None) -> Instant:
        if text.strip().startswith("+"):
            raise InvalidValue(
                f"{field} {text.strip()} is in the future, and a past time is needed",
                field=field,
                value=text,
                hint=f"write {text.strip().removeprefix('+')}, which counts back from now",
            )
        try:
            if _TIME_OF_DAY.fullmatch(text.strip()):
                return self._time_of_day(text.strip(), field, after)
            return read_moment(text, field, self.now, self.zone.tzinfo, ago=True)
        except InvalidValue as error:
            raise InvalidValue(
                f"{field} {shown(text)} is neither a time nor a duration",
                field=field,
                value=text,
                hint='write 02:55 or 2026-03-01T02:55, in your zone unless it has an offset, or "2h" ago',
            ) from error

    def _time_of_day(self, text: str, field: str, after: Instant | None) -> Instant:
        """Return the first such time after ``after``; without that, the latest one in the past."""
        hour, _, rest = text.partition(":")
        day = self.zone.show(self.now if after is None else after).date()

        def on(date: date) -> Instant:
            return read_instant(f"{date}T{hour:0>2}:{rest}", field, self.zone.tzinfo)

        if after is None:
            return on(day) if on(day) <= self.now else on(day - _DAY)
        return on(day) if on(day) > after else on(day + _DAY)


def whole(ms: int) -> int:
    return ms - ms % 1000
