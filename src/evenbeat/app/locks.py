"""The named lock over any store: a token holds it for a time, and only that token extends or releases it.

A lock that is not extended expires, so a holder that died blocks nobody for long. A holder that was frozen
past the expiry does not know that it lost the lock: pass the token on to what the lock guards.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, Self, TypeAlias
from uuid import uuid4

import msgspec

from evenbeat.app.session import VirtualTime, apause, clock_of, pause, virtual_time
from evenbeat.core.awaitable import twin, whole
from evenbeat.core.checks import check_description, check_name
from evenbeat.core.clocks import steady_clock
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant, from_ms
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, LockHeld, LockLost, StoreUnavailable, shown
from evenbeat.stores.base import Store

LockFailure: TypeAlias = Literal["held", "lost", "error"]
"""Why a lock was not to be had: another holder has it, it was lost in its block, or the store failed."""

_KIND = "lock"
# Seconds between two tries to acquire a lock that is held: short at first, then doubled.
_RETRY, _LONGEST_RETRY = 0.02, 0.5

_log = logging.getLogger("evenbeat.app.locks")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A lock as it is stored: its holder, the purpose and since when. Readable in the database as JSON."""

    holder: str = "somebody"
    """The host and the process."""
    description: str = ""
    created_at: datetime | None = None
    """When it was acquired; extending it does not change that."""
    token: str = ""


_decoder = msgspec.json.Decoder(Held)


def new_token() -> str:
    """Return a token that is never used again."""
    return uuid4().hex


def this_process() -> str:
    """Return the holder's name for locks of this process, its host and pid: ``web-1-4711``."""
    return f"{socket.gethostname()[:60]}-{os.getpid()}"


def try_acquire(
    store: Store, name: str, ttl: Duration, token: str, tenant: str = "default", *, description: str = ""
) -> bool:
    """Acquire the lock for ``ttl``; return False if another token holds it.

    A token that holds the lock already, by a call whose reply was lost, holds it for ``ttl`` from now on.
    """
    check_name(name, "lock")
    present = store.get_record(_KIND, tenant, name)
    if present is not None:
        return _read(present).token == token and extend(store, name, ttl, token, tenant)
    taken = from_ms(store.now())
    held = Held(holder=this_process(), description=description, created_at=taken, token=token)
    return store.put_record(_lock(store, name, ttl, held, tenant))


def extend(store: Store, name: str, ttl: Duration, token: str, tenant: str = "default") -> bool:
    """Hold the lock for ``ttl`` from now on; return False if the token does not hold it any more."""
    # A write that is refused has lost to another one of the same token, or the lock expired: read again.
    while (present := store.get_record(_KIND, tenant, name)) is not None:
        held = _read(present)
        if held.token != token:
            return False
        if store.put_record(_lock(store, name, ttl, held, tenant), expect=present.version):
            return True
    return False


def release(store: Store, name: str, token: str, tenant: str = "default") -> bool:
    """Release the lock; return False, and change nothing, if the token does not hold it any more."""
    while (present := store.get_record(_KIND, tenant, name)) is not None:
        if _read(present).token != token:
            return False
        if store.delete_record(_KIND, tenant, name, present.version):
            return True
    return False


def holder(store: Store, name: str, tenant: str = "default") -> Held | None:
    """Return the holder of the lock; None if it is free."""
    present = store.get_record(_KIND, tenant, name)
    return None if present is None else _read(present)


def _read(record: Record) -> Held:
    try:
        return _decoder.decode(record.body)
    except msgspec.MsgspecError:
        return Held()  # edited by hand: it is held, and no token matches


def _lock(store: Store, name: str, ttl: Duration, held: Held, tenant: str) -> Record:
    length = read_duration(ttl, "ttl")
    if length == 0:
        raise InvalidValue(
            f"ttl {shown(ttl)} is zero", field="ttl", value=ttl, hint='give a duration, like "30s"'
        )
    expires = store.now() + length
    # A new version each time: an earlier holder that was frozen since must not match.
    version = secrets.randbits(53)
    body = msgspec.json.encode(held).decode()
    return Record(kind=_KIND, tenant=tenant, key=name, body=body, version=version, expires=expires)


class Lock:
    """A named lock, not acquired yet.

    ``with app.lock("import"):`` raises ``LockHeld`` if another holder has it, renews it while the block runs,
    and raises ``LockLost`` at the end of the block if it was lost meanwhile.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        name: str,
        ttl: Duration,
        tenant: str = "default",
        description: str = "",
        timeout: Duration | None = "0s",
        *,
        note_failure: Callable[[LockFailure], None] = lambda _: None,
    ) -> None:
        check_name(name, "lock")
        self._note_failure = note_failure
        self._ttl_ms = read_duration(ttl, "ttl")
        self._timeout = None if timeout is None else read_duration(timeout, "timeout") / 1000
        check_description(description)
        # Called each time: a lock that a module makes when it is imported opens no database.
        self._store = store
        self.name = name
        self.tenant = tenant
        self.ttl = ttl
        self.description = description
        self.token = new_token()
        self._renewal: _Renewal | None = None

    def try_acquire(self) -> bool:
        """Acquire the lock for ``ttl``; return False if another holder has it. Does not wait."""
        is_held = self._try()
        if not is_held:
            self._note_failure("held")
        return is_held

    def _try(self) -> bool:
        try:
            return try_acquire(
                self._store(), self.name, self.ttl, self.token, self.tenant, description=self.description
            )
        except StoreUnavailable:
            self._note_failure("error")
            raise

    async def atry_acquire(self) -> bool:
        """``try_acquire``, awaited. If it is cancelled, the lock is not held afterwards."""
        is_held = await self._atry()
        if not is_held:
            self._note_failure("held")
        return is_held

    async def _atry(self) -> bool:
        is_held, cancelled = await whole(self._try)
        if cancelled is not None:
            if is_held:
                await whole(self.release)
            raise cancelled
        return is_held

    def acquire(self, timeout: Duration | None = None) -> None:
        """Acquire the lock for ``ttl``; wait while another holder has it.

        ``LockHeld`` if it is still held after ``timeout``; without one, wait as long as it takes. Waiters
        retry at least twice a second, in no particular order.
        """
        limit = None if timeout is None else read_duration(timeout, "timeout") / 1000
        if self._try():
            return
        for seconds in _pauses(limit, self._store()):
            pause(self._store(), seconds, is_endless=self._is_endless(limit))
            if self._try():
                return
        raise self._held_error()

    async def aacquire(self, timeout: Duration | None = None) -> None:
        """``acquire``, awaited. Holds no thread while it waits."""
        limit = None if timeout is None else read_duration(timeout, "timeout") / 1000
        if await self._atry():
            return
        for seconds in _pauses(limit, self._store()):
            await apause(self._store(), seconds, is_endless=self._is_endless(limit))
            if await self._atry():
                return
        raise await self._aheld_error()

    def extend(self) -> bool:
        """Hold the lock for ``ttl`` from now on; return False if it is lost. ``with`` does it by itself."""
        renewal = self._renewal
        asked = 0.0 if renewal is None else renewal.clock()
        is_held = extend(self._store(), self.name, self.ttl, self.token, self.tenant)
        if is_held and renewal is not None:
            renewal.extended(asked)
        return is_held

    def release(self) -> bool:
        """Release the lock; return False, and change nothing, if it was lost."""
        released = release(self._store(), self.name, self.token, self.tenant)
        # A token is never used twice: a late repetition of this release can't end a later hold.
        self.token = new_token()
        return released

    @property
    def is_lost(self) -> bool:
        """Whether the lock was lost inside its ``with`` block: it expired, or was deleted by hand."""
        return self._renewal is not None and self._renewal.is_lost

    def raise_if_lost(self) -> None:
        """Raise ``LockLost`` if the lock was lost inside its ``with`` block. Call it between steps."""
        if self.is_lost:
            raise LockLost(self.tenant, self.name)

    def __enter__(self) -> Self:
        if self._begin():
            return self
        for seconds in _pauses(self._timeout, self._store()):
            pause(self._store(), seconds, is_endless=self._is_endless(self._timeout))
            if self._begin():
                return self
        raise self._held_error()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            lost = self._end()
        except Exception:
            self._not_released(error)
            return
        if lost is not None and error is None:
            raise lost

    async def __aenter__(self) -> Self:
        if await self._abegin():
            return self
        for seconds in _pauses(self._timeout, self._store()):
            await apause(self._store(), seconds, is_endless=self._is_endless(self._timeout))
            if await self._abegin():
                return self
        raise await self._aheld_error()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            lost, cancelled = await whole(self._end)
        except Exception:
            self._not_released(error)
            return
        if cancelled is not None:
            raise cancelled
        if lost is not None and error is None:
            raise lost

    def _begin(self) -> bool:
        """Acquire the lock and start to renew it; False if it is held."""
        if self._renewal is not None:
            raise InvalidValue(
                f"lock {shown(self.name)} is held by this object already",
                field="lock",
                value=self.name,
                hint="make another one: app.lock(…)",
            )
        virtual = virtual_time(self._store())
        asked = clock_of(self._store(), steady_clock)()
        if not self._try():
            return False
        if virtual is None:
            self._renewal = _ThreadRenewal(self, asked, self._ttl_ms / 1000)
        else:
            self._renewal = _VirtualRenewal(self, asked, self._ttl_ms / 1000, virtual, self._store())
        return True

    async def _abegin(self) -> bool:
        """``_begin``, awaited. If it is cancelled, nothing stays: the lock would be renewed forever."""
        is_held, cancelled = await whole(self._begin)
        if cancelled is not None:
            if is_held:
                await whole(self._end)
            raise cancelled
        return is_held

    def _end(self) -> LockLost | None:
        """Stop renewing and release the lock; return the error if it was lost meanwhile."""
        renewal, self._renewal = self._renewal, None
        assert renewal is not None
        if renewal.pid != os.getpid():
            # The end of the block in a process that was forked inside of it: the lock is the parent's.
            self.token = new_token()
            return None
        renewal.stop()
        is_released = self.release()
        if is_released and not renewal.is_lost:
            return None
        self._note_failure("lost")
        return LockLost(self.tenant, self.name)

    def _not_released(self, error: BaseException | None) -> None:
        """Raise the present exception of a release, or log it where the block has raised an error of its own:
        that one comes out."""
        if error is None:
            raise
        _log.warning(
            "a lock can't be released, and expires by itself", exc_info=True, extra={"lock": self.name}
        )

    def _is_endless(self, timeout: float | None) -> bool:
        """Return whether a wait in virtual time has no end of its own: no timeout, a holder that renews."""
        virtual = virtual_time(self._store())
        if virtual is None or timeout is not None:
            return False
        held = holder(self._store(), self.name, self.tenant)
        return held is not None and held.token in virtual.renewals

    def _held_error(self) -> LockHeld:
        self._note_failure("held")
        held = holder(self._store(), self.name, self.tenant)
        if held is None:  # released in between
            return LockHeld(self.tenant, self.name)
        return LockHeld(self.tenant, self.name, held.holder, held.description, held.created_at)

    aextend = twin(extend)
    arelease = twin(release)
    _aheld_error = twin(_held_error)


class _Renewal(ABC):
    """Renews a lock while its ``with`` block runs."""

    def __init__(self, lock: Lock, acquired: float, ttl: float) -> None:
        self.pid = os.getpid()
        self._lock = lock
        self._ttl = ttl
        self._expires = acquired + ttl
        self._is_refused = False

    @property
    def is_lost(self) -> bool:
        return self._is_refused or self.clock() >= self._expires

    def extended(self, asked: float) -> None:
        """Note that the lock is held for its time to live, counted from when the store was asked."""
        self._expires = max(self._expires, asked + self._ttl)

    @abstractmethod
    def clock(self) -> float:
        """Return the time in seconds, by the clock that the lock expires by."""

    @abstractmethod
    def stop(self) -> None:
        """Stop renewing."""


class _VirtualRenewal(_Renewal):
    """Renews a lock whenever virtual time moves, however far."""

    def __init__(self, lock: Lock, acquired: float, ttl: float, virtual: VirtualTime, store: Store) -> None:
        super().__init__(lock, acquired, ttl)
        self._virtual = virtual
        self._store = store
        self._token = lock.token
        virtual.renewals[self._token] = self._renew

    def clock(self) -> float:
        return self._store.now() / 1000

    def stop(self) -> None:
        self._virtual.renewals.pop(self._token, None)

    def _renew(self, instant: Instant) -> None:
        if self.is_lost:
            return
        # From the present on, since the lock would have expired at the instant itself.
        length = timedelta(milliseconds=instant - self._store.now() + round(self._ttl * 1000))
        if extend(self._store, self._lock.name, length, self._token, self._lock.tenant):
            self.extended(instant / 1000)
        else:
            self._is_refused = True


class _ThreadRenewal(_Renewal):
    """Renews a lock in a thread of its own, each third of its time to live.

    While the store does not answer, the thread retries until the lock has expired; then it is lost.
    """

    def __init__(self, lock: Lock, acquired: float, ttl: float) -> None:
        super().__init__(lock, acquired, ttl)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="evenbeat-lock", daemon=True)
        self._thread.start()

    def clock(self) -> float:
        return steady_clock()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(self._ttl)

    def _renew(self) -> None:
        wait = self._ttl / 3
        while not self._stopping.wait(wait) and not self.is_lost:
            try:
                is_held = self._lock.extend()
            except StoreUnavailable:
                wait = min(self._ttl / 12, 1.0)
                continue
            except Exception:
                _log.exception("a lock can't be renewed", extra={"lock": self._lock.name})
                wait = self._ttl / 12
                continue
            if not is_held:
                self._is_refused = True
                return
            wait = self._ttl / 3


def _pauses(timeout: float | None, store: Store) -> Iterator[float]:
    """Yield the seconds to wait before each further try, until the timeout has passed."""
    clock = clock_of(store, steady_clock)
    deadline = None if timeout is None else clock() + timeout
    seconds = _RETRY
    while deadline is None or (left := deadline - clock()) > 0:
        yield seconds if deadline is None else min(seconds, left)
        seconds = min(seconds * 2, _LONGEST_RETRY)
