"""Deploys: plan what a deploy changes about schedules, apply it, and move runs of a renamed task."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.deploys import DeployPlan, DeployResult, PlanEntry, RefusedChange
from evenbeat.core.json_form import json_form
from evenbeat.core.moves import ScheduleOfTask
from evenbeat.core.options import NEW_SCHEDULE
from evenbeat.core.results import ChangeWarning
from evenbeat.web import shapes
from evenbeat.web.access import Principal
from evenbeat.web.bodies import body_of, bulk_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Label, Name, TaskName, TenantsQuery

MOST_SCHEDULES = 10_000
Prune = Annotated[
    bool,
    Meta(description="Remove schedules that the same source declared once, and does not declare any more."),
]
Adopt = Annotated[
    bool, Meta(description="Take over schedules that were made by hand, or that another source declares.")
]
Token = Annotated[str, Meta(min_length=1, max_length=100)]

_DeclaredSchedule = msgspec.defstruct(
    "DeclaredSchedule",
    [
        ("trigger", shapes.OptionalTrigger, UNSET),
        ("task", TaskName),
        ("payload", dict[str, Any] | None, None),
        ("tenant", Label | UnsetType, UNSET),
        ("start_at", shapes.When | UnsetType, UNSET),
        *shapes.option_fields(NEW_SCHEDULE),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)
Declared = Annotated[
    dict[Name, _DeclaredSchedule],  # type: ignore[valid-type]  # made at run time
    Meta(max_length=MOST_SCHEDULES, description="Schedules by name: then only these are compared."),
]


class PlanQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to compare what the server's app declares."""

    prune: Prune = False
    adopt: Adopt = False


PLAN = body_of(DeployPlan)


@endpoint("GET", "/plan", role="viewer", scope="tenant", query=PlanQuery, answer=PLAN)
def own_plan(call: Call[PlanQuery, Any]) -> object:
    """Return what a deploy of the server's own app would change: its code, and its file with schedules."""
    query = call.query
    return _plan(call.principal, call.app.plan(prune=query.prune, adopt=query.adopt, tenant=call.tenant))


class WantedPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Schedules that a deploy declares."""

    schedules: Declared
    source: Annotated[Label, Meta(description="The label under which they are managed.")] | UnsetType = UNSET
    prune: Prune = False
    adopt: Adopt = False


@endpoint("POST", "/plan", role="viewer", scope="tenant", query=TenantsQuery, body=WantedPlan, answer=PLAN)
def plan_schedules(call: Call[TenantsQuery, WantedPlan]) -> object:
    """Return what a deploy of these schedules would change. Nothing is changed."""
    return _plan(call.principal, call.app.plan(**_given(call)))


class WantedApply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to apply."""

    plan: (
        Annotated[
            list[Token],
            Meta(
                max_length=MOST_SCHEDULES,
                description="The tokens of the plan that was seen: other changes are refused.",
            ),
        ]
        | UnsetType
    ) = UNSET
    schedules: Declared | UnsetType = UNSET
    """Without it: what the server's own app declares."""
    source: Annotated[Label, Meta(description="The label under which they are managed.")] | UnsetType = UNSET
    prune: Prune = False
    adopt: Adopt = False


@endpoint(
    "POST",
    "/apply",
    role="admin",
    scope="tenant",
    query=TenantsQuery,
    body=WantedApply,
    answer=body_of(DeployResult),
)
def apply_plan(call: Call[TenantsQuery, WantedApply]) -> object:
    """Make the schedules what is declared, in one atomic step.

    A schedule that has changed since the plan is refused; the answer has what would be to do about it now.
    """
    given = _given(call)
    tokens = given.pop("plan", None)
    result = call.app.apply(None if tokens is None else tuple(tokens), **given)
    return _result(call.principal, result)


def _given(call: Call[Any, Any]) -> dict[str, Any]:
    """Return the fields of the body, as Python takes them."""
    fields = shapes.given(call.body)
    if "schedules" in fields:
        fields["schedules"] = {name: shapes.given(each) for name, each in call.body.schedules.items()}
    return {**fields, "tenant": call.tenant}


def _plan(principal: Principal, plan: DeployPlan) -> dict[str, Any]:
    warnings = [_warning(principal, warning) for warning in plan.warnings]
    body: dict[str, Any] = json_form(msgspec.structs.replace(plan, entries=(), warnings=()))
    return {**body, "entries": [_entry(principal, each) for each in plan.entries], "warnings": warnings}


def _result(principal: Principal, result: DeployResult) -> dict[str, Any]:
    return {
        "done": [_entry(principal, each) for each in result.done],
        "refused": [_refused(principal, each) for each in result.refused],
        "left": [_entry(principal, each) for each in result.left],
        "unchanged": result.unchanged,
        "warnings": [_warning(principal, warning) for warning in result.warnings],
    }


def _refused(principal: Principal, refused: RefusedChange) -> dict[str, Any]:
    body: dict[str, Any] = json_form(msgspec.structs.replace(refused, entry=None))
    entry = None if refused.entry is None else _entry(principal, refused.entry)
    return {**body, "entry": entry}


def _entry(principal: Principal, entry: PlanEntry) -> dict[str, Any]:
    """Return an entry; for viewers, secrets in payloads are masked."""
    body: dict[str, Any] = json_form(msgspec.structs.replace(entry, changes=()))
    changes = [
        {
            "field": each.field,
            "before": shapes.option_value(principal, each.field, each.before),
            "after": shapes.option_value(principal, each.field, each.after),
        }
        for each in entry.changes
    ]
    return {**body, "changes": changes}


def _warning(principal: Principal, warning: ChangeWarning) -> dict[str, Any]:
    # A hint names a task of the nodes, which only tokens for all tenants see.
    hint = warning.hint if principal.tenant is None else None
    return {"problem": warning.problem, "hint": hint}


class WantedMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queued runs to move, and where."""

    task: TaskName
    to: TaskName
    queue: Label | UnsetType = UNSET
    dry_run: bool = True
    """Only count them, and show a sample. Send false to do it."""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000


MOVED_RUNS = bulk_of(
    "MoveResult",
    shapes.RUN,
    schedules=list[body_of(ScheduleOfTask)],  # type: ignore[misc]  # made at run time
)


@endpoint(
    "POST",
    "/runs/move",
    role="operator",
    scope="tenant",
    query=TenantsQuery,
    body=WantedMove,
    answer=MOVED_RUNS,
)
def move_runs(call: Call[TenantsQuery, WantedMove]) -> object:
    """Make the queued runs of a task runs of another one; by default only count them and show a sample.

    Running runs stay as they are. The answer names the schedules that still have the old task.
    """
    result = call.app.runs.move(**shapes.given(call.body), **call.tenants)
    body: dict[str, Any] = json_form(msgspec.structs.replace(result, sample=(), warnings=()))
    sample = [shapes.run_body(call.principal, run) for run in result.sample]
    warnings = [_warning(call.principal, warning) for warning in result.warnings]
    return {**body, "sample": sample, "warnings": warnings}
