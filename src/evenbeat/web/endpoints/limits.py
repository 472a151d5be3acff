"""Limits over all machines: list, set and remove them.

A token of one tenant sees and changes only the limits that name its tenant.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from evenbeat.core.limits import RunLimit
from evenbeat.core.rates import LONGEST_RATE, MOST_STARTS
from evenbeat.core.records import MOST_CONCURRENT
from evenbeat.rules.limit_definitions import KEY_PATTERN
from evenbeat.web import shapes
from evenbeat.web.access import foreign_tenant
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Label, TaskName

LIMIT = body_of(RunLimit)
Key = Annotated[
    str,
    Meta(
        pattern=KEY_PATTERN,
        max_length=128,
        description="A field of the payload: the limit holds for each value of it.",
    ),
]


class LimitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names that a limit has; the tenant of the token, if it has one."""

    task: TaskName | UnsetType = UNSET
    queue: Label | UnsetType = UNSET
    tenant: Label | UnsetType = UNSET
    key: Key | UnsetType = UNSET


@endpoint("GET", "/limits", role="viewer", scope="own", query=LimitQuery, answer=list_of("RunLimits", LIMIT))
def list_limits(call: Call[LimitQuery, Any]) -> object:
    """List the limits, each with what is running and what waits; only those with the names in the query."""
    return {"items": call.app.limits.list(**_own(call, call.query))}


class WantedLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit to set: at least one of task, queue, tenant and key, and one of concurrency and rate."""

    task: TaskName | None = None
    queue: Label | None = None
    tenant: Annotated[
        Label | None, Meta(description="By default that of the token; null limits the runs of all tenants.")
    ] = None
    key: Key | None = None
    concurrency: Annotated[int, Meta(ge=1, le=MOST_CONCURRENT)] | None = None
    rate: (
        Annotated[
            str, Meta(min_length=1, max_length=LONGEST_RATE, description="Starts in a period: 100/m, 10/30s.")
        ]
        | None
    ) = None
    burst: (
        Annotated[
            int, Meta(ge=1, le=MOST_STARTS, description="Starts that the rate allows after a quiet time.")
        ]
        | None
    ) = None


@endpoint("POST", "/limits", role="admin", scope="own", body=WantedLimit, answer=LIMIT)
def set_limit(call: Call[Any, WantedLimit]) -> object:
    """Set a limit; replace the one with the same task, queue, tenant and key."""
    made = call.app.limits.set(**_own(call, call.body))
    if call.principal.tenant is not None:
        # A token of one tenant does not see the nodes, so it gets no names of their tasks.
        made = replace(made, warnings=tuple(replace(each, hint=None) for each in made.warnings))
    return made


@endpoint(
    "DELETE",
    "/limits",
    role="admin",
    scope="own",
    query=LimitQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
)
def remove_limit(call: Call[LimitQuery, Any]) -> object:
    """Remove the limit that has exactly these names: runs that waited for it may start at once."""
    call.app.limits.remove(**_own(call, call.query))
    return None


def _own(call: Call[Any, Any], sent: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the client sent, with the tenant of its token."""
    fields = shapes.given(sent)
    own, wanted = call.principal.tenant, fields.get("tenant")
    if own is None:
        return fields
    if wanted is not None and wanted != own:
        raise foreign_tenant(call.principal, wanted)
    return fields | {"tenant": own}
