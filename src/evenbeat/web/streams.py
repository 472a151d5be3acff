"""Streams of changes: the hub that passes changes on to any number of clients, as Server-Sent Events.

The thread that watches the store calls ``publish`` once a second, so a client gets at most one frame a
second. A frame contains all changes that its client may see, and is encoded once for all clients of a tenant.

**Ids.** The id of a frame is the store's time in ms and a number that grows by one with each poll for
changes, whether or not it found any: it does not say whether another tenant's subjects changed. The number
starts at random, so that ids of another process are not mistaken for ours. A client that comes back names the
last id that it got (``Last-Event-ID``), and gets the changes since then, from frames of the last 10 minutes.
If these do not reach back far enough, it gets the event ``reset`` and has to read everything again.

**Tenants.** Each tenant with clients has its own history of frames. What its clients get does not depend on
the changes or the clients of other tenants.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.web.change import Change, coalesced

HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 3.0
"""How often the hub asks whether clients are still allowed: a revoked token ends its stream within 5 s."""
RETRY_MS = 3_000
"""After how long a client connects again."""

MOST_FRAMES = 1_000
MOST_CHANGES = 1_000
"""How many changes the kept frames of a tenant have together."""
KEPT_SECONDS = 600.0
MOST_WAITING = 10
"""How many frames wait for a slow client."""
MOST_RESUMED = 500
"""With more changes since its last id, a client does better to read everything again."""

# How long after the last client has left the watch goes on: a page that is loaded again comes back soon.
_LINGER_SECONDS = 60.0
_TICK_SECONDS = 1.0
_ID = re.compile(r"[0-9]{1,15}-([0-9]{1,15})", re.ASCII)

_log = logging.getLogger("evenbeat.web.streams")


class _Frame(NamedTuple):
    number: int
    instant: Instant
    published_at: float
    changes: tuple[Change, ...]


class _History:
    """The frames of a tenant, or of all tenants, for clients that come back.

    Each tenant has its own. So the time for which a client can come back does not depend on how busy other
    tenants are.
    """

    def __init__(self, number: int, now: float) -> None:
        self.began_at = self.left_at = now
        self.clients = 0
        self._frames: deque[_Frame] = deque()
        self._kept_changes = 0
        self._complete_since = number

    def add(self, frame: _Frame) -> None:
        self._frames.append(frame)
        self._kept_changes += len(frame.changes)
        self.drop_old_frames(frame.published_at)

    def since(self, last: int) -> list[Change] | None:
        """Return the changes after a number; None if they are not known any more, or too many."""
        if last < self._complete_since:
            return None
        changes = [change for frame in self._frames if frame.number > last for change in frame.changes]
        seen = coalesced(changes)
        return seen if len(seen) <= MOST_RESUMED else None

    def drop_old_frames(self, now: float) -> None:
        while self._frames and (
            len(self._frames) > MOST_FRAMES
            or self._kept_changes > MOST_CHANGES
            or self._frames[0].published_at < now - KEPT_SECONDS
        ):
            frame = self._frames.popleft()
            self._kept_changes -= len(frame.changes)
            self._complete_since = frame.number


class Hub:
    """Passes changes on to the clients of one process. Its clients belong to one event loop.

    ``publish``, ``close`` and ``audiences`` may be used from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        # Protects the histories and the number. The event loop alone changes the subscriptions.
        self._lock = threading.Lock()
        self._histories: dict[str | None, _History] = {}
        self._number = secrets.randbelow(1 << 31)
        self._instant: Instant = 0
        self._subscriptions: dict[Subscription, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._is_closed = False

    @property
    def audiences(self) -> dict[str | None, float]:
        """The tenants that have clients, or had some a minute ago, with the seconds since the first one came;
        None stands for all tenants.

        Drops the history of the others: nobody polls for their changes, so their clients have to read
        everything again when they come back.
        """
        with self._lock:
            now = self.clock()
            self._histories = {
                tenant: history
                for tenant, history in self._histories.items()
                if history.clients or now - history.left_at < _LINGER_SECONDS
            }
            return {tenant: now - history.began_at for tenant, history in self._histories.items()}

    @property
    def clients(self) -> int:
        return len(self._subscriptions)

    def publish(self, instant: Instant, found: Mapping[str | None, Sequence[Change]]) -> None:
        """Pass on the changes that a poll at this instant of the store found for each audience, if any."""
        frames: dict[str | None, _Frame] = {}
        with self._lock:
            self._number += 1
            self._instant = instant
            for tenant, changes in found.items():
                visible = tuple(change for change in changes if change.is_visible_to(tenant))
                if visible and tenant in self._histories:
                    frames[tenant] = _Frame(self._number, instant, self.clock(), visible)
                    self._histories[tenant].add(frames[tenant])
            loop = self._loop
        if frames and loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and with it every stream
                loop.call_soon_threadsafe(self._deliver, frames)

    def close(self) -> None:
        """End all streams. Call it before the server waits for its connections to end."""
        self._is_closed = True
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._end_all)

    def subscription(
        self,
        tenant: str | None,
        is_allowed: Callable[[], bool] = lambda: True,
        last_event_id: str | None = None,
    ) -> Subscription:
        """Return a subscription to the changes of a tenant, or of all tenants. It begins with ``sse``.

        The hub calls ``is_allowed`` every 3 s, in a thread, and ends the stream when it returns False.
        """
        return Subscription(tenant, is_allowed, last_event_id, self)

    # The rest runs in the event loop.

    def begin(self, subscription: Subscription) -> None:
        """Add a client, and give it what it has missed."""
        self._bind(asyncio.get_running_loop())
        if self._is_closed:
            subscription.end()
            return
        with self._lock:
            position, shown = self._number, f"{self._instant}-{self._number}"
            missed = self._missed(subscription)
            history = self._histories.setdefault(subscription.tenant, _History(position, self.clock()))
            history.clients += 1
        # A frame up to here that is not delivered yet is contained in the missed changes, or older than the
        # stream.
        subscription.position = position
        subscription.push(f": connected\nretry: {RETRY_MS}\nid: {shown}\n\n".encode())
        if missed is None:
            subscription.push(_reset(shown))
        elif missed:
            subscription.push(_encoded(shown, missed))
        self._subscriptions[subscription] = None

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise RuntimeError("the streams of a hub belong to one event loop")
            self._subscriptions.clear()
            self._histories.clear()
            self._tasks = ()
        self._loop = loop
        if not self._tasks and not self._is_closed:
            self._tasks = (
                loop.create_task(_regularly(_TICK_SECONDS, self.send_heartbeats)),
                loop.create_task(_regularly(CHECK_SECONDS, self.end_forbidden)),
            )

    def _missed(self, subscription: Subscription) -> list[Change] | None:
        """Return the changes since the last id of a client; None if they are not known any more."""
        if subscription.last_event_id is None:
            return []
        history = self._histories.get(subscription.tenant)
        match = _ID.fullmatch(subscription.last_event_id)
        if history is None or match is None or int(match[1]) > self._number:
            return None
        history.drop_old_frames(self.clock())
        return history.since(int(match[1]))

    def _deliver(self, frames: Mapping[str | None, _Frame]) -> None:
        encoded: dict[str | None, bytes] = {}
        for subscription in self._subscriptions:
            tenant = subscription.tenant
            frame = frames.get(tenant)
            if frame is None or subscription.position >= frame.number:
                continue
            subscription.position = frame.number
            shown = f"{frame.instant}-{frame.number}"
            if tenant not in encoded:
                encoded[tenant] = _encoded(shown, frame.changes)
            subscription.push(encoded[tenant])
            if subscription.waiting > MOST_WAITING:
                subscription.replace(_reset(shown))

    async def send_heartbeats(self) -> None:
        """Send a comment to each client that has got nothing for 15 s, so that proxies keep the connection.

        It has an id: a client that got no frames for long can still continue from here.
        """
        with self._lock:
            heartbeat = f": heartbeat\nid: {self._instant}-{self._number}\n\n".encode()
        silent_since = self.clock() - HEARTBEAT_SECONDS
        for subscription in self._subscriptions:
            if subscription.waiting == 0 and subscription.is_silent_since <= silent_since:
                subscription.push(heartbeat)

    async def end_forbidden(self) -> None:
        """End the streams whose tokens have been revoked or have expired."""
        subscriptions = list(self._subscriptions)
        for subscription in await asyncio.to_thread(_forbidden, subscriptions):
            subscription.end()

    def finish(self, subscription: Subscription) -> None:
        """Remove a client."""
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            with self._lock:
                history = self._histories.get(subscription.tenant)
                if history is not None:
                    history.clients -= 1
                    history.left_at = self.clock()
        if not self._subscriptions:
            for task in self._tasks:
                task.cancel()
            self._tasks = ()

    def _end_all(self) -> None:
        for subscription in self._subscriptions:
            subscription.end()


class Subscription:
    """A client of the hub, from its request until its connection ends. ``sse`` begins and finishes it."""

    def __init__(
        self, tenant: str | None, is_allowed: Callable[[], bool], last_event_id: str | None, hub: Hub
    ) -> None:
        self.tenant = tenant
        self.is_allowed = is_allowed
        self.last_event_id = last_event_id
        self.hub = hub
        self.position = 0
        """The number of the last frame that was delivered, or left out because the client may not see it."""
        self.is_silent_since = hub.clock()
        self._frames: deque[bytes] = deque()
        self._awake = asyncio.Event()
        self._has_ended = False

    @property
    def waiting(self) -> int:
        """How many frames wait until the client has taken those before them."""
        return len(self._frames)

    def push(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._awake.set()

    def replace(self, frame: bytes) -> None:
        """Drop all frames that wait, and push another one in their place."""
        self._frames.clear()
        self.push(frame)

    def end(self) -> None:
        """End the stream without the frames that wait."""
        self._has_ended = True
        self._awake.set()

    async def next_part(self) -> bytes | None:
        """Wait for frames, and return all that wait; None at the end of the stream."""
        await self._awake.wait()
        self._awake.clear()
        if self._has_ended:
            return None
        self.is_silent_since = self.hub.clock()
        part = b"".join(self._frames)
        self._frames.clear()
        return part


async def sse(subscription: Subscription) -> AsyncIterator[bytes]:
    """Yield the body of a ``text/event-stream`` response, until the client leaves or the stream ends.

    Send it with ``Cache-Control: no-store`` and ``X-Accel-Buffering: no``.
    """
    subscription.hub.begin(subscription)
    try:
        while (part := await subscription.next_part()) is not None:
            yield part
    finally:
        subscription.hub.finish(subscription)


def _encoded(shown: str, changes: Sequence[Change]) -> bytes:
    # JSON escapes line breaks, so the data is one line.
    data = msgspec.json.encode({"changes": changes})
    return b"id: " + shown.encode() + b"\nevent: changes\ndata: " + data + b"\n\n"


def _reset(shown: str) -> bytes:
    return f"id: {shown}\nevent: reset\ndata: {{}}\n\n".encode()


def _forbidden(subscriptions: list[Subscription]) -> list[Subscription]:
    return [subscription for subscription in subscriptions if not _is_allowed(subscription)]


def _is_allowed(subscription: Subscription) -> bool:
    try:
        return subscription.is_allowed()
    except StoreUnavailable:
        # Nothing is known about the token, and no changes are found meanwhile, either.
        return True
    except Exception:
        _log.exception("a token could not be checked, so its stream ends", extra={"component": "web"})
        return False


async def _regularly(seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except Exception:
            _log.exception("a step of the streams failed, retrying", extra={"component": "web"})
