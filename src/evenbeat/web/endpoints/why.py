"""Why, and the account of a schedule's ticks."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.explanations import Account, Why
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Since, TenantQuery, ZoneQuery

WHY = body_of(Why)


class WhyQuery(ZoneQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    at: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="A time, in the trigger's zone unless it has an offset; by default now.",
            ),
        ]
        | UnsetType
    ) = UNSET


@endpoint("GET", "/schedules/{name}/why", role="viewer", scope="tenant", query=WhyQuery, answer=WHY)
def why_schedule(call: Call[WhyQuery, Any]) -> object:
    """Explain why a schedule ran, or did not run, at a time: a sentence, evidence, and what to do."""
    at = None if call.query.at is UNSET else call.query.at
    why = call.app.schedules.why(call.path["name"], at, tz=call.query.zone, tenant=call.owner)
    return shapes.with_masked_texts(call.principal, why)


@endpoint("GET", "/runs/{id}/why", role="viewer", scope="tenant", query=ZoneQuery, answer=WHY)
def why_run(call: Call[ZoneQuery, Any]) -> object:
    """Explain why a run waits, failed, or has not started."""
    why = call.app.runs.why(call.path["id"], tz=call.query.zone, tenant=call.owner)
    return shapes.with_masked_texts(call.principal, why)


class AccountQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Since | UnsetType = UNSET
    until: Since | UnsetType = UNSET


_Account = body_of(Account, adds_up=bool)


@endpoint(
    "GET", "/schedules/{name}/account", role="viewer", scope="tenant", query=AccountQuery, answer=_Account
)
def account(call: Call[AccountQuery, Any]) -> object:
    """Account for each tick of a schedule: ran, coalesced or skipped; 0 missing, 0 twice."""
    chosen = shapes.given(call.query)
    chosen.pop("tenant", None)
    found = call.app.schedules.account(call.path["name"], tenant=call.owner, **chosen)
    return shapes.with_properties(found, "adds_up")
