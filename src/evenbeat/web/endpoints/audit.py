"""The audit: who changed what, when, and how it was before."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.acting import LONGEST_ACTOR
from evenbeat.core.audits import AuditAction, AuditEntry
from evenbeat.core.checks import LONGEST_RUN_ID
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of, page_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Cursor, Limit, Since, TenantQuery, TenantsQuery

ENTRY = body_of(AuditEntry)


class AuditQuery(TenantsQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    subject: (
        Annotated[
            str, Meta(min_length=1, max_length=LONGEST_RUN_ID, description="A schedule's name, or an id.")
        ]
        | UnsetType
    ) = UNSET
    actor: Annotated[str, Meta(min_length=1, max_length=LONGEST_ACTOR)] | UnsetType = UNSET
    action: AuditAction | UnsetType = UNSET
    since: Since | UnsetType = UNSET
    until: Since | UnsetType = UNSET
    limit: Limit = 50
    cursor: Cursor | UnsetType = UNSET


@endpoint("GET", "/audit", role="viewer", scope="tenant", query=AuditQuery, answer=page_of("Audit", ENTRY))
def list_audit(call: Call[AuditQuery, Any]) -> object:
    """List changes by hand, the newest first: who, when, what, before and after.

    A page may have fewer entries than the limit, even none, and a cursor: a search for rare entries reads a
    bounded number of them at a time.
    """
    page = call.app.audit.page(**shapes.given(call.query) | call.tenants)
    # What is for all tenants is recorded with the default tenant, and is not its business.
    shown = [entry for entry in page.entries if call.principal.tenant is None or not _is_of_store(entry)]
    return {"items": list(map(shapes.entry_body, shown)), "cursor": page.cursor}


def _is_of_store(entry: AuditEntry) -> bool:
    facts = entry.after or entry.before
    return facts.get("tenant") is None if entry.kind == "token" else facts.get("all_tenants") is True


class HistoryQuery(TenantQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100


@endpoint(
    "GET",
    "/schedules/{name}/history",
    role="viewer",
    scope="tenant",
    query=HistoryQuery,
    answer=list_of("ScheduleHistory", ENTRY),
)
def schedule_history(call: Call[HistoryQuery, Any]) -> object:
    """Return the changes of a schedule, the newest first."""
    entries = call.app.schedules.history(call.path["name"], call.query.limit, tenant=call.owner)
    return {"items": list(map(shapes.entry_body, entries))}


@endpoint(
    "GET",
    "/runs/{id}/history",
    role="viewer",
    scope="tenant",
    query=HistoryQuery,
    answer=list_of("RunHistory", ENTRY),
)
def run_history(call: Call[HistoryQuery, Any]) -> object:
    """Return the changes of a run by hand, the newest first."""
    entries = call.app.runs.history(call.path["id"], call.query.limit, tenant=call.owner)
    return {"items": list(map(shapes.entry_body, entries))}
