"""Calendars as stores keep them, and the copies that schedules keep of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.errors import InvalidTrigger
from evenbeat.rules.calendars import readable_contents
from evenbeat.triggers import Calendared, parse_trigger
from evenbeat.triggers.calendar_copies import CalendarCopies
from evenbeat.triggers.time_sets import BUILT_IN, TimeSet

KIND = "calendar"


class StoredCalendar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a calendar's record: what the user gave, and the times that follow from it."""

    days: tuple[str, ...] = ()
    weekly: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    tz: str | None = None
    country: str | None = None
    subdivision: str | None = None
    events: int = 0
    covers_until: int | None = None
    """The last day, since 1970-01-01, that holidays and events were worked out for."""
    times: TimeSet = TimeSet()
    updated_at: Instant = 0
    updated_by: str = ""


# Made at import, not when the first record is read: see the end of core/records.py.
_bodies = msgspec.json.Decoder(StoredCalendar)


def read_calendar(record: Record) -> StoredCalendar | None:
    """Return the calendar of a record; None if it can't be read."""
    try:
        return _bodies.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def times_of(records: Iterable[Record]) -> dict[str, TimeSet]:
    """Return what the calendars contain, by name, without those that can't be read."""
    found = {record.key: read_calendar(record) for record in records}
    return {name: calendar.times for name, calendar in found.items() if calendar is not None}


def named_calendars(trigger: str) -> tuple[str, ...]:
    """Return the names of the calendars in a trigger's text; none if it can't be read."""
    try:
        found = parse_trigger(trigger)
    except InvalidTrigger:
        return ()
    return found.names if isinstance(found, Calendared) else ()


def uses(schedule: ScheduleRecord, name: str) -> bool:
    """Return whether a schedule names the calendar. Most schedules have none, and are not read further."""
    return bool(schedule.calendars) and name in named_calendars(schedule.trigger)


def new_copies(schedule: ScheduleRecord, times: Mapping[str, TimeSet]) -> str | None:
    """Return the copies that a schedule should get of its calendars; None if it has these contents, or if one
    of the calendars is gone: then the schedule keeps what it has."""
    names = named_calendars(schedule.trigger)
    known = {**times, **BUILT_IN}
    if not names or any(name not in known for name in names):
        return None
    copies = CalendarCopies.of({name: known[name] for name in names}).text
    # A new copy mends one that can't be read.
    return None if copies == readable_contents(schedule.calendars) else copies
