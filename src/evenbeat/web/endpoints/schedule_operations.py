"""Operate a schedule: pause, resume, move its next tick, run it now."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.results import ResumePreview
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.endpoints.schedule_answers import Payload, one_schedule
from evenbeat.web.idempotency import add_run
from evenbeat.web.shapes import TenantQuery, Text


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to pause a schedule."""

    note: Text = ""
    until: shapes.When | UnsetType = UNSET
    cancel_queued: bool = False


@endpoint(
    "POST",
    "/schedules/{name}/pause",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=Pause,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def pause_schedule(call: Call[TenantQuery, Pause]) -> object:
    """Pause a schedule until it is resumed, or until a time. It starts no run."""
    paused = call.app.schedules.pause(
        call.path["name"], tenant=call.owner, if_revision=call.if_revision, **shapes.given(call.body)
    )
    return one_schedule(call, paused)


CatchUpOfPause = Annotated[
    bool,
    Meta(description="The catch-up policy decides about the ticks of the pause, instead of skipping them."),
]


class Resume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to resume a schedule."""

    catch_up: CatchUpOfPause = False


@endpoint(
    "POST",
    "/schedules/{name}/resume",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=Resume,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def resume_schedule(call: Call[TenantQuery, Resume]) -> object:
    """End the pause of a schedule: its next tick fires again."""
    resumed = call.app.schedules.resume(
        call.path["name"], catch_up=call.body.catch_up, tenant=call.owner, if_revision=call.if_revision
    )
    return one_schedule(call, resumed)


class ResumeQuery(shapes.ZoneQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which resume to preview, and the zone of the times in the sentence."""

    catch_up: CatchUpOfPause = False


@endpoint(
    "GET",
    "/schedules/{name}/resume",
    role="viewer",
    scope="tenant",
    query=ResumeQuery,
    answer=body_of(ResumePreview),
)
def preview_resume(call: Call[ResumeQuery, Any]) -> object:
    """Return what a resume would do now: what becomes of the missed ticks. Nothing is changed."""
    return call.app.schedules.preview_resume(
        call.path["name"], catch_up=call.query.catch_up, tz=call.query.zone, tenant=call.owner
    )


class Reschedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to move the next tick."""

    at: shapes.When


@endpoint(
    "POST",
    "/schedules/{name}/reschedule",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=Reschedule,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def reschedule_schedule(call: Call[TenantQuery, Reschedule]) -> object:
    """Move the next tick, and only that one; later ticks follow the trigger."""
    moved = call.app.schedules.reschedule(
        call.path["name"], call.body.at, tenant=call.owner, if_revision=call.if_revision
    )
    return one_schedule(call, moved)


class RunNow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to run a schedule now."""

    payload: Payload = None


@endpoint(
    "POST",
    "/schedules/{name}/run",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=RunNow,
    answer=shapes.RUN,
    status=HTTPStatus.CREATED,
    is_idempotent=True,
)
def run_schedule(call: Call[TenantQuery, RunNow]) -> object:
    """Add one run at once, beside the ticks: the next tick stays where it is."""
    run = add_run(call, call.app.schedules.run_now, call.path["name"], call.body.payload)
    return shapes.run_body(call.principal, run)
