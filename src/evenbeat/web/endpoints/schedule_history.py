"""Ticks of a schedule: those to come, those that were skipped, its statistics, and what it waits for."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from evenbeat.core.calendars import ScheduleCalendars
from evenbeat.core.dependencies import Dependencies
from evenbeat.core.results import ScheduleStats, SkippedTicks
from evenbeat.web import shapes
from evenbeat.web.bodies import Moment, body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Limit, TenantQuery


@endpoint(
    "GET",
    "/schedules/{name}/dependencies",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(Dependencies),
)
def get_dependencies(call: Call[TenantQuery, Any]) -> object:
    """Return what a schedule waits for, with the last successes, and the schedules that wait for it."""
    return call.app.schedules.dependencies(call.path["name"], tenant=call.owner)


@endpoint(
    "GET",
    "/schedules/{name}/calendars",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(ScheduleCalendars),
)
def get_schedule_calendars(call: Call[TenantQuery, Any]) -> object:
    """Return the calendars that a schedule's trigger names, and the next ticks that they remove."""
    return call.app.schedules.calendars(call.path["name"], tenant=call.owner)


class TicksQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=1000)] = 10


@endpoint(
    "GET",
    "/schedules/{name}/ticks",
    role="viewer",
    scope="tenant",
    query=TicksQuery,
    answer=list_of("Ticks", Moment),
)
def schedule_ticks(call: Call[TicksQuery, Any]) -> object:
    """Return the coming ticks of a schedule."""
    name = call.path["name"]
    return {"items": call.app.schedules.preview(name, call.query.count, tenant=call.owner)}


class LedgerQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100


@endpoint(
    "GET",
    "/schedules/{name}/skipped",
    role="viewer",
    scope="tenant",
    query=LedgerQuery,
    answer=list_of("Ledger", body_of(SkippedTicks)),
)
def schedule_skipped(call: Call[LedgerQuery, Any]) -> object:
    """Return the ticks that did not become runs of their own, and why; the newest first."""
    name = call.path["name"]
    return {"items": call.app.schedules.skipped(name, call.query.limit, tenant=call.owner)}


@endpoint(
    "GET",
    "/schedules/{name}/stats",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(ScheduleStats),
)
def schedule_stats(call: Call[TenantQuery, Any]) -> object:
    """Return how often a schedule ran, when last, and its last error; purged runs are counted, too."""
    stats = call.app.schedules.stats(call.path["name"], tenant=call.owner)
    return shapes.with_masked_texts(call.principal, stats)
