"""Backfills: make one of a schedule, list, read and cancel them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.schedules.backfilling import LONGEST_ID
from evenbeat.core.backfills import MOST_CONCURRENT, Backfill, BackfillOrder
from evenbeat.core.checks import LABEL_PATTERN
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Limit, Name, Since, TenantQuery, TenantsQuery

BACKFILL = body_of(Backfill, payload_text=str | None)
Priority = Annotated[int, Meta(ge=0, le=9)] | Literal["low", "normal", "high"]
BackfillId = Annotated[
    str,
    Meta(
        pattern=LABEL_PATTERN,
        max_length=LONGEST_ID,
        description="By default it follows from the schedule and the range: a repeated request adds nothing.",
    ),
]


class NewBackfill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range of a backfill, and how to run it."""

    start: Since
    end: Since
    max_concurrent: Annotated[int, Meta(ge=1, le=MOST_CONCURRENT)] = 1
    """At most so many of its runs are queued or running."""
    order: BackfillOrder = "oldest"
    priority: Priority = "low"
    payload: dict[str, Any] | None = None
    missing_only: bool = False
    """Leave out ticks that have a succeeded run."""
    dry_run: bool = False
    """Only say what it would do, in ``plan``."""
    id: BackfillId | UnsetType = UNSET


@endpoint(
    "POST",
    "/schedules/{name}/backfill",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=NewBackfill,
    answer=BACKFILL,
)
def backfill_schedule(call: Call[TenantQuery, NewBackfill]) -> object:
    """Add a run for each tick of a past range, a few at a time. The same request again adds nothing."""
    made = call.app.schedules.backfill(call.path["name"], **shapes.given(call.body), tenant=call.owner)
    return shapes.backfill_body(call.principal, made)


class BackfillQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which backfills to list."""

    schedule: Name | UnsetType = UNSET
    limit: Limit = 100


@endpoint(
    "GET",
    "/backfills",
    role="viewer",
    scope="tenant",
    query=BackfillQuery,
    answer=list_of("Backfills", BACKFILL),
)
def list_backfills(call: Call[BackfillQuery, Any]) -> object:
    """List the backfills, the newest first. One that is over is kept for 90 days."""
    schedule = None if call.query.schedule is UNSET else call.query.schedule
    found = call.app.backfills.list(schedule=schedule, limit=call.query.limit, **call.tenants)
    return {"items": [shapes.backfill_body(call.principal, each) for each in found]}


@endpoint("GET", "/backfills/{id}", role="viewer", scope="tenant", query=TenantQuery, answer=BACKFILL)
def get_backfill(call: Call[TenantQuery, Any]) -> object:
    """Return a backfill, and how far it is."""
    return shapes.backfill_body(call.principal, call.app.backfills.get(call.path["id"], tenant=call.owner))


@endpoint(
    "POST", "/backfills/{id}/cancel", role="operator", scope="tenant", query=TenantQuery, answer=BACKFILL
)
def cancel_backfill(call: Call[TenantQuery, Any]) -> object:
    """Add no further runs, cancel the queued ones, and ask running ones to stop."""
    found = call.app.backfills.cancel(call.path["id"], tenant=call.owner)
    return shapes.backfill_body(call.principal, found)
