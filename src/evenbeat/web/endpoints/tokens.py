"""Tokens: list, create and revoke them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from evenbeat.app.tokens import LONGEST_NAME
from evenbeat.core.tokens import NewToken, Role, Token
from evenbeat.web.binding import ONE_LINE
from evenbeat.web.bodies import body_of, list_of
from evenbeat.web.endpoint import Call, endpoint
from evenbeat.web.shapes import Label, Span


@endpoint("GET", "/tokens", role="admin", scope="store", answer=list_of("Tokens", body_of(Token)))
def list_tokens(call: Call[Any, Any]) -> object:
    """List the tokens that work, those used last first, without their secrets."""
    return {"items": call.app.tokens.list()}


class WantedToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create."""

    name: Annotated[str, Meta(pattern=ONE_LINE, max_length=LONGEST_NAME)]
    role: Role = "viewer"
    tenant: Label | None = None
    expires: Span | UnsetType | None = UNSET
    """How long it works, by default 90 days; null: until it is revoked."""


@endpoint(
    "POST",
    "/tokens",
    role="admin",
    scope="store",
    body=WantedToken,
    answer=body_of(NewToken),
    status=HTTPStatus.CREATED,
)
def create_token(call: Call[Any, WantedToken]) -> object:
    """Create a token. Its secret is in this answer, and nowhere else."""
    wanted = call.body
    if wanted.expires is UNSET:
        return call.app.tokens.create(wanted.name, wanted.role, tenant=wanted.tenant)
    return call.app.tokens.create(wanted.name, wanted.role, tenant=wanted.tenant, expires=wanted.expires)


@endpoint("DELETE", "/tokens/{id}", role="admin", scope="store", answer=None, status=HTTPStatus.NO_CONTENT)
def revoke_token(call: Call[Any, Any]) -> object:
    """Revoke a token: servers refuse it within 5 seconds."""
    call.app.tokens.revoke(call.path["id"])
    return None
