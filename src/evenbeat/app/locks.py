"""The named lock over any store: held by a token for a time, extended and released by it alone.

A lock that is not extended ends by itself, so a holder that died blocks nobody for long. A holder
that lives but was frozen past its time does not know: pass the token on to what the lock guards.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import uuid4

import msgspec

from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record, check_description, check_name
from evenbeat.errors import InvalidValue, LockHeld, shown
from evenbeat.stores.base import Store

_KIND = "lock"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A lock as it is kept: who has it, what for and since when. Readable in the database as JSON."""

    holder: str = "somebody"
    """The host and the process."""
    description: str = ""
    created_at: datetime | None = None
    """When it was taken; extending it does not change that."""
    token: str = ""


_decoder = msgspec.json.Decoder(Held)


def new_token() -> str:
    """A token that nobody else has."""
    return uuid4().hex


def this_process() -> str:
    """Who takes a lock here: ``web-1-4711``, the host and the pid."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}"


def acquire(
    store: Store, name: str, ttl: Duration, token: str, tenant: str = "default", *, description: str = ""
) -> bool:
    """Take the lock for ``ttl``; False if somebody else holds it.

    Repeating it with the same token, after a lost reply, answers True and extends nothing.
    """
    check_name(name, "lock")
    present = store.get_record(_KIND, tenant, name)
    if present is not None:
        return _read(present).token == token
    taken = from_ms(store.now())
    held = Held(holder=this_process(), description=description, created_at=taken, token=token)
    return store.put_record(_lock(store, name, ttl, held, tenant))


def extend(store: Store, name: str, ttl: Duration, token: str, tenant: str = "default") -> bool:
    """Hold the lock for ``ttl`` from now on; False if the token does not hold it (any more)."""
    present = store.get_record(_KIND, tenant, name)
    if present is None or (held := _read(present)).token != token:
        return False
    return store.put_record(_lock(store, name, ttl, held, tenant), expect=present.version)


def release(store: Store, name: str, token: str, tenant: str = "default") -> bool:
    """Let go of the lock; False, and no harm, if the token does not hold it (any more)."""
    present = store.get_record(_KIND, tenant, name)
    if present is None or _read(present).token != token:
        return False
    return store.delete_record(_KIND, tenant, name, present.version)


def holder(store: Store, name: str, tenant: str = "default") -> Held | None:
    """Who holds the lock; None if nobody does."""
    present = store.get_record(_KIND, tenant, name)
    return None if present is None else _read(present)


def _read(record: Record) -> Held:
    try:
        return _decoder.decode(record.body)
    except msgspec.MsgspecError:
        return Held()  # somebody's edit: it is held, by nobody's token


def _lock(store: Store, name: str, ttl: Duration, held: Held, tenant: str) -> Record:
    length = read_duration(ttl, "ttl")
    if length == 0:
        raise InvalidValue(
            f"ttl {shown(ttl)} is no time at all", field="ttl", value=ttl, hint='give how long, like "30s"'
        )
    expires = store.now() + length
    # A version of its own each time: who held the lock before, and was frozen since, must not match.
    version = secrets.randbits(53)
    body = msgspec.json.encode(held).decode()
    return Record(kind=_KIND, tenant=tenant, key=name, body=body, version=version, expires=expires)


class Lock:
    """A named lock of one holder: taken, extended and let go with a token of its own.

    ``with app.lock("import", ttl="1m") as lock:`` raises ``LockHeld`` if somebody else has it, with who that
    is, since when, and the ``description`` that they gave.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        name: str,
        ttl: Duration,
        tenant: str = "default",
        description: str = "",
    ) -> None:
        check_name(name, "lock")
        read_duration(ttl, "ttl")
        check_description(description)
        # Asked for each time: a lock that a module makes when it is imported opens no database.
        self._store = store
        self.name = name
        self.tenant = tenant
        self.ttl = ttl
        self.description = description
        self.token = new_token()

    def acquire(self) -> bool:
        """Take it for ``ttl``; False if somebody else holds it."""
        return acquire(
            self._store(), self.name, self.ttl, self.token, self.tenant, description=self.description
        )

    def extend(self) -> bool:
        """Hold it for ``ttl`` from now on; False if it is not ours any more."""
        return extend(self._store(), self.name, self.ttl, self.token, self.tenant)

    def release(self) -> bool:
        """Let go of it; False, and no harm, if it is not ours any more."""
        released = release(self._store(), self.name, self.token, self.tenant)
        # A token is never used twice: a late repetition of this release can't end a later hold.
        self.token = new_token()
        return released

    def __enter__(self) -> Self:
        if not self.acquire():
            raise self._refused()
        return self

    def _refused(self) -> LockHeld:
        held = holder(self._store(), self.name, self.tenant)
        if held is None:  # let go of in between
            return LockHeld(self.tenant, self.name)
        return LockHeld(self.tenant, self.name, held.holder, held.description, held.created_at)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    aacquire = twin(acquire)
    aextend = twin(extend)
    arelease = twin(release)
    _arefused = twin(_refused)

    async def __aenter__(self) -> Self:
        if not await self.aacquire():
            raise await self._arefused()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.arelease()
