"""Endpoints: each has one description, by which its requests are routed, checked and documented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from evenbeat.core.tokens import Role
from evenbeat.web.access import Connection, Principal
from evenbeat.web.binding import Nothing

if TYPE_CHECKING:
    from evenbeat.app.scheduler import Scheduler
    from evenbeat.web.state import WebState

Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
Scope: TypeAlias = Literal["tenant", "store", "own"]
"""``tenant``: about one tenant, or about all of them if the token is for all. ``store``: about the whole
store; a token of one tenant is refused. ``own``: any token; the answer depends on the token."""

PREFIX = "/api/v1"
LONGEST_KEY = 255
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"
"""An Idempotency-Key: printable characters of ASCII. HTTP drops spaces around it."""

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B", bound=msgspec.Struct)


class Call(NamedTuple, Generic[Q, B]):
    """A request after routing, authorisation and binding."""

    state: WebState
    app: Scheduler
    principal: Principal
    tenant: str | None
    """The tenant that the request is about; None for all tenants."""
    path: Mapping[str, str]
    query: Q
    body: B
    if_revision: int | None
    """The revision that If-Match names; None if there is none."""
    idempotency_key: str | None
    connection: Callable[[], Connection]
    """Returns how the request reached the server."""
    last_event_id: str | None = None
    accept: str = ""
    """The value of the header Accept."""

    @property
    def owner(self) -> str:
        """The tenant, for endpoints that are about exactly one."""
        assert self.tenant is not None
        return self.tenant

    @property
    def tenants(self) -> dict[str, Any]:
        """The tenant, or all of them, as arguments for methods of the app."""
        return {"tenant": self.tenant, "all_tenants": self.tenant is None}


class Reply(NamedTuple):
    """An answer that is more than a body."""

    body: object
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


class Endpoint(NamedTuple):
    """The description of an endpoint."""

    method: Method
    path: str
    """Below ``/api/v1``, unless it is at the root; parameters in braces."""
    role: Role
    scope: Scope
    handler: Callable[[Call[Any, Any]], object]
    """A plain function: it is called in a thread, since stores are synchronous."""
    query: type[msgspec.Struct]
    body: type[msgspec.Struct]
    answer: Any
    """The type of the body of the answer; None if it has none."""
    status: HTTPStatus
    summary: str
    has_etag: bool
    is_idempotent: bool
    is_stream: bool
    """Whether its answer goes on for long. It counts as a stream, not as a request."""
    is_at_root: bool
    """Whether its path is not below ``/api/v1``: a program expects it elsewhere."""
    is_public: bool
    """Whether it needs no token. It then ignores the one that a request has."""

    @property
    def url(self) -> str:
        """Its whole path."""
        return self.path if self.is_at_root else PREFIX + self.path

    @property
    def changes_schedules(self) -> bool:
        """Whether a request to it may change schedules."""
        return self.method != "GET" and not {"schedules", "templates"}.isdisjoint(self.path.split("/"))

    @property
    def group(self) -> str:
        """The first part of its path: its subject."""
        return self.path.split("/")[1]


TABLE: list[Endpoint] = []
"""Every endpoint, in the order in which they are documented."""


def endpoint(
    method: Method,
    path: str,
    *,
    role: Role,
    scope: Scope,
    answer: Any,
    query: type[Q] = Nothing,  # type: ignore[assignment]  # Nothing is a query like any other
    body: type[B] = Nothing,  # type: ignore[assignment]  # likewise
    status: HTTPStatus = HTTPStatus.OK,
    has_etag: bool = False,
    is_idempotent: bool = False,
    is_stream: bool = False,
    is_at_root: bool = False,
    is_public: bool = False,
) -> Callable[[Callable[[Call[Q, B]], object]], Callable[[Call[Q, B]], object]]:
    """Register a function as an endpoint. The first line of its docstring is its summary.

    ``role`` and ``scope`` have no default: an endpoint without them fails at import.
    """

    def register(handler: Callable[[Call[Q, B]], object]) -> Callable[[Call[Q, B]], object]:
        assert handler.__doc__, f"{method} {path} has no summary"
        assert not any((each.method, each.path) == (method, path) for each in TABLE), f"{method} {path} twice"
        TABLE.append(
            Endpoint(
                method,
                path,
                role,
                scope,
                handler,
                query,
                body,
                answer,
                status,
                handler.__doc__.partition("\n")[0],
                has_etag,
                is_idempotent,
                is_stream,
                is_at_root,
                is_public,
            )
        )
        return handler

    return register
