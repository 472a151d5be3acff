"""Access: identifies the sender of a request, and checks where it comes from and what it may do.

Host and Origin are compared as whole texts. Wrong tokens are counted by the peer's address or, behind a proxy
that the settings name, by the address that the proxy reports.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from evenbeat.app.tokens import Tokens
from evenbeat.core.tokens import Role, Token, allows
from evenbeat.errors import shown
from evenbeat.web.problems import Refused
from evenbeat.web.settings import WebSettings

CSRF_HEADER = "X-CSRF-Token"
# Seconds for which a verified token is accepted without asking the store: how long a revoked one still works.
BELIEVED = 3.0
# Wrong tokens that an address may send in a minute. Further requests are refused, whatever their token.
MOST_FAILURES = 20
FAILURE_WINDOW = 60.0
# The most addresses, and the most tokens, that are kept in memory.
_REMEMBERED = 10_000
# Peers whose addresses were read lately. Texts from headers, which may be long, are not cached.
_CACHED = 1_000
_WITH_PORT = re.compile(r"\A(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::[0-9]+)?\Z")


class Session(NamedTuple):
    """The session of a browser that logged in with a token."""

    key: str
    """The key of its record in the store."""
    csrf: str
    """The value that requests with the cookie must repeat in a header, unless they only read."""


class Connection(NamedTuple):
    """How a request reached the server."""

    address: str
    """The address by which wrong tokens are counted."""
    is_https: bool
    """Whether the browser speaks HTTPS, as far as the server or a named proxy knows."""
    prefix: str
    """The path under which another ASGI app has mounted this one; empty without one."""
    cookie: str | None = None
    """The cookie of a session that came with the request, valid or not; None without one."""


class Principal(NamedTuple):
    """The sender of a request."""

    name: str
    role: Role
    tenant: str | None
    """The only tenant that they may see; None for all."""
    token: str | None = None
    """The id of their token; None without one."""
    session: Session | None = None
    """Their session; None if the request came with the token itself, or without one."""

    def may_see(self, tenant: str) -> bool:
        return self.tenant is None or self.tenant == tenant


LOCAL = Principal("local", "admin", None)
"""Every sender to a server without tokens, which is bound to a loopback address."""

ANYBODY = Principal("anybody", "viewer", None, token="anybody")  # noqa: S106  # the id of no token
"""Every sender without a token, where the settings ask for none. They share the limits of one token."""


def visitor(address: str) -> Principal:
    """Return the sender of a request to a public endpoint. An address has the limits of one token."""
    return Principal("visitor", "viewer", None, token=f"address {address}")


class Gate:
    """Checks where requests come from, and their tokens."""

    def __init__(
        self, tokens: Tokens, settings: WebSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._believed: dict[bytes, tuple[Token, float]] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def check_origin(self, host: str | None, origin: str | None) -> None:
        """Refuse a Host that is not ours, and an Origin that is not the same host.

        A page of another site must not send requests through the browser of a user who has access. Nor may a
        site point a name of its own at our address (DNS rebinding), so that its pages look like ours.
        """
        host = (host or "").lower()
        if not self._settings.accepts_host(host):
            raise Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "foreign-host",
                f"this server does not answer to the host {shown(host)}",
                field="Host",
                value=host,
                hint="add it to the accepted hosts: evenbeat web --web-hosts HOST",
            )
        if origin is None:
            return
        if origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "foreign-origin",
                "a page of another site sent this request",
                field="Origin",
                value=origin,
                hint="send it from a page of this server, or without a browser",
            )

    def address(self, peer: str, forwarded: str | None) -> str:
        """Return the address by which wrong tokens are counted."""
        if forwarded is None:
            return _counted_by(peer)
        if self._is_proxy(peer):
            # Each proxy appends the address of its own peer: the last one that is not a proxy is the client.
            for text in reversed(forwarded.split(",")):
                peer = text.strip()
                if not self._is_proxy(peer):
                    break
        return _counted_by.__wrapped__(peer)

    def is_https(self, scheme: str, peer: str, forwarded: str | None) -> bool:
        """Return whether the browser speaks HTTPS: to this server, or to a proxy that the settings name."""
        if scheme == "https":
            return True
        said = [] if forwarded is None else [word.strip().lower() for word in forwarded.split(",")]
        return "https" in said and self._is_proxy(peer)

    def _is_proxy(self, text: str) -> bool:
        address = _read_address(text)
        return address is not None and any(address in network for network in self._settings.proxies)

    def recognise(self, authorization: str | None, address: str) -> Principal | None:
        """Return the sender of a request, by its Authorization header; None if only the store knows it.

        Does not block, so the event loop calls it: most requests need no further thread for their token.
        """
        if not self._settings.needs_token:
            return LOCAL
        self.refuse_guessing(address)
        key = _digest(_secret(authorization))
        with self._lock:
            known = self._believed.get(key)
        return principal_of(known[0]) if known is not None and known[1] > self._clock() else None

    def authenticate(self, authorization: str | None, address: str) -> Principal:
        """Return the sender of a request, by its Authorization header. Asks the store."""
        secret = _secret(authorization)
        with self.counted(address):
            token = self._verified(secret)
            if token is None:
                raise unauthorized("the token is wrong, expired or revoked", "ask an admin for another one")
            return principal_of(token)

    def check_login(self, secret: str, address: str) -> Token:
        """Return the token that somebody logs in with. Asks the store."""
        with self.counted(address):
            token = self._tokens.verify(secret.strip())
            if token is None:
                raise unauthorized(
                    "the token is wrong, expired or revoked", "ask an admin for another one", field="token"
                )
            return token

    def is_valid(self, principal: Principal) -> bool:
        """Return whether the token of a long request still works."""
        return principal.token is None or self._tokens.works(principal.token)

    def _verified(self, secret: str) -> Token | None:
        key, now = _digest(secret), self._clock()
        token = self._tokens.verify(secret)
        with self._lock:
            if token is None:
                self._believed.pop(key, None)
            else:
                if len(self._believed) >= _REMEMBERED:
                    self._believed.clear()
                self._believed[key] = (token, now + BELIEVED)
        return token

    def refuse_guessing(self, address: str) -> None:
        """Refuse an address that has sent too many wrong tokens."""
        now = self._clock()
        with self._lock:
            self._refuse_guessing(address, now)

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Check a token or a cookie inside. A wrong one, for which ``Refused`` is raised, stays counted.

        It is counted before the check: many that come at once are not checked at once.
        """
        now = self._clock()
        with self._lock:
            count, start = self._refuse_guessing(address, now)
            if len(self._failures) >= _REMEMBERED and address not in self._failures:
                self._failures.clear()
            self._failures[address] = (count + 1, start)
        try:
            yield
        except Refused:
            raise
        except BaseException:
            self._give_back(address, start)
            raise
        self._give_back(address, start)

    def _refuse_guessing(self, address: str, now: float) -> tuple[int, float]:
        """Return how many wrong tokens an address has sent, and since when. The caller holds the lock."""
        count, start = self._failures.get(address, (0, now))
        if now - start >= FAILURE_WINDOW:
            return 0, now
        if count >= MOST_FAILURES:
            wait = str(int(FAILURE_WINDOW - (now - start)) + 1)
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too-many-failures",
                f"{count} wrong tokens came from this address",
                hint=f"wait {wait} seconds",
                headers={"Retry-After": wait},
            )
        return count, start

    def _give_back(self, address: str, start: float) -> None:
        with self._lock:
            count, counted_since = self._failures.get(address, (0, start))
            if counted_since != start:
                return  # another minute has begun
            if count > 1:
                self._failures[address] = (count - 1, start)
            else:
                self._failures.pop(address, None)


@lru_cache(_CACHED)
def _counted_by(peer: str) -> str:
    """Return the text by which wrong tokens from a peer are counted."""
    found = _read_address(peer)
    if found is None:
        return peer[:64]
    # A household has 2**64 addresses of IPv6.
    return str(found if found.version == 4 else ipaddress.ip_network((found, 64), strict=False))


def _read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of a text; None if it is not one.

    A socket that takes both families writes IPv4 addresses as ``::ffff:192.0.2.1``. As IPv6, all of these
    would be one household. Some proxies append the port, which differs with each connection.
    """
    try:
        found = ipaddress.ip_address(_WITH_PORT.sub(r"\1\2", text))
    except ValueError:
        return None
    return found if found.version == 4 else found.ipv4_mapped or found


def is_bearer(authorization: str | None) -> bool:
    """Return whether the header Authorization has a token. A proxy may send passwords of its own in it."""
    return authorization is not None and authorization[:7].lower() in ("bearer ", "bearer")


def _secret(authorization: str | None) -> str:
    scheme, _, secret = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise unauthorized("the request has no token", "send it as 'Authorization: Bearer evb_…'")
    return secret.strip()


def _digest(secret: str) -> bytes:
    """Return a key for a secret, which itself is not kept in memory."""
    return hashlib.sha256(secret.encode(errors="replace")).digest()


def principal_of(token: Token, session: Session | None = None) -> Principal:
    return Principal(token.name, token.role, token.tenant, token.id, session)


def authorize(principal: Principal, needed: Role) -> None:
    """Refuse a role that does not include the needed one."""
    if not allows(principal.role, needed):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "role-too-low",
            f"this needs the role {needed}, and the token has the role {principal.role}",
            hint="ask an admin for a token with that role",
        )


def foreign_tenant(principal: Principal, wanted: str | None) -> Refused:
    """Return the answer to a token of one tenant that asks for another, whether or not that one exists.

    ``wanted`` is None if the request is about all tenants.
    """
    return Refused(
        HTTPStatus.FORBIDDEN,
        "foreign-tenant",
        f"the token is for tenant {principal.tenant}, and the request is about "
        + ("all tenants" if wanted is None else f"tenant {wanted}"),
        field="tenant",
        value=wanted,
        hint="ask an admin for a token without a tenant",
    )


def check_csrf(principal: Principal, sent: str | None) -> None:
    """Refuse a change that comes with the cookie of a session, and not with its CSRF token.

    A browser adds the cookie to any request to this host, and another site may have caused the request.
    """
    session = principal.session
    if session is not None and not hmac.compare_digest(
        session.csrf.encode(), (sent or "").encode(errors="replace")
    ):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "wrong-csrf-token",
            "the request has the cookie of a session, and "
            + ("no" if sent is None else "a wrong")
            + " CSRF token",
            field=CSRF_HEADER,
            hint="send csrf of GET /me in this header, or a token in the header Authorization",
        )


def unauthorized(detail: str, hint: str, field: str = "Authorization") -> Refused:
    """Return the answer to a sender who is not known."""
    return Refused(
        HTTPStatus.UNAUTHORIZED,
        "unauthorized",
        detail,
        field=field,
        hint=hint,
        headers={"WWW-Authenticate": 'Bearer realm="evenbeat"'},
    )
