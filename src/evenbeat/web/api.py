"""The ASGI app: routes requests to endpoints, after the checks that all of them share."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from evenbeat.app.acting import acting_as
from evenbeat.core.checks import (
    LONGEST_RUN_ID,
    LONGEST_TASK,
    NAME_PATTERN,
    NAMES,
    RUN_ID_PATTERN,
    TASK_PATTERN,
)
from evenbeat.core.json_form import json_form
from evenbeat.errors import EvenbeatError, shown
from evenbeat.web import problems
from evenbeat.web.access import (
    ANYBODY,
    CSRF_HEADER,
    Connection,
    Principal,
    authorize,
    check_csrf,
    foreign_tenant,
    is_bearer,
    visitor,
)
from evenbeat.web.binding import LONGEST_BODY, read_body, read_query
from evenbeat.web.endpoint import KEY_PATTERN, LONGEST_KEY, PREFIX, TABLE, Call, Endpoint, Reply
from evenbeat.web.page import Dashboard, with_slash
from evenbeat.web.problems import Refused
from evenbeat.web.sessions import session_cookie
from evenbeat.web.state import WebState

METRICS = "/metrics"
"""The path that the settings may open to requests without a token."""
# The most bytes in the body of a request that needs no token.
LONGEST_PUBLIC_BODY = 10_000
# Seconds in which the body of a request must arrive.
BODY_PATIENCE = 30.0
PATH_PATTERNS = {
    "name": re.compile(NAME_PATTERN),
    "id": re.compile(f"(?=.{{1,{LONGEST_RUN_ID}}}$){RUN_ID_PATTERN}"),
    "flow": re.compile(f"(?=.{{1,{LONGEST_TASK}}}$){TASK_PATTERN}"),
}
_MEANT = {
    "name": NAMES,
    "id": f"1 to {LONGEST_RUN_ID} visible characters",
    "flow": f"1 to {LONGEST_TASK} visible characters",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_log = logging.getLogger("evenbeat.web.api")

Respond = Callable[[Request], Awaitable[Response]]


def routes(state: WebState, endpoints: Iterable[Endpoint] = TABLE) -> list[Route]:
    """Return a route for each path. It answers every method: 405 lists those of the path."""
    paths: dict[str, dict[str, Endpoint]] = {}
    for each in endpoints:
        paths.setdefault(each.url, {})[each.method] = each
    ordered = sorted(paths.items(), key=lambda item: _rank(item[0]))
    return [_route(state, _pattern(path), partial(_dispatch, state, methods)) for path, methods in ordered]


def _rank(path: str) -> int:
    # Paths that end with a parameter that may have slashes come last: their patterns match other paths, too.
    if ":path" in _pattern(path) and not _has_verb(path):
        return 2
    # Starlette tries the patterns in turn, about 1 us each. Schedules are asked for most often.
    return 0 if path.startswith(f"{PREFIX}/schedules") else 1


def _pattern(path: str) -> str:
    # The ids of ticks' runs have slashes, and the names of flows may; the ids that users choose have none.
    is_run = path.startswith((f"{PREFIX}/runs/", f"{PREFIX}/flow-runs/", f"{PREFIX}/quarantine/"))
    return (path.replace("{id}", "{id:path}") if is_run else path).replace("{flow}", "{flow:path}")


def _has_verb(path: str) -> bool:
    return not path.endswith("}")


def _route(state: WebState, path: str, respond: Respond) -> Route:
    return Route(path, _Answering(state, respond))


class _Answering:
    """An ASGI app of one path, for every method. Problems become answers here."""

    def __init__(self, state: WebState, respond: Respond) -> None:
        self._state = state
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except Refused as refused:
            response = problem_response(refused)
        except EvenbeatError as error:
            if isinstance(error, problems.OUTAGES):
                self._state.outages.note(error)
            response = problem_response(problems.refusal(error))
        except ClientDisconnect:
            return
        except Exception:
            fields = {"component": "web", "method": request.method, "path": request.url.path}
            _log.exception("a request failed", extra=fields)
            response = problem_response(problems.unexpected())
        try:
            await response(scope, receive, send)
        except Refused as refused:
            # A stream that has not begun: only now it is known that there is no room for it.
            await problem_response(refused)(scope, receive, send)


def problem_response(refused: Refused) -> Response:
    return Response(
        problems.encoded(refused.problem),
        refused.problem.status,
        {**_HEADERS, **refused.headers},
        problems.MEDIA_TYPE,
    )


async def _dispatch(state: WebState, methods: dict[str, Endpoint], request: Request) -> Response:
    wanted = "GET" if request.method == "HEAD" else request.method
    found = methods.get(wanted)
    principal = await admitted(state, request, found)
    if found is None:
        allowed = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
        raise Refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method-not-allowed",
            f"this path does not take {request.method}, only {allowed}",
            headers={"Allow": allowed},
        )
    authorize(principal, found.role)
    _check_path(request.path_params)
    query = read_query(request.query_params.multi_items(), found.query)
    tenant = _tenant(state, principal, found, query)
    with nullcontext() if found.is_stream else state.requests.counted(principal):
        call = await _read_call(state, principal, tenant, found, query, request)
        if found.is_public:
            return await anyio.to_thread.run_sync(_answered, found, call, limiter=state.token_checks)
        return await run_in_threadpool(_answered, found, call)


async def _read_call(
    state: WebState, principal: Principal, tenant: str | None, found: Endpoint, query: Any, request: Request
) -> Call[Any, Any]:
    longest = LONGEST_PUBLIC_BODY if found.is_public else LONGEST_BODY
    raw = await _body_in_time(request, longest) if found.method != "GET" else b""
    body = read_body(raw, request.headers.get("content-type", ""), found.body, found.query)
    return Call(
        state=state,
        app=state.app,
        principal=principal,
        tenant=tenant,
        path=request.path_params,
        query=query,
        body=body,
        if_revision=_if_revision(request, found),
        idempotency_key=_idempotency_key(request, found),
        connection=partial(_connection, state, request),
        last_event_id=request.headers.get("last-event-id"),
        accept=request.headers.get("accept", ""),
    )


def _answered(found: Endpoint, call: Call[Any, Any]) -> Response:
    """Call the endpoint and encode its answer, both in a thread: a page can have megabytes."""
    reply = _handled(found, call)
    if isinstance(reply.body, Response):
        headers = reply.body.headers
        headers.update({name: value for name, value in _HEADERS.items() if name not in headers})
        return reply.body
    content = b"" if found.answer is None else msgspec.json.encode(json_form(reply.body))
    media = None if found.answer is None else "application/json"
    return Response(content, reply.status, {**_HEADERS, **reply.headers}, media)


def _handled(found: Endpoint, call: Call[Any, Any]) -> Reply:
    with acting_as(call.principal.name, "api"):
        reply = found.handler(call)
    if found.changes_schedules:
        call.state.costly.forget()
    return reply if isinstance(reply, Reply) else Reply(reply, found.status)


def _check_path(parameters: Mapping[str, str]) -> None:
    """Refuse a name or id in the path that no schedule or run can have."""
    for name, pattern in PATH_PATTERNS.items():
        value = parameters.get(name)
        # Other parameters belong to the path under which this app is mounted.
        if value is not None and not pattern.fullmatch(value):
            raise Refused(
                HTTPStatus.BAD_REQUEST,
                "invalid-value",
                f"{name} {shown(value)} in the path is not {_MEANT[name]}",
                field=name,
                value=value,
            )


async def admitted(state: WebState, request: Request, found: Endpoint | None = None) -> Principal:
    """Return the sender of the request, after the checks of its origin and of its token or session."""
    headers = request.headers
    state.gate.check_origin(headers.get("host"), headers.get("origin"))
    address = _address(state, request)
    if found is not None and found.is_public:
        state.gate.refuse_guessing(address)
        return visitor(address)
    authorization = headers.get("authorization")
    if not is_bearer(authorization) and state.settings.needs_token:
        cookie = session_cookie(headers.getlist("cookie"))
        if cookie is not None:
            return await _admitted_by_cookie(state, request, cookie, address)
    is_open = found is not None and found.url == METRICS and state.settings.open_metrics
    if is_open and authorization is None:
        return ANYBODY
    known = state.gate.recognise(authorization, address)
    if known is not None:
        return known
    # Threads of their own: while the store is slow, senders without a token leave the others theirs.
    return await anyio.to_thread.run_sync(
        state.gate.authenticate, authorization, address, limiter=state.token_checks
    )


async def _admitted_by_cookie(state: WebState, request: Request, cookie: str, address: str) -> Principal:
    state.gate.refuse_guessing(address)
    principal = state.sessions.recognise(cookie)
    if principal is None:
        principal = await anyio.to_thread.run_sync(
            state.sessions.authenticate, cookie, address, limiter=state.token_checks
        )
    if request.method not in ("GET", "HEAD"):
        check_csrf(principal, request.headers.get(CSRF_HEADER))
    return principal


def _address(state: WebState, request: Request) -> str:
    # Some proxies append a header of their own to the one that the client sent.
    forwarded = ", ".join(request.headers.getlist("x-forwarded-for")) or None
    return state.gate.address(_peer(request), forwarded)


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _connection(state: WebState, request: Request) -> Connection:
    said = ", ".join(request.headers.getlist("x-forwarded-proto")) or None
    return Connection(
        _address(state, request),
        state.gate.is_https(request.scope.get("scheme", "http"), _peer(request), said),
        request.scope.get("root_path", ""),
        session_cookie(request.headers.getlist("cookie")),
    )


def _tenant(state: WebState, principal: Principal, found: Endpoint, query: object) -> str | None:
    """Return the tenant that the request is about; None for all tenants."""
    if found.scope == "store":
        if principal.tenant is not None:
            raise foreign_tenant(principal, None)
        return None
    if found.scope == "own":
        return principal.tenant
    if getattr(query, "all_tenants", False):
        if principal.tenant is not None:
            raise foreign_tenant(principal, None)
        return None
    wanted = getattr(query, "tenant", msgspec.UNSET)
    if wanted is msgspec.UNSET:
        return principal.tenant or state.app.tenant
    assert isinstance(wanted, str)
    if not principal.may_see(wanted):
        raise foreign_tenant(principal, wanted)
    return wanted


async def _body_in_time(request: Request, longest: int) -> bytes:
    try:
        with anyio.fail_after(BODY_PATIENCE):
            return await _body(request, longest)
    except TimeoutError:
        raise Refused(
            HTTPStatus.REQUEST_TIMEOUT,
            "body-too-slow",
            f"the body did not arrive within {BODY_PATIENCE:.0f} s",
            headers={"Connection": "close"},
        ) from None


async def _body(request: Request, longest: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > longest:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "body-too-large",
                f"the body is longer than {longest:,} bytes",
                headers={"Connection": "close"},
            )
        parts.append(part)
    return b"".join(parts)


def _if_revision(request: Request, found: Endpoint) -> int | None:
    text = request.headers.get("if-match")
    if text is None or not found.has_etag or text.strip() == "*":
        return None
    revision = text.strip().strip('"')
    if not (revision.isascii() and revision.isdigit() and len(revision) < 16):
        word = found.group.removesuffix("s")
        raise Refused(
            HTTPStatus.PRECONDITION_FAILED,
            f"{word}-changed",
            f"the {word} does not have that ETag",
            field="If-Match",
            value=text,
            hint=f"send the ETag of the {word} as you last read it",
        )
    return int(revision)


def _idempotency_key(request: Request, found: Endpoint) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None or not found.is_idempotent:
        return None
    if not (len(key) <= LONGEST_KEY and re.fullmatch(KEY_PATTERN, key)):
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            "invalid-value",
            f"Idempotency-Key {shown(key)} is not 1 to {LONGEST_KEY} printable ASCII characters",
            field="Idempotency-Key",
            value=key,
        )
    return key


def starlette_app(state: WebState, dashboard: Dashboard, more: Iterable[Route] = ()) -> Starlette:
    """Return the ASGI app with all endpoints and the dashboard. Paths that do not exist need a token, too."""

    async def missing(request: Request) -> Response:
        await admitted(state, request)
        raise Refused(
            HTTPStatus.NOT_FOUND,
            "no-such-path",
            "there is nothing at this path",
            hint=f"GET {PREFIX}/openapi.json lists the paths",
        )

    def public(answer: Callable[[Request], Response | None]) -> Respond:
        async def respond(request: Request) -> Response:
            state.gate.check_origin(request.headers.get("host"), request.headers.get("origin"))
            found = answer(request) if request.method in ("GET", "HEAD") else None
            return await missing(request) if found is None else found

        return respond

    # The files of the dashboard come after the API, which browsers ask for far more often.
    made = [
        *more,
        *routes(state),
        _route(state, "/", public(dashboard.page)),
        _route(state, "/assets/{file}", public(dashboard.asset)),
        _route(state, "/{path:path}", missing),
    ]
    for route in made:
        # Starlette's patterns also match a path with a line break at its end, and none with one inside.
        route.path_regex = re.compile(route.path_regex.pattern.removesuffix("$") + r"\Z", re.DOTALL)
    app = Starlette(routes=made)
    # Starlette itself would redirect /jobs to /jobs/ before the check of the host.
    app.router.redirect_slashes = False
    app.router.default = _Missing(state, public(with_slash), app.router.not_found)
    return app


class _Missing:
    """Answers requests whose target is not a path: ``OPTIONS *``, ``GET http://host/…``, web sockets."""

    def __init__(self, state: WebState, respond: Respond, not_http: ASGIApp) -> None:
        self._http = _Answering(state, respond)
        self._not_http = not_http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._http if scope["type"] == "http" else self._not_http)(scope, receive, send)
