"""Cells: the heat map of a schedule, and the timeline of many."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.lanes import MOST_LANES
from evenbeat.core.cells import CellLength, HeatMap, ScheduleTimeline
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.endpoints.schedules import ScheduleFilter
from evenbeat.web.search import CatalogueQuery
from evenbeat.web.shapes import Cursor, Label, Since, TenantQuery, When, Zone


class CellsQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Since = "7d"
    until: When = "2d"
    by: CellLength = "hour"
    tz: Zone | UnsetType = UNSET


@endpoint(
    "GET", "/schedules/{name}/cells", role="viewer", scope="tenant", query=CellsQuery, answer=body_of(HeatMap)
)
def schedule_cells(call: Call[CellsQuery, Any]) -> object:
    """Return what became of the ticks of a schedule, and its ticks to come, in hours or days of a zone.

    Hours reach back 40 days and ahead 31 days, days 400 and 366.
    """
    chosen = shapes.given(call.query)
    chosen.pop("tenant", None)
    return call.app.schedules.cells(call.path["name"], tenant=call.owner, **chosen)


class TimelineQuery(ScheduleFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects schedules, a page of them, and a range of time."""

    # As in TenantsQuery: a struct has one base.
    tenant: Label | UnsetType = UNSET
    all_tenants: bool = False
    since: Since = "1h"
    until: When = "1h"
    limit: Annotated[int, Meta(ge=1, le=MOST_LANES)] = 50
    cursor: Cursor | UnsetType = UNSET


@endpoint(
    "GET",
    "/timeline",
    role="viewer",
    scope="tenant",
    query=TimelineQuery,
    answer=body_of(ScheduleTimeline, cursor=str | None),
)
def timeline(call: Call[TimelineQuery, Any]) -> object:
    """Return the ticks of many schedules over a range, past and future, in at most 360 columns.

    Reaches back 40 days and ahead 31 days. The schedules and their order are those of GET /schedules.
    """
    chosen = {**shapes.given(call.query), "tenant": call.tenant}
    for name in ("all_tenants", "since", "until"):
        del chosen[name]
    page = call.state.search(CatalogueQuery(**chosen))
    found = call.app.timeline_of(page.keys, call.query.since, call.query.until)
    return {**shapes.with_properties(found), "cursor": page.cursor}
