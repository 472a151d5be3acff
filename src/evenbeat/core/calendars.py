"""Calendars as users get them back."""

from __future__ import annotations

from datetime import datetime

import msgspec

from evenbeat.core.results import ChangeWarning

LONGEST_ICS = 1_000_000
"""Characters."""
MOST_CALENDARS = 1_000
"""Of one tenant."""
YEARS_AHEAD = 10
"""For how many years holidays and repeated events are worked out."""


class CalendarEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of a calendar changes about one schedule: its next ticks."""

    schedule: str
    before: tuple[datetime, ...]
    after: tuple[datetime, ...]


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of days and times that schedules skip, or run only in."""

    name: str
    tenant: str
    days: tuple[str, ...]
    """``2026-12-25``, ``2026-12-24..2026-12-31``; every year ``12-25``."""
    weekly: tuple[str, ...]
    """Windows of every week: ``mon-fri 09:00-17:00``."""
    without: tuple[str, ...]
    """Days that are taken out again."""
    tz: str | None
    """The zone of its days and windows; None: that of each schedule."""
    country: str | None
    """The country whose holidays it has, like ``US``."""
    subdivision: str | None
    """The part of the country, like ``CA``."""
    events: int
    """How many days and spans came from a file in the iCalendar format."""
    covers_until: str | None
    """The last day, like ``2036-12-31``, that the holidays and events were worked out for; None if it has no
    end. Set the calendar again to renew it."""
    built_in: bool
    words: str
    """The calendar in plain English."""
    updated_at: datetime | None
    updated_by: str | None
    schedules: tuple[str, ...] = ()
    """The schedules that use it; in lists and after ``set`` the first few of them."""
    schedule_count: int | None = None
    """How many schedules use it; None in the list of a tenant with too many schedules to count them."""
    templates: tuple[str, ...] = ()
    """The templates whose trigger names it."""
    replanned: int = 0
    """In the result of ``set``: how many schedules got the new days; of a dry run, how many would."""
    effects: tuple[CalendarEffect, ...] = ()
    """Of a dry run: the next ticks of the first few of these schedules, before and after."""
    warnings: tuple[ChangeWarning, ...] = ()
    """In the result of ``set``: the schedules that have no tick any more; of a dry run, that would have
    none."""


class RemovedTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Coming ticks of the bare trigger that follow each other and do not run at their own time."""

    first: datetime
    last: datetime
    count: int
    calendars: tuple[str, ...]
    """Those that refuse each of them."""
    moved_to: datetime | None
    """When they run instead; None if they are left out."""


class ScheduleCalendars(msgspec.Struct, frozen=True, kw_only=True):
    """The calendars of a schedule, and what they remove next."""

    schedule: str
    tenant: str
    skip: tuple[str, ...]
    only: tuple[str, ...]
    move: str
    """``skip``, ``next`` or ``previous``: what becomes of a tick that they refuse."""
    removed: tuple[RemovedTicks, ...]
    """The next ticks that they remove or move, at most five ranges within a year."""


class CalendarDay(msgspec.Struct, frozen=True, kw_only=True):
    """A day that a calendar has, as a whole or in parts."""

    day: str
    """``2026-12-25``."""
    weekday: str
    times: tuple[str, ...]
    """``09:00-17:00``; empty: the whole day."""
