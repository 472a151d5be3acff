"""Runs: list, get, enqueue, retry, cancel, and their logs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.checks import LONGEST_RUN_ID, RUN_ID_PATTERN
from evenbeat.core.options import RUN
from evenbeat.core.results import LogLine
from evenbeat.rules.unique_runs import LONGEST_KEY
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, bulk_of, list_of, page_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.idempotency import add_run
from evenbeat.web.paging import Part, bounded
from evenbeat.web.shapes import Cursor, Label, Limit, Name, Since, TaskName, TenantQuery, TenantsQuery, When

Worker = Annotated[str, Meta(min_length=1, max_length=200)]
UniqueKey = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_KEY,
        description="`payload`, or a key: while a run of the task with the same payload, or key, is active, "
        "this adds nothing and returns that run.",
    ),
]
RunId = Annotated[str, Meta(pattern=RUN_ID_PATTERN, min_length=1, max_length=LONGEST_RUN_ID)]


class RunFilterQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects runs."""

    schedule: Name | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    queue: Label | UnsetType = UNSET
    worker: Worker | UnsetType = UNSET
    since: Since | UnsetType = UNSET
    until: Since | UnsetType = UNSET


class RunSearch(RunFilterQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects runs, and a page of them."""

    state: Literal["queued", "running", "succeeded", "failed", "cancelled", "retrying"] | UnsetType = UNSET
    brief: Annotated[bool, Meta(description="Leave out payloads, results and errors: they are null.")] = False
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET


@endpoint("GET", "/runs", role="viewer", scope="tenant", query=RunSearch, answer=page_of("Runs", shapes.RUN))
def list_runs(call: Call[RunSearch, Any]) -> object:
    """List runs, the newest first, a page at a time.

    A page of more than 8 MB ends before the limit.
    """
    chosen = {**shapes.given(call.query), **call.tenants}
    limit, cursor = chosen.pop("limit"), chosen.pop("cursor", None)

    def read(wanted: int, after: str | None) -> Part:
        page = call.app.runs.page(**chosen, limit=wanted, cursor=after)
        return Part((shapes.run_body(call.principal, run) for run in page.items), page.cursor)

    return bounded(read, limit, cursor)


_NewRun = msgspec.defstruct(
    "NewRun",
    [
        ("task", TaskName),
        ("payload", dict[str, Any] | None, None),
        ("delay", shapes.Span | UnsetType, UNSET),
        ("at", When | UnsetType, UNSET),
        ("unique", UniqueKey | UnsetType, UNSET),
        *shapes.option_fields(RUN),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)


@endpoint(
    "POST",
    "/runs",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=_NewRun,
    answer=shapes.RUN,
    status=HTTPStatus.CREATED,
    is_idempotent=True,
)
def enqueue_run(call: Call[TenantQuery, Any]) -> object:
    """Add one run of a task: due at once, after a delay, or at a time."""
    return shapes.run_body(call.principal, add_run(call, call.app.enqueue, **shapes.given(call.body)))


@endpoint("GET", "/runs/{id}", role="viewer", scope="tenant", query=TenantQuery, answer=shapes.RUN)
def get_run(call: Call[TenantQuery, Any]) -> object:
    """Return a run, with its attempts, error and result."""
    return shapes.run_body(call.principal, call.app.runs.get(call.path["id"], tenant=call.owner))


@endpoint(
    "GET",
    "/runs/{id}/logs",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=list_of("Log", body_of(LogLine)),
)
def run_log(call: Call[TenantQuery, Any]) -> object:
    """Return the lines that a run wrote to its log, attempt by attempt."""
    lines = call.app.runs.logs(call.path["id"], tenant=call.owner)
    return {"items": shapes.with_masked_texts(call.principal, lines)}


@endpoint("POST", "/runs/{id}/retry", role="operator", scope="tenant", query=TenantQuery, answer=shapes.RUN)
def retry_run(call: Call[TenantQuery, Any]) -> object:
    """Retry a failed or cancelled run now, with all its retries.

    If the run's schedule bounds its active runs, this adds a new run with the same payload, and returns that.
    Refused if the run has expired, or another run with its unique key is active.
    """
    return shapes.run_body(call.principal, call.app.runs.retry(call.path["id"], tenant=call.owner))


@endpoint("POST", "/runs/{id}/cancel", role="operator", scope="tenant", query=TenantQuery, answer=shapes.RUN)
def cancel_run(call: Call[TenantQuery, Any]) -> object:
    """Cancel a run: a queued one is over at once, a running one is asked to stop."""
    return shapes.run_body(call.principal, call.app.runs.cancel(call.path["id"], tenant=call.owner))


class RunFilterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects runs of the tenant."""

    schedule: Name | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    queue: Label | UnsetType = UNSET
    worker: Worker | UnsetType = UNSET
    since: Since | UnsetType = UNSET
    until: Since | UnsetType = UNSET
    ids: Annotated[list[RunId], Meta(max_length=1000)] | UnsetType = UNSET


class BulkRuns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do with the runs that match."""

    action: Literal["retry", "cancel"]
    filter: RunFilterBody
    state: Literal["failed", "cancelled", "queued", "retrying", "running"] | UnsetType = UNSET
    """With ``retry``: failed or cancelled; with ``cancel``: queued, retrying or running."""
    dry_run: bool = True
    """Only count them, and show a sample. Send false to do it."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


BULK_RUNS = bulk_of("BulkRunsResult", shapes.RUN)


@endpoint(
    "POST", "/bulk/runs", role="operator", scope="tenant", query=TenantsQuery, body=BulkRuns, answer=BULK_RUNS
)
def bulk_runs(call: Call[TenantsQuery, BulkRuns]) -> object:
    """Retry or cancel all runs that match a filter; by default only count them and show a sample."""
    wanted = call.body
    chosen = {**shapes.given(wanted.filter), **call.tenants}
    if wanted.state is not UNSET:
        chosen["state"] = wanted.state
    act = call.app.runs.retry_all if wanted.action == "retry" else call.app.runs.cancel_all
    result = act(limit=wanted.limit, dry_run=wanted.dry_run, **chosen)
    sample = [shapes.run_body(call.principal, run) for run in result.sample]
    return {**shapes.with_properties(result), "sample": sample}
