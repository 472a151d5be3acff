"""The sender of a request, and the session of a browser: log in with a token, log out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evenbeat.core.tokens import Role
from evenbeat.web.access import Principal
from evenbeat.web.endpoint import Call, Reply, endpoint
from evenbeat.web.problems import Refused
from evenbeat.web.sessions import set_cookie


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends the request, and what they may do."""

    name: str
    role: Role
    tenant: str | None
    """The only tenant that they may see; null for all."""
    default_tenant: str
    """The tenant of requests that name none."""
    has_session: bool
    """Whether the request came with the cookie of a session."""
    csrf: str | None
    """The value of the header X-CSRF-Token, for requests of the session that change something; null without
    a session."""


@endpoint("GET", "/me", role="viewer", scope="own", answer=Me)
def who_am_i(call: Call[Any, Any]) -> object:
    """Return who sends the request, and what they may do."""
    return _me(call, call.principal)


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login."""

    token: Annotated[str, Meta(min_length=1, max_length=1_000)]
    """The secret of a token: `evb_…`."""


@endpoint(
    "POST",
    "/session",
    role="viewer",
    scope="own",
    body=Login,
    answer=Me,
    status=HTTPStatus.CREATED,
    is_public=True,
)
def log_in(call: Call[Any, Login]) -> object:
    """Log in with a token: the answer sets the cookie of a session.

    The session lasts 12 hours, and ends with its token. It may do what the token may. The cookie is
    `evenbeat_session` (HttpOnly, SameSite=Strict). The session of a cookie that came with the request ends.
    A wrong token counts as in any other request (429).
    """
    if not call.state.settings.needs_token:
        raise Refused(
            HTTPStatus.CONFLICT,
            "no-login-needed",
            "this server asks for no token",
            hint="send requests without a session",
        )
    connection = call.connection()
    token = call.state.gate.check_login(call.body.token, connection.address)
    cookie, principal = call.state.sessions.begin(token, connection.cookie)
    return Reply(_me(call, principal), HTTPStatus.CREATED, {"Set-Cookie": set_cookie(cookie, connection)})


@endpoint("DELETE", "/session", role="viewer", scope="own", answer=None, status=HTTPStatus.NO_CONTENT)
def log_out(call: Call[Any, Any]) -> object:
    """Log out: servers refuse the cookie within 5 seconds, and its event streams end. The token stays.

    Without a session, it changes nothing.
    """
    if call.principal.session is not None:
        call.state.sessions.end(call.principal.session)
    return Reply(None, HTTPStatus.NO_CONTENT, {"Set-Cookie": set_cookie("", call.connection())})


def _me(call: Call[Any, Any], principal: Principal) -> Me:
    session = principal.session
    return Me(
        name=principal.name,
        role=principal.role,
        tenant=principal.tenant,
        default_tenant=principal.tenant or call.app.tenant,
        has_session=session is not None,
        csrf=None if session is None else session.csrf,
    )
