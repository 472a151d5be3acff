"""Schedules: list, get, create, change, pause, resume, run, move, reset and delete."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.schedules.history import MOST_RECENT
from evenbeat.core.calendars import ScheduleCalendars
from evenbeat.core.dependencies import Dependencies
from evenbeat.core.options import NEW_SCHEDULE, SCHEDULE
from evenbeat.core.results import ResumePreview, Schedule, ScheduleStats, SkippedTicks
from evenbeat.errors import InvalidValue, ScheduleExists, ScheduleNotFound
from evenbeat.rules.inheritance import INHERITABLE
from evenbeat.rules.schedule_filters import NAME_GLOB
from evenbeat.web import shapes
from evenbeat.web.access import authorize
from evenbeat.web.bodies import Moment, body_of, bulk_of, list_of, page_of
from evenbeat.web.endpoint import Call, Reply, endpoint
from evenbeat.web.idempotency import Creation, add_run, begin, gone
from evenbeat.web.paging import Part, bounded
from evenbeat.web.search import CatalogueQuery, Sort
from evenbeat.web.shapes import Cursor, Label, Limit, Name, TaskName, TenantQuery, TenantsQuery, Text

Payload = dict[str, Any] | None
ManagedBy = Annotated[
    Literal["code", "file", "api"],
    Meta(description="`code`: schedules that the code declares; `file`: those of a file; `api`: the others."),
]


Recent = Annotated[
    int, Meta(ge=0, le=MOST_RECENT, description="Add so many of the last runs of each schedule.")
]


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects schedules."""

    text: (
        Annotated[str, Meta(max_length=200, description="Part of the name, description, task or a tag.")]
        | UnsetType
    ) = UNSET
    name: (
        Annotated[
            str,
            Meta(
                pattern=NAME_GLOB,
                max_length=200,
                description="A pattern of names: `report-*`. `*` stands for any characters, `?` for one; "
                "upper and lower case differ.",
            ),
        ]
        | UnsetType
    ) = UNSET
    state: Literal["active", "paused", "finished"] | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
    queue: Label | UnsetType = UNSET
    managed_by: ManagedBy | UnsetType = UNSET
    template: Annotated[Label, Meta(description="The template from which it inherits.")] | UnsetType = UNSET
    failing: Annotated[bool, Meta(description="Whether its last run failed.")] | UnsetType = UNSET
    late: (
        Annotated[bool, Meta(description="Whether it should have fired more than 30 s ago.")] | UnsetType
    ) = UNSET


class ScheduleSearch(ScheduleFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects schedules, and a page of them."""

    # As in TenantsQuery: a struct has one base.
    tenant: Label | UnsetType = UNSET
    all_tenants: bool = False
    sort: Sort = "name"
    recent: Recent = 0
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET


SCHEDULES = page_of(
    "Schedules",
    shapes.SCHEDULE,
    matched=Annotated[int, Meta(ge=0, le=1000, description="How many match, up to 1,000.")],
    more_match=Annotated[bool, Meta(description="Whether more than 1,000 match.")],
)


@endpoint("GET", "/schedules", role="viewer", scope="tenant", query=ScheduleSearch, answer=SCHEDULES)
def list_schedules(call: Call[ScheduleSearch, Any]) -> object:
    """List schedules, a page at a time.

    A page of more than 8 MB ends before the limit.
    """
    chosen = {**shapes.given(call.query), "tenant": call.tenant}
    del chosen["all_tenants"], chosen["recent"]
    page = call.state.search(CatalogueQuery(**chosen))

    def read(wanted: int, after: str | None) -> Part:
        # The cursor of a part is the number of keys before it.
        start = 0 if after is None else int(after)
        keys = page.keys[start : start + wanted]
        bodies = _bodies(call, call.app.schedules.get_with_stats(keys), call.query.recent)
        return Part(bodies, str(start + wanted) if start + wanted < len(page.keys) else None)

    found = bounded(read, call.query.limit, None)
    if found["cursor"] is None:
        cursor = page.cursor
    else:
        cursor = call.state.search(CatalogueQuery(**{**chosen, "limit": int(found["cursor"])})).cursor
    return {**found, "cursor": cursor, "matched": page.matched, "more_match": page.more_match}


_NewSchedule = msgspec.defstruct(
    "NewSchedule",
    [
        ("name", Name),
        (
            "trigger",
            Annotated[
                shapes.TriggerText, Meta(description="Needed unless the template has one. `0 9 * * mon-fri`.")
            ]
            | UnsetType,
            UNSET,
        ),
        ("task", TaskName),
        ("payload", Payload, None),
        ("start_at", shapes.When | UnsetType, UNSET),
        ("run_now", bool, False),
        *shapes.option_fields(NEW_SCHEDULE),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)


@endpoint(
    "POST",
    "/schedules",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    body=_NewSchedule,
    answer=shapes.SCHEDULE,
    status=HTTPStatus.CREATED,
    has_etag=True,
    is_idempotent=True,
)
def create_schedule(call: Call[TenantQuery, Any]) -> object:
    """Create a schedule.

    With an Idempotency-Key the request can be repeated after a lost reply.
    """
    fields = shapes.given(call.body)
    creation = begin(call, fields)
    made = _created_before(call, creation) if creation.is_done else _created(call, creation)
    creation.finish(made)
    return _one(call, made, HTTPStatus.CREATED)


def _created(call: Call[TenantQuery, Any], creation: Creation) -> Schedule:
    fields = shapes.given(call.body)
    try:
        return call.app.schedules.add(**fields, tenant=call.owner)
    except ScheduleExists:
        made = call.app.schedules.get(fields["name"], tenant=call.owner)
        if not creation.is_of(made, fields):
            raise
        return made


def _created_before(call: Call[TenantQuery, Any], creation: Creation) -> Schedule:
    try:
        made = call.app.schedules.get(call.body.name, tenant=call.owner)
    except ScheduleNotFound:
        raise gone(call) from None
    if not creation.is_of(made, {}):
        raise gone(call)
    return made


class OneScheduleQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    recent: Recent = 0


@endpoint(
    "GET",
    "/schedules/{name}",
    role="viewer",
    scope="tenant",
    query=OneScheduleQuery,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def get_schedule(call: Call[OneScheduleQuery, Any]) -> object:
    """Return a schedule. Its ETag is its revision."""
    name = call.path["name"]
    # schedules.get and then schedules.stats would read the statistics twice: 24 us more on SQLite.
    for schedule, stats in call.app.schedules.get_with_stats([(call.owner, name)]):
        if schedule.state != "deleted":
            (body,) = _bodies(call, [(schedule, stats)], call.query.recent)
            return _reply(schedule, body)
    return _one(call, call.app.schedules.get(name, tenant=call.owner))


_ScheduleChanges = msgspec.defstruct(
    "ScheduleChanges",
    [
        ("trigger", shapes.TriggerText | UnsetType, UNSET),
        ("task", TaskName | UnsetType, UNSET),
        ("payload", Payload | UnsetType, UNSET),
        (
            "template",
            Annotated[Label | None, Meta(description="Null: none; its options stay.")] | UnsetType,
            UNSET,
        ),
        (
            "inherit",
            Annotated[
                list[Literal[INHERITABLE]],  # type: ignore[valid-type]  # made at run time
                Meta(description="Options to give back to the template."),
            ]
            | UnsetType,
            UNSET,
        ),
        *shapes.option_fields(SCHEDULE),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)


@endpoint(
    "PATCH",
    "/schedules/{name}",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    body=_ScheduleChanges,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def update_schedule(call: Call[TenantQuery, Any]) -> object:
    """Change some fields of a schedule; the others, and its pause, stay. No tick fires from the change."""
    changed = call.app.schedules.update(
        call.path["name"], tenant=call.owner, if_revision=call.if_revision, **shapes.given(call.body)
    )
    return _one(call, changed)


@endpoint(
    "DELETE",
    "/schedules/{name}",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
    has_etag=True,
)
def delete_schedule(call: Call[TenantQuery, Any]) -> object:
    """Delete a schedule; its runs and their history stay."""
    call.app.schedules.delete(call.path["name"], tenant=call.owner, if_revision=call.if_revision)
    return None


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
    return _one(call, paused)


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
    return _one(call, resumed)


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


@endpoint(
    "POST",
    "/schedules/{name}/reset",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    answer=shapes.SCHEDULE,
    has_etag=True,
)
def reset_schedule(call: Call[TenantQuery, Any]) -> object:
    """Undo edits by hand: the schedule becomes what the code last declared."""
    name = call.path["name"]
    return _one(call, call.app.schedules.reset(name, tenant=call.owner, if_revision=call.if_revision))


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
    return _one(call, moved)


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
    changes: _ScheduleChanges | UnsetType = UNSET  # type: ignore[valid-type]  # made at run time
    """With ``update``: what to change, as in ``PATCH /schedules/{name}``."""
    dry_run: bool = True
    """Only count them, and show a sample. Send false to do it."""
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
    return {**shapes.with_properties(result), "sample": _bodies(call, zip(sample, stats, strict=True))}


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


def _bodies(
    call: Call[Any, Any], found: Iterable[tuple[Schedule, ScheduleStats]], recent: int = 0
) -> list[msgspec.Raw]:
    rows = list(found)
    runs: list[Any] = [None] * len(rows)
    if recent:
        runs = call.app.schedules.recent([schedule for schedule, _ in rows], recent)
    return [
        shapes.schedule_body(call.principal, schedule, stats, each)
        for (schedule, stats), each in zip(rows, runs, strict=True)
    ]


def _one(call: Call[Any, Any], schedule: Schedule, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    (body,) = _bodies(call, [(schedule, stats) for stats in call.app.schedules.stats([schedule])])
    return _reply(schedule, body, status)


def _reply(schedule: Schedule, body: msgspec.Raw, status: HTTPStatus = HTTPStatus.OK) -> Reply:
    return Reply(body, status, {"ETag": f'"{schedule.revision}"'})
