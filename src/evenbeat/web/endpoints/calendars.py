"""Calendars: list, get, set, preview and delete them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.calendars import MOST_PREVIEWED
from evenbeat.core.calendars import LONGEST_ICS, Calendar, CalendarDay
from evenbeat.triggers.calendar_texts import MOST_TEXTS
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import TenantQuery, Zone

CALENDAR = body_of(Calendar)
DayText = Annotated[
    str, Meta(max_length=40, description="`2026-12-25`, `2026-12-24..2026-12-31`, every year `12-25`.")
]
WeekText = Annotated[str, Meta(max_length=60, description="`mon-fri 09:00-17:00`.")]
DayTexts = Annotated[list[DayText], Meta(max_length=MOST_TEXTS)]


@endpoint(
    "GET",
    "/calendars",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=list_of("Calendars", CALENDAR),
)
def list_calendars(call: Call[TenantQuery, Any]) -> object:
    """List the calendars, the built-in ones first, each with the first schedules that use it."""
    return {"items": call.app.calendars.list(tenant=call.owner)}


@endpoint("GET", "/calendars/{name}", role="viewer", scope="tenant", query=TenantQuery, answer=CALENDAR)
def get_calendar(call: Call[TenantQuery, Any]) -> object:
    """Return a calendar, with the schedules that use it."""
    return call.app.calendars.get(call.path["name"], tenant=call.owner)


class WantedCalendar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a calendar contains: at least one of days, weekly, country and ics."""

    days: DayTexts | UnsetType = UNSET
    weekly: Annotated[list[WeekText], Meta(max_length=1000)] | UnsetType = UNSET
    without: DayTexts | UnsetType = UNSET
    tz: (
        Annotated[
            str, Meta(min_length=1, max_length=100, description="An IANA name; by default each schedule's.")
        ]
        | None
    ) = None
    country: Annotated[str, Meta(max_length=10, description="Its holidays: `US`.")] | None = None
    subdivision: Annotated[str, Meta(max_length=20, description="A part of the country: `CA`.")] | None = None
    ics: (
        Annotated[
            str, Meta(max_length=LONGEST_ICS, description="The text of a file in the iCalendar format.")
        ]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="Show what would change, and change nothing.")] = False


@endpoint(
    "POST",
    "/calendars/{name}",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    body=WantedCalendar,
    answer=CALENDAR,
)
def set_calendar(call: Call[TenantQuery, WantedCalendar]) -> object:
    """Create a calendar, or replace what it contains: the schedules that use it are planned anew."""
    return call.app.calendars.set(call.path["name"], tenant=call.owner, **shapes.given(call.body))


@endpoint(
    "DELETE",
    "/calendars/{name}",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
)
def delete_calendar(call: Call[TenantQuery, Any]) -> object:
    """Delete a calendar that no schedule and no template uses."""
    call.app.calendars.delete(call.path["name"], tenant=call.owner)
    return None


class DaysQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects days."""

    since: Annotated[str, Meta(max_length=10, description="`2026-12-01`; by default today.")] | UnsetType = (
        UNSET
    )
    count: Annotated[int, Meta(ge=1, le=MOST_PREVIEWED, description="Of so many days.")] = 366
    tz: Zone | UnsetType = UNSET


@endpoint(
    "GET",
    "/calendars/{name}/days",
    role="viewer",
    scope="tenant",
    query=DaysQuery,
    answer=list_of("CalendarDays", body_of(CalendarDay)),
)
def preview_calendar(call: Call[DaysQuery, Any]) -> object:
    """List the days of a calendar among the ``count`` days from ``since``."""
    chosen = {**shapes.given(call.query), "tenant": call.owner}
    return {"items": call.app.calendars.preview(call.path["name"], **chosen)}
