"""Sessions: a browser that logged in with a token sends a cookie instead of the token.

The cookie has the id of the token and a random secret, never the secret of the token. The store has a record
of the session under the hash of the cookie's secret, so a copy of the store opens no session. Every web
process reads these records: a session survives a restart, and a logout ends it everywhere. It lasts 12 hours,
and ends before that with its token. Nodes purge the records of sessions that have expired, like other expired
records.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar
from urllib.parse import quote

from evenbeat.app.scheduler import Scheduler
from evenbeat.core.records import Record
from evenbeat.core.tokens import Token
from evenbeat.web.access import (
    BELIEVED,
    FAILURE_WINDOW,
    Connection,
    Gate,
    Principal,
    Session,
    principal_of,
    unauthorized,
)
from evenbeat.web.problems import Refused

COOKIE = "evenbeat_session"
LASTS = 12 * 3_600_000
"""How long a session lasts at most, in milliseconds."""
MOST_OF_TOKEN = 100
"""How many sessions one token may have. One more ends the oldest."""

_V = TypeVar("_V")
_KIND = "session"
_VALUE = re.compile(r"[0-9a-f]{12}\.[A-Za-z0-9_-]{43}")
# The most sessions, and the most refused cookies, that are kept in memory.
_REMEMBERED = 10_000


class Sessions:
    """The sessions of a store. Any thread may use it."""

    def __init__(self, app: Scheduler, gate: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._gate = gate
        self._clock = clock
        self._lock = threading.Lock()
        self._believed: dict[str, tuple[Principal, float]] = {}
        self._refused: dict[str, float] = {}
        """By key: until when a cookie is refused without asking the store."""

    def begin(self, token: Token, replaced: str | None = None) -> tuple[str, Principal]:
        """Create a session of a token, and return the value of its cookie and the sender.

        ``replaced`` is the cookie that the browser has had. Its session ends: the browser forgets the cookie.
        """
        store = self._app.store
        if replaced is not None:
            self.end(_session(replaced))
        # "/" follows "." in ASCII.
        present = store.find_records(_KIND, "default", start=f"{token.id}.", end=f"{token.id}/")
        oldest_first = sorted(present, key=lambda record: record.expires or 0)
        for old in oldest_first[: max(0, len(present) - MOST_OF_TOKEN + 1)]:
            store.delete_record(_KIND, "default", old.key, old.version)
        cookie = f"{token.id}.{secrets.token_urlsafe(32)}"
        now = store.now()
        record = Record(
            kind=_KIND, key=_key(cookie), body=str(now), version=secrets.randbits(53), expires=now + LASTS
        )
        is_new = store.put_record(record)
        assert is_new, "two sessions drew the same random secret"
        return cookie, principal_of(token, _session(cookie))

    def recognise(self, cookie: str) -> Principal | None:
        """Return the sender of a request, by its cookie; None if only the store knows it. Does not block."""
        key, now = _key(cookie), self._clock()
        with self._lock:
            known = self._believed.get(key)
            is_refused = self._refused.get(key, now) > now
        if is_refused:
            raise _over()
        return known[0] if known is not None and known[1] > now else None

    def authenticate(self, cookie: str, address: str) -> Principal:
        """Return the sender of a request, by its cookie. Asks the store.

        A wrong cookie counts as a wrong token, but only once a minute: a page that was left open goes on
        asking with the cookie of a session that is over.
        """
        key, now = _key(cookie), self._clock()
        with self._gate.counted(address):
            token = self._token(key)
            if token is None:
                with self._lock:
                    self._believed.pop(key, None)
                    _remember(self._refused, key, now + FAILURE_WINDOW)
                raise _over()
        principal = principal_of(token, _session(cookie))
        with self._lock:
            _remember(self._believed, key, (principal, now + BELIEVED))
        return principal

    def is_valid(self, principal: Principal) -> bool:
        """Return whether the session of a long request still lasts; True without a session."""
        return principal.session is None or self._record(principal.session.key) is not None

    def end(self, session: Session) -> None:
        """End a session: other web processes refuse its cookie within 5 seconds."""
        record = self._record(session.key)
        if record is not None:
            self._app.store.delete_record(_KIND, "default", record.key, record.version)
        with self._lock:
            self._believed.pop(session.key, None)

    def _token(self, key: str) -> Token | None:
        """Return the token of a session; None if the session or the token does not work any more."""
        return None if self._record(key) is None else self._app.tokens.use(key.partition(".")[0])

    def _record(self, key: str) -> Record | None:
        return self._app.store.get_record(_KIND, "default", key)


def session_cookie(headers: Iterable[str]) -> str | None:
    """Return the cookie of a session from the headers Cookie; None if they have none in the right form.

    Of several, the first: browsers send the cookie with the longest path first, which is the one of this app.
    """
    for header in headers:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE and _VALUE.fullmatch(value):
                return value
    return None


def set_cookie(value: str, connection: Connection) -> str:
    """Return the header Set-Cookie that starts a session, or with an empty value deletes its cookie."""
    # A proxy that strips a prefix does not tell which one: then only "/" covers the paths that browsers see.
    path = quote(connection.prefix.rstrip("/"), safe="/") + "/"
    age = LASTS // 1000 if value else 0
    secure = "; Secure" if connection.is_https else ""
    return f"{COOKIE}={value}; Max-Age={age}; Path={path}; HttpOnly; SameSite=Strict{secure}"


def _key(cookie: str) -> str:
    """Return the key of a session's record: the id of the token, and the hash of the secret."""
    token, _, secret = cookie.partition(".")
    return f"{token}.{hashlib.sha256(secret.encode()).hexdigest()}"


def _session(cookie: str) -> Session:
    return Session(_key(cookie), hmac.new(cookie.encode(), b"csrf", "sha256").hexdigest())


def _remember(memory: dict[str, _V], key: str, value: _V) -> None:
    if len(memory) >= _REMEMBERED:
        memory.clear()
    memory[key] = value


def _over() -> Refused:
    return unauthorized("the session is over", "log in again", field="Cookie")
