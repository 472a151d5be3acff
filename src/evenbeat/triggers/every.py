"""Every: a fixed period of real time, in phase with its start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import overload

from evenbeat.core.durations import Duration, read_duration, write_duration
from evenbeat.core.instants import FIRST, LAST, Instant, read_instant, write_instant
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.calendar_moves import Move
from evenbeat.triggers.calendar_options import with_calendars
from evenbeat.triggers.calendared import Calendared
from evenbeat.triggers.words import explain_bounds, explain_period

_MACRO = "@every"


class Every(Trigger, frozen=True, cache_hash=True):
    """A trigger with ticks at start, start + period, start + 2 periods, …; once, at start, if the period is
    0.

    Without a start the ticks have no beginning, and their phase counts from 1970-01-01T00:00:00Z, so
    that nodes which share nothing still agree on them. Made by ``every(…)``.
    """

    period: int
    """Milliseconds."""
    start: Instant | None = None
    until: Instant | None = None

    def next_ms(self, after: Instant) -> Instant | None:
        first = FIRST if self.start is None else self.start
        if after < first:
            after = first - 1
        anchor, period = self.start or 0, self.period
        if period == 0:
            return anchor if after < anchor else None
        tick = anchor + ((after - anchor) // period + 1) * period
        return tick if tick <= (LAST if self.until is None else self.until) else None

    def prev_ms(self, before: Instant) -> Instant | None:
        last = LAST if self.until is None else self.until
        if before > last:
            before = last + 1
        anchor, period = self.start or 0, self.period
        if period == 0:
            return anchor if before > anchor else None
        tick = anchor + -((anchor - before) // period + 1) * period
        return tick if tick >= (FIRST if self.start is None else self.start) else None

    def count_ms(self, start: Instant, end: Instant) -> int:
        first, last = self.next_ms(start - 1), self.prev_ms(end)
        if first is None or last is None or last < first:
            return 0
        return 1 if self.period == 0 else (last - first) // self.period + 1

    def explain(self) -> str:
        if self.period == 0:
            assert self.start is not None
            return f"once, at {write_instant(self.start)}"
        words = explain_period(self.period)
        if self.start is None:
            return f"{words}, counted from 1970-01-01T00:00:00Z{explain_bounds(None, self.until)}"
        return words + explain_bounds(self.start, self.until)

    def bind(self, name: str, since: Instant) -> Every:
        if self.start is not None:
            return self
        last = LAST if self.until is None else self.until
        # The first tick of a new schedule is one period away, not at once. If the end comes before,
        # no tick is left; a start that is past by then says so in a text that can be read back.
        first = since + self.period
        return Every(self.period, first if first <= last else min(since, last), self.until)

    def __str__(self) -> str:
        options = [
            "" if self.start is None else f"start={write_instant(self.start)}",
            "" if self.until is None else f"until={write_instant(self.until)}",
        ]
        return " ".join(["every", write_duration(self.period), *filter(None, options)])


@overload
def every(
    period: Duration, *, start: datetime | str | None = None, until: datetime | str | None = None
) -> Every: ...
@overload
def every(
    period: Duration,
    *,
    start: datetime | str | None = None,
    until: datetime | str | None = None,
    skip: str | Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    move: Move | None = None,
) -> Every | Calendared: ...
def every(
    period: Duration,
    *,
    start: datetime | str | None = None,
    until: datetime | str | None = None,
    skip: str | Sequence[str] | None = None,
    only: str | Sequence[str] | None = None,
    move: Move | None = None,
) -> Every | Calendared:
    """Return a trigger with ticks at a fixed period of real time: ``every("10m")``,
    ``every(timedelta(hours=6))``.

    A bare number is seconds. ``start`` is the first tick and fixes the phase; ``until`` is inclusive.
    A period of 0 means once, at ``start``. Clock changes do not matter: a day is 24 hours. ``skip`` and
    ``only`` name calendars, as for ``cron``; without a zone of its own, a calendar counts days of UTC.
    """
    ms = read_duration(period, "every")
    first = None if start is None else read_instant(start, "start")
    last = None if until is None else read_instant(until, "until")
    if ms == 0 and first is None:
        raise InvalidValue(
            "every 0 runs once, but it does not say when",
            field="start",
            value=None,
            hint='give start, or write at("2026-03-01T09:00:00Z")',
        )
    if first is not None and last is not None and last < first:
        raise InvalidValue(
            f"until {write_instant(last)} is before start {write_instant(first)}",
            field="until",
            value=until,
            hint="the first tick would never come",
        )
    found = with_calendars(Every(ms, first, last), skip, only, move)
    assert isinstance(found, (Every, Calendared))
    return found


def read_every_macro(text: str) -> str | None:
    """Return the period of ``@every 10s``; None for another text."""
    head = text[:64].lstrip()
    if head[: len(_MACRO)].lower() != _MACRO:
        return None
    period = text.strip()[len(_MACRO) :]
    if not period[:1].isspace():
        raise InvalidTrigger(
            text, " is not a known macro", field="expression", value=text, hint="write @every 10s"
        )
    return period
