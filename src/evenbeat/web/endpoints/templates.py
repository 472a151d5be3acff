"""Templates: list, get, set and delete the named sets of options that schedules inherit."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.core.options import SCHEDULE
from evenbeat.core.templates import Template, TemplateChange
from evenbeat.rules.inheritance import INHERITABLE
from evenbeat.web import shapes
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Label, TenantQuery

TEMPLATE = body_of(Template)


@endpoint(
    "GET",
    "/templates",
    role="viewer",
    scope="tenant",
    query=TenantQuery,
    answer=list_of("Templates", TEMPLATE),
)
def list_templates(call: Call[TenantQuery, Any]) -> object:
    """List the templates of a tenant, and then the built-in ones."""
    items = call.app.templates.list(tenant=call.owner)
    return {"items": shapes.with_masked_texts(call.principal, items)}


@endpoint("GET", "/templates/{name}", role="viewer", scope="tenant", query=TenantQuery, answer=TEMPLATE)
def get_template(call: Call[TenantQuery, Any]) -> object:
    """Return a template. GET /schedules?template=… lists the schedules that inherit from it."""
    template = call.app.templates.get(call.path["name"], tenant=call.owner)
    return shapes.with_masked_texts(call.principal, template)


_WantedTemplate = msgspec.defstruct(
    "WantedTemplate",
    [
        ("name", Label),
        ("dry_run", Annotated[bool, Meta(description="Show what would change, and change nothing.")], False),
        ("trigger", shapes.TriggerText | UnsetType, UNSET),
        *shapes.option_fields({name: SCHEDULE[name] for name in INHERITABLE if name in SCHEDULE}),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)


@endpoint(
    "POST",
    "/templates",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    body=_WantedTemplate,
    answer=body_of(TemplateChange),
)
def set_template(call: Call[TenantQuery, Any]) -> object:
    """Create a template, or replace all of its options, and change the schedules that inherit from it.

    Options that are a schedule's own stay. No tick fires from the change. After a lost reply, send it again:
    it changes the schedules that are left.
    """
    return call.app.templates.set(**shapes.given(call.body), tenant=call.owner)


@endpoint(
    "DELETE",
    "/templates/{name}",
    role="admin",
    scope="tenant",
    query=TenantQuery,
    answer=None,
    status=HTTPStatus.NO_CONTENT,
)
def delete_template(call: Call[TenantQuery, Any]) -> object:
    """Delete a template. 409 if schedules inherit from it; the problem names them."""
    call.app.templates.delete(call.path["name"], tenant=call.owner)
    return None
