"""Tenants: list, show and purge them, and set their quotas."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evenbeat.app.tenants import MOST_TENANTS
from evenbeat.core.tenants import MOST_QUOTA, Quota, TenantDetails, TenantPurge, TenantView
from evenbeat.web.access import foreign_tenant
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint

_PURGED_AT_ONCE = 10_000


class TenantListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MOST_TENANTS)] = MOST_TENANTS


@endpoint(
    "GET",
    "/tenants",
    role="viewer",
    scope="own",
    query=TenantListQuery,
    answer=list_of("Tenants", body_of(TenantView)),
)
def list_tenants(call: Call[TenantListQuery, Any]) -> object:
    """List the tenants that have schedules, runs or a quota, with counts.

    A token of one tenant sees that one.
    """
    return {"items": call.app.tenants.list(call.query.limit, name=call.principal.tenant)}


@endpoint("GET", "/tenants/{name}", role="viewer", scope="own", answer=body_of(TenantDetails))
def get_tenant(call: Call[Any, Any]) -> object:
    """Return a tenant, with its ended runs by state, its longest waiting run, its next fire and its limits.

    A token of one tenant is refused for the others.
    """
    name = call.path["name"]
    if not call.principal.may_see(name):
        raise foreign_tenant(call.principal, name)
    return call.app.tenants.get(name)


class WantedQuota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The quota of a tenant. Null or missing: any number."""

    schedules: Annotated[int, Meta(ge=0, le=MOST_QUOTA)] | None = None
    queued_runs: Annotated[int, Meta(ge=0, le=MOST_QUOTA)] | None = None


@endpoint(
    "POST", "/tenants/{name}/quota", role="admin", scope="store", body=WantedQuota, answer=body_of(Quota)
)
def set_quota(call: Call[Any, WantedQuota]) -> object:
    """Set the quota of a tenant, or replace it. It holds in all processes within 5 seconds."""
    wanted = call.body
    return call.app.tenants.set_quota(
        call.path["name"], schedules=wanted.schedules, queued_runs=wanted.queued_runs
    )


@endpoint(
    "DELETE", "/tenants/{name}/quota", role="admin", scope="store", answer=None, status=HTTPStatus.NO_CONTENT
)
def remove_quota(call: Call[Any, Any]) -> object:
    """Remove the quota of a tenant: it may have any number of schedules and queued runs."""
    call.app.tenants.remove_quota(call.path["name"])
    return None


class WantedPurge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to purge a tenant."""

    dry_run: bool = True
    """Only count. Send false to delete."""
    even_default: bool = False
    """Needed for the tenant ``default``."""
    limit: Annotated[int, Meta(ge=1, le=_PURGED_AT_ONCE)] = _PURGED_AT_ONCE
    """About how many schedules, runs and other rows one request deletes. Repeat the request until
    ``is_complete`` is true."""


@endpoint(
    "POST",
    "/tenants/{name}/purge",
    role="admin",
    scope="store",
    body=WantedPurge,
    answer=body_of(TenantPurge),
)
def purge_tenant(call: Call[Any, WantedPurge]) -> object:
    """Delete everything of a tenant: schedules, runs, history, records and tokens; by default only count.

    Audit entries stay; ``remains`` says what else.
    """
    wanted = call.body
    result = call.app.tenants.purge(
        call.path["name"], dry_run=wanted.dry_run, even_default=wanted.even_default, limit=wanted.limit
    )
    if not wanted.dry_run:
        call.state.costly.forget()
    return result
