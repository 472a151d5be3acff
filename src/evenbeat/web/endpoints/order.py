"""Keeping order in a store: retention rules, quarantine, repair."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.figures import QuarantineNote
from evenbeat.core.quarantine import QuarantineChange, QuarantinedRow
from evenbeat.core.repairs import RepairReport
from evenbeat.core.retention import MOST_KEPT, EndedState, RetentionRule
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Label, Span, TenantQuery, TenantsQuery


@endpoint(
    "GET", "/retention", role="viewer", scope="store", answer=list_of("Retention", body_of(RetentionRule))
)
def list_retention(call: Call[Any, Any]) -> object:
    """List the retention rules: how long, and how many, ended runs are kept.

    Where no rule applies, the node's setting `retention` does.
    """
    return {"items": call.app.retention.list()}


class WantedRetention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A retention rule to set. At least one of `keep` and `most`."""

    tenant: Label | UnsetType = UNSET
    """Left out: all tenants."""
    state: EndedState | UnsetType = UNSET
    """Left out: every state of ended runs."""
    keep: Span | UnsetType = UNSET
    """Delete runs that ended longer ago."""
    most: Annotated[int, Meta(ge=1, le=MOST_KEPT)] | UnsetType = UNSET
    """Keep only so many runs, those that ended last."""


@endpoint(
    "POST", "/retention", role="admin", scope="store", body=WantedRetention, answer=body_of(RetentionRule)
)
def set_retention(call: Call[Any, WantedRetention]) -> object:
    """Create the rule for a tenant and state, or replace it. Nodes apply it within a minute."""
    return call.app.retention.set(**shapes.given(call.body))


class RetentionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names a rule by what it is about. Left out: all tenants, every state."""

    tenant: Label | UnsetType = UNSET
    state: EndedState | UnsetType = UNSET


@endpoint(
    "DELETE",
    "/retention",
    role="admin",
    scope="store",
    query=RetentionQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
)
def remove_retention(call: Call[RetentionQuery, Any]) -> object:
    """Delete the rule for exactly this tenant and state."""
    call.app.retention.remove(**shapes.given(call.query))
    return None


@endpoint(
    "GET",
    "/quarantine",
    role="viewer",
    scope="tenant",
    query=TenantsQuery,
    answer=list_of("Quarantine", body_of(QuarantineNote)),
)
def list_quarantine(call: Call[TenantsQuery, Any]) -> object:
    """List the schedules and runs that nodes can't process, with the reason and what to do."""
    notes = call.app.quarantine.list(**call.tenants)
    return {"items": shapes.with_masked_texts(call.principal, notes)}


@endpoint(
    "GET",
    "/quarantine/{id}",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(QuarantinedRow),
)
def show_quarantined(call: Call[TenantQuery, Any]) -> object:
    """Return why a schedule or run is in quarantine, what can be read of it, and what helps."""
    row = call.app.quarantine.show(call.path["id"], tenant=call.owner)
    return shapes.quarantined_body(call.principal, row)


@endpoint(
    "POST",
    "/quarantine/{id}/retry",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(QuarantineChange),
)
def retry_quarantined(call: Call[TenantQuery, Any]) -> object:
    """Give a schedule its wake-up again, or queue a run again.

    409 if it still can't be read or planned; the problem says what is wrong.
    """
    return call.app.quarantine.retry(call.path["id"], tenant=call.owner)


@endpoint(
    "DELETE",
    "/quarantine/{id}",
    role="operator",
    scope="tenant",
    query=TenantQuery,
    answer=body_of(QuarantineChange),
)
def drop_quarantined(call: Call[TenantQuery, Any]) -> object:
    """Delete the note of a row and, if it is a schedule that nodes can't process, the schedule.

    A run stays as it is: failed.
    """
    return call.app.quarantine.drop(call.path["id"], tenant=call.owner)


class WantedRepair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to mend."""

    dry_run: bool = True
    """List the findings, and change nothing."""


@endpoint(
    "POST",
    "/repair",
    role="admin",
    scope="store",
    body=WantedRepair,
    answer=body_of(RepairReport, mended=int),
)
def repair(call: Call[Any, WantedRepair]) -> object:
    """Find duplicates, stuck rows and leftovers, of all tenants; with `dry_run` false, mend them.

    Safe beside live nodes: what somebody changes meanwhile is left alone. The audit has each change. A second
    repair finds nothing, except what only a person can decide.
    """
    return shapes.with_properties(call.app.repair(dry_run=call.body.dry_run), "mended")
