"""Figures: nodes, queues, attention, statistics, failures, forecasts, previews."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.attention import Attention, AttentionItem
from evenbeat.core.figures import FailureReport, FigureSeries, NodeView
from evenbeat.core.forecasts import Forecast, TriggerExplanation
from evenbeat.core.results import QueueStats
from evenbeat.web import shapes
from evenbeat.web.access import foreign_tenant
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Name, Since, TaskName, TenantsQuery

Zone = Annotated[str, Meta(max_length=100, description="The zone of a cron that names none.")]


@endpoint("GET", "/nodes", role="viewer", scope="store", answer=list_of("Nodes", body_of(NodeView)))
def list_nodes(call: Call[Any, Any]) -> object:
    """List the live nodes, with their tasks and queues."""
    return {"items": call.app.nodes()}


class QueuesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    period: Annotated[
        float, Meta(ge=1, le=86_400, description="Seconds: runs that came due or ended in them are counted.")
    ] = 300


_Queue = body_of(QueueStats, trend=str)


@endpoint("GET", "/queues", role="viewer", scope="store", query=QueuesQuery, answer=list_of("Queues", _Queue))
def list_queues(call: Call[QueuesQuery, Any]) -> object:
    """List the queues: how many runs wait, which live nodes take from them, and whether they drain."""
    queues = call.app.queues(call.query.period)
    return {"items": [shapes.with_properties(queue, "trend") for queue in queues]}


@endpoint("GET", "/attention", role="viewer", scope="tenant", query=TenantsQuery, answer=body_of(Attention))
def attention(call: Call[TenantsQuery, Any]) -> object:
    """List what needs somebody now: late, failing, stuck, missing nodes, quarantined rows, an unsafe store.

    A token of one tenant sees nothing about the server, and no slots of nodes.
    """
    found = call.state.attention(call.tenant)
    if call.principal.tenant is not None:
        items = tuple(_for_tenant(item) for item in found.items if item.kind != "store_unsafe")
        found = msgspec.structs.replace(found, items=items)
    return shapes.with_masked_texts(call.principal, found)


def _for_tenant(item: AttentionItem) -> AttentionItem:
    """Return an item without the slots of nodes, which the runs of other tenants use, too."""
    if item.kind != "waiting":
        return item
    return msgspec.structs.replace(
        item, evidence=tuple(fact for fact in item.evidence if fact.at is not None)
    )


class StatisticsQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Since = "1h"
    until: Since | UnsetType = UNSET
    by: Literal["minute", "hour"] | UnsetType = UNSET
    schedule: Name | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    top: Annotated[
        int, Meta(ge=0, le=100, description="Add the figures of so many schedules and tasks, the busiest.")
    ] = 0


@endpoint(
    "GET", "/statistics", role="viewer", scope="tenant", query=StatisticsQuery, answer=body_of(FigureSeries)
)
def statistics(call: Call[StatisticsQuery, Any]) -> object:
    """Return how many ticks fired and runs ended, and how long and how late they were, over time.

    Reads what nodes write once a minute: minutes for the last three hours, hours for 40 days.
    """
    return call.app.statistics(**shapes.given(call.query) | call.tenants)


class FailuresQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Since = "1d"
    schedule: Name | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000


@endpoint(
    "GET", "/failures", role="viewer", scope="tenant", query=FailuresQuery, answer=body_of(FailureReport)
)
def failures(call: Call[FailuresQuery, Any]) -> object:
    """Return the newest failed runs, grouped by error. Errors that differ only in values are one group."""
    report = call.app.failures(**shapes.given(call.query) | call.tenants)
    return shapes.with_masked_texts(call.principal, report)


class ForecastQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hours: Annotated[int, Meta(ge=1, le=744, description="At most 168 by the minute.")] = 24
    since: shapes.When | UnsetType = UNSET
    by: Literal["minute", "hour"] = "minute"


@endpoint("GET", "/forecast", role="viewer", scope="tenant", query=ForecastQuery, answer=body_of(Forecast))
def forecast(call: Call[ForecastQuery, Any]) -> object:
    """Return how many runs start in each coming minute or hour, with peaks, quiet windows and spreads.

    An answer that took seconds, as for 100,000 schedules, is kept for ten times as long, at most a minute.
    """
    asked = shapes.given(call.query) | call.tenants
    return call.state.costly.answer(("forecast", *sorted(asked.items())), lambda: call.app.forecast(**asked))


class Preview(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trigger to explain."""

    trigger: shapes.TriggerText
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    tz: Zone | UnsetType = UNSET
    since: shapes.When | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    tenant: Annotated[shapes.Label, Meta(description="Whose calendars the trigger names.")] | UnsetType = (
        UNSET
    )


@endpoint("POST", "/preview", role="viewer", scope="own", body=Preview, answer=body_of(TriggerExplanation))
def preview(call: Call[Any, Preview]) -> object:
    """Explain a trigger in words, with its next ticks and the effect of clock changes. Nothing is stored."""
    asked = shapes.given(call.body)
    own = call.principal.tenant
    if own is not None and asked.setdefault("tenant", own) != own:
        raise foreign_tenant(call.principal, asked["tenant"])
    return call.app.explain(**asked)
