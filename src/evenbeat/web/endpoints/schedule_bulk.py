"""Act on all schedules that match."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.errors import InvalidValue
from evenbeat.web import shapes
from evenbeat.web.access import authorize
from evenbeat.web.bodies import bulk_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.endpoints.schedule_answers import schedule_bodies
from evenbeat.web.endpoints.schedule_operations import CatchUpOfPause
from evenbeat.web.endpoints.schedules import ScheduleChanges, ScheduleFilter
from evenbeat.web.shapes import Name, TenantsQuery, Text


class BulkScheduleFilter(ScheduleFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects schedules, by names, too."""

    names: (
        Annotated[list[Name], Meta(max_length=1000, description="Only these schedules, of one tenant.")]
        | UnsetType
    ) = UNSET


class BulkSchedules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with the schedules that match."""

    action: Literal["pause", "resume", "run", "update", "delete"]
    filter: BulkScheduleFilter
    note: Text = ""
    """With ``pause``: why."""
    until: shapes.When | UnsetType = UNSET
    """With ``pause``: until when."""
    catch_up: CatchUpOfPause = False
    """With ``resume``."""
    changes: ScheduleChanges | UnsetType = UNSET  # type: ignore[valid-type]  # made at run time
    """With ``update``: what to change, as in ``PATCH /schedules/{name}``."""
    dry_run: bool = True
    """Only check them: count those that match, name those that would be refused, and show a sample. Send
    false to do it."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


BULK_SCHEDULES = bulk_of("BulkSchedulesResult", shapes.SCHEDULE)


@endpoint(
    "POST",
    "/bulk/schedules",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    body=BulkSchedules,
    answer=BULK_SCHEDULES,
)
def bulk_schedules(call: Call[TenantsQuery, BulkSchedules]) -> object:
    """Pause, resume, run, update or delete all schedules that match; by default only count them and show a
    sample.

    Updating and deleting need the role admin. Each schedule gets all changes or none.
    """
    wanted = call.body
    if wanted.action in ("delete", "update"):
        authorize(call.principal, "admin")
    chosen = {**shapes.given(wanted.filter), **call.tenants, **_bulk_options(wanted)}
    act: Any = getattr(call.app.schedules, f"{wanted.action}_all")
    result = act(limit=wanted.limit, dry_run=wanted.dry_run, **chosen)
    sample = list(result.sample)
    stats = call.app.schedules.stats(sample)
    return {
        **shapes.with_properties(result),
        "sample": schedule_bodies(call, zip(sample, stats, strict=True)),
    }


# The fields of a bulk change that go with one action.
_OF_ACTION = {"note": "pause", "until": "pause", "catch_up": "resume", "changes": "update"}


_NOTHING: tuple[Any, ...] = (UNSET, "", False)


def _bulk_options(wanted: BulkSchedules) -> dict[str, Any]:
    """Return the arguments of the action; refuse those of another one."""
    options: dict[str, Any] = {}
    for field, action in _OF_ACTION.items():
        value = getattr(wanted, field)
        if value in _NOTHING:
            continue
        if wanted.action != action:
            raise InvalidValue(
                f"{field} goes with the action {action}", field=field, value=value, hint="leave it out"
            )
        options[field] = value
    if wanted.action == "update":
        options["changes"] = shapes.given(options["changes"]) if "changes" in options else {}
    return options
