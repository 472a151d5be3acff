"""Flows: list and describe them, start one, and show, resume, retry and cancel runs of them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.flow_graphs import LONGEST_STEP, STEP_PATTERN
from evenbeat.core.flows import FlowInfo
from evenbeat.core.options import RUN
from evenbeat.core.results import Run
from evenbeat.errors import shown
from evenbeat.web import shapes
from evenbeat.web.bodies import Moment, Seconds, body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.idempotency import add_run
from evenbeat.web.problems import Refused
from evenbeat.web.shapes import TenantQuery, TenantsQuery, When

MOST_RECENT = 60
FLOW = body_of(FlowInfo)

_NO_APP = "this server has no app, so it knows no flows; start it with one: evenbeat web APP"
_NO_FLOW = "the app of this server has no flow; @app.flow registers one"


class RecentFlowRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the last runs of a flow, in brief."""

    id: str
    tenant: str
    state: str
    schedule: str | None
    scheduled_at: Moment
    started_at: Moment | None
    duration: Seconds | None


class ListedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list, without its graph."""

    name: str
    steps: int
    version: str
    """The same for the same graph."""
    recent: list[RecentFlowRun]
    """Its last runs, the oldest first."""


class FlowsQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names the tenants, and asks for the last runs of each flow."""

    recent: Annotated[
        int, Meta(ge=0, le=MOST_RECENT, description="How many of the last runs of each flow to return.")
    ] = 0


@endpoint(
    "GET",
    "/flows",
    role="viewer",
    scope="tenant",
    query=FlowsQuery,
    answer=list_of(
        "Flows",
        ListedFlow,
        hint=Annotated[str | None, Meta(description="Why the list is empty, where the server knows.")],
    ),
)
def list_flows(call: Call[FlowsQuery, Any]) -> object:
    """List the flows of the app that this server was started with, by name.

    A token of one tenant sees the flows that its tenant has runs of.
    """
    found = call.app.flows.list()
    items = []
    for flow in found:
        runs = _last_runs(call, flow.name, max(call.query.recent, 1))
        if not runs and call.principal.tenant is not None:
            continue
        recent = [_recent(run) for run in reversed(runs[: call.query.recent])]
        items.append({"name": flow.name, "steps": len(flow.steps), "version": flow.version, "recent": recent})
    return {"items": items, "hint": None if found else _hint(call)}


def _hint(call: Call[Any, Any]) -> str:
    return _NO_FLOW if len(call.app.tasks) else _NO_APP


def _last_runs(call: Call[Any, Any], flow: str, limit: int) -> list[Run]:
    return call.app.runs.list(task=flow, limit=limit, brief=True, **call.tenants)


def _recent(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in RecentFlowRun.__struct_fields__}


@endpoint("GET", "/flows/{flow}", role="viewer", scope="tenant", query=TenantQuery, answer=FLOW)
def get_flow(call: Call[TenantQuery, Any]) -> object:
    """Return a flow of the app that this server was started with: its steps, and what they wait for."""
    name = call.path["flow"]
    known = {flow.name for flow in call.app.flows.list()}
    # Names of tasks are for tokens of all tenants, and for those of a tenant that has seen them run.
    if name not in known or (call.principal.tenant is not None and not _last_runs(call, name, 1)):
        raise _unknown(call, name)
    return call.app.flows.get(name)


def _unknown(call: Call[Any, Any], name: str) -> Refused:
    return Refused(
        HTTPStatus.NOT_FOUND,
        "flow-not-found",
        f"this server knows no flow {shown(name)}",
        hint="GET /api/v1/flows lists the flows" if call.app.flows.list() else _hint(call),
    )


_StartFlow = msgspec.defstruct(
    "StartFlow",
    [
        ("payload", dict[str, Any] | None, None),
        ("delay", shapes.Span | UnsetType, UNSET),
        ("at", When | UnsetType, UNSET),
        *shapes.option_fields(RUN),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)


@endpoint(
    "POST",
    "/flows/{flow}/run",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=_StartFlow,
    answer=shapes.RUN,
    status=HTTPStatus.CREATED,
    is_idempotent=True,
)
def run_flow(call: Call[TenantQuery, Any]) -> object:
    """Start a flow: due at once, after a delay, or at a time.

    A server without an app does not know which flows there are: the node that takes the run decides.
    """
    name = call.path["flow"]
    if len(call.app.tasks) and call.app.tasks.get(name) is None:
        raise _unknown(call, name)
    run = add_run(call, call.app.flows.run, name, **shapes.given(call.body))
    return shapes.run_body(call.principal, run)


@endpoint("GET", "/flow-runs/{id}", role="viewer", scope="tenant", query=TenantQuery, answer=shapes.FLOW_RUN)
def show_flow_run(call: Call[TenantQuery, Any]) -> object:
    """Return a run of a flow: the graph that it was started with, and the state of each step."""
    return shapes.flow_run_body(call.principal, call.app.flows.show(call.path["id"], tenant=call.owner))


@endpoint(
    "POST",
    "/flow-runs/{id}/resume",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    answer=shapes.FLOW_RUN,
)
def resume_flow_run(call: Call[TenantQuery, Any]) -> object:
    """Run again what failed, was cancelled, or did not run because of that; keep what succeeded.

    Refused if the flow has succeeded or is running, or if its schedule bounds its active runs and another one
    is active.
    """
    return shapes.flow_run_body(call.principal, call.app.flows.resume(call.path["id"], tenant=call.owner))


StepName = Annotated[str, Meta(pattern=STEP_PATTERN, max_length=LONGEST_STEP)]


class RetryStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which step to run again."""

    step: StepName


@endpoint(
    "POST",
    "/flow-runs/{id}/retry",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    body=RetryStep,
    answer=shapes.FLOW_RUN,
)
def retry_flow_step(call: Call[TenantQuery, RetryStep]) -> object:
    """Run a step again, and what came after it, whether it succeeded or not.

    Refused while the step, or one that comes after it, has not ended.
    """
    found = call.app.flows.retry(call.path["id"], call.body.step, tenant=call.owner)
    return shapes.flow_run_body(call.principal, found)


@endpoint(
    "POST",
    "/flow-runs/{id}/cancel",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    answer=shapes.FLOW_RUN,
)
def cancel_flow_run(call: Call[TenantQuery, Any]) -> object:
    """Cancel a flow: queued steps are over at once, running ones are asked to stop, and no other step starts.

    A flow that is over stays as it is.
    """
    return shapes.flow_run_body(call.principal, call.app.flows.cancel(call.path["id"], tenant=call.owner))
