"""The location of a store, and the driver's clients: their options, their sharing, and forks.

Stores of one process that name the same server share a client, its connections and its threads: opening and
closing a store beside another one costs nothing, and the last store to close ends the threads.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient, monitoring
from pymongo.errors import ConfigurationError, InvalidURI

from evenbeat.core.instants import Instant
from evenbeat.errors import InvalidValue, StoreUnavailable, shown
from evenbeat.stores.server_clock import ServerClock
from evenbeat.stores.urls import without_password

Document: TypeAlias = dict[str, Any]
Client: TypeAlias = MongoClient[Document]

APPLICATION = "evenbeat"
"""The name of Evenbeat's connections on the server. It also identifies Evenbeat's transactions."""

_DATABASE = "evenbeat"
_LONGEST_NAME = 63
_NOT_IN_NAMES = frozenset('/\\. "$*<>:|?\0')
# More threads than this wait for a connection.
_CONNECTIONS = 32
# How much longer a socket waits than the server: the server's own error says more.
_SOCKET_GRACE = 1.0
# How often the driver checks each member, in milliseconds. The primary's answer sets the clock.
_HEARTBEAT = 5_000


class Location(NamedTuple):
    """The server, the database in it, and their name in messages."""

    server: str
    database: str
    shown: str


def read_location(url: str) -> Location:
    """Read a URL. Its path is the database; the default is ``evenbeat``."""
    parts = urlsplit(url)
    if parts.scheme not in ("mongodb", "mongodb+srv") or not parts.netloc:
        raise InvalidValue(
            f"store {shown(without_password(url))} is not a MongoDB URL",
            field="store",
            value=without_password(url),
            hint="write mongodb://host:27017/evenbeat?replicaSet=rs0",
        )
    database = unquote(parts.path)[1:] or _DATABASE
    if len(database.encode()) > _LONGEST_NAME or not _NOT_IN_NAMES.isdisjoint(database):
        raise InvalidValue(
            f"{shown(database)} can't be the name of a database in MongoDB",
            field="store",
            value=database,
            hint=f"1 to {_LONGEST_NAME} letters, digits, _ or -",
        )
    # The path stays in the URL for the driver: without authSource it is the database that knows the user.
    server = url if "@" in parts.netloc else parts._replace(path="/").geturl()
    where = parts._replace(query="", fragment="", path=f"/{database}").geturl()
    return Location(server, database, without_password(where))


def options(timeout: float) -> dict[str, Any]:
    """Return the options on which the guarantees depend. They override those of the URL."""
    milliseconds = max(1, int(timeout * 1000))
    return {
        # Acknowledged means: on the disks of a majority. An isolated primary accepts writes that will be
        # lost.
        "w": "majority",
        "journal": True,
        "wTimeoutMS": milliseconds,
        "readConcernLevel": "majority",
        "readPreference": "primary",
        # The store repeats calls itself, by ids and tokens; the driver must not.
        "retryWrites": False,
        "retryReads": False,
        "timeoutMS": None,
        "connectTimeoutMS": milliseconds,
        "serverSelectionTimeoutMS": milliseconds,
        "socketTimeoutMS": int((timeout + _SOCKET_GRACE) * 1000),
        "waitQueueTimeoutMS": milliseconds,
        "maxPoolSize": _CONNECTIONS,
        "minPoolSize": 0,
        "appname": APPLICATION,
        # Polling needs one thread and one connection less per client than the driver's streaming.
        "serverMonitoringMode": "poll",
        "heartbeatFrequencyMS": _HEARTBEAT,
        "tz_aware": False,
        # A document with invalid text, written by hand, must not fail the fetch of other documents.
        "unicode_decode_error_handler": "replace",
        "datetime_conversion": DatetimeConversion.DATETIME_MS,
    }


def local_time(hello: Document) -> Instant:
    """Return the time of a server's clock from its answer to hello."""
    return int(DatetimeMS(hello["localTime"]))


class Heartbeats(monitoring.ServerHeartbeatListener):
    """Sets clocks by the primary's answers to the driver's heartbeats. So a changed clock, and the clock of
    a new primary, are noticed without a command of their own."""

    def __init__(self) -> None:
        self.clocks: weakref.WeakSet[ServerClock] = weakref.WeakSet()
        self._started: dict[tuple[str, int | None], float] = {}

    def started(self, event: monitoring.ServerHeartbeatStartedEvent) -> None:
        self._started[event.connection_id] = time.monotonic()

    def succeeded(self, event: monitoring.ServerHeartbeatSucceededEvent) -> None:
        started = self._started.pop(event.connection_id, None)
        hello = event.reply.document
        if started is None or event.awaited or not event.reply.is_writable or "localTime" not in hello:
            return
        instant = local_time(hello)
        for clock in tuple(self.clocks):
            # The time since the heartbeat was sent, not the event's duration: this thread may have waited
            # to run.
            clock.update(instant, clock.mark() - (time.monotonic() - started) * 1000)

    def failed(self, event: monitoring.ServerHeartbeatFailedEvent) -> None:
        pass


class _SharedClient:
    """A client and how many stores use it."""

    def __init__(self, client: Client, heartbeats: Heartbeats) -> None:
        self.client = client
        self.heartbeats = heartbeats
        self.users = 1


_lock = threading.Lock()
_clients: dict[tuple[str, float], _SharedClient] = {}
# Clients of the parent process: kept here, so that they are never closed or garbage-collected.
_inherited: list[_SharedClient] = []


class ClientReference:
    """A reference to a shared client, until it is given back; after a fork, to a new client."""

    def __init__(self, location: Location, timeout: float, clock: ServerClock) -> None:
        """From the first command on, the driver's heartbeats set ``clock``."""
        self._location = location
        self._clock = clock
        self._key = (location.server, timeout)
        self._shared: _SharedClient | None = None
        self._pid = os.getpid()

    @property
    def held(self) -> bool:
        return self._shared is not None

    def client(self) -> Client:
        """Return the client. It sends nothing before its first command."""
        shared = self._shared
        if shared is not None and self._pid == os.getpid():
            return shared.client
        with _lock:
            if self._shared is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._shared = self._take()
                self._shared.heartbeats.clocks.add(self._clock)
            return self._shared.client

    def _take(self) -> _SharedClient:
        shared = _clients.get(self._key)
        if shared is not None:
            shared.users += 1
            return shared
        heartbeats = Heartbeats()
        shared = _clients[self._key] = _SharedClient(self._connect(heartbeats), heartbeats)
        return shared

    def _connect(self, heartbeats: Heartbeats) -> Client:
        server, timeout = self._key
        try:
            return MongoClient(server, **options(timeout), event_listeners=[heartbeats])
        except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
            raise InvalidValue(
                f"store {shown(self._location.shown)}: {error}", field="store", value=self._location.shown
            ) from None
        except Exception as error:  # SRV records that cannot be resolved: the resolver may raise any error
            raise StoreUnavailable(f"{self._location.shown}: {error}") from error

    def renew(self, client: Client) -> None:
        """Replace ``client`` by a new one, for all stores that share it. Its connections are closed."""
        with _lock:
            shared = self._shared
            if shared is None or self._pid != os.getpid() or shared.client is not client:
                return  # another thread has replaced it
            shared.client = self._connect(shared.heartbeats)
        client.close()

    def give_back(self) -> None:
        """Give the reference back. Safe to repeat. The last reference ends the client's threads and waits
        for them."""
        with _lock:
            shared, self._shared = self._shared, None
            if shared is None or self._pid != os.getpid():
                return
            shared.heartbeats.clocks.discard(self._clock)
            shared.users -= 1
            if shared.users:
                return
            del _clients[self._key]
        _close(shared.client)


def _close(client: Client) -> None:
    before = [thread for thread in threading.enumerate() if thread.name.startswith("pymongo_")]
    client.close()
    if _clients:
        return  # threads of other clients look the same as those that end
    # These threads check every half second whether to end.
    for thread in before:
        thread.join(2.0)


def _after_fork_in_child() -> None:
    """Forget the parent's clients and locks."""
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_clients.values())
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
