"""Commands to the server: each is announced by name, the driver repeats none, and every error is
translated."""

from __future__ import annotations

import inspect
import os
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec
import redis
from redis import exceptions as driver
from redis.backoff import NoBackoff
from redis.retry import Retry

from evenbeat.core.instants import Instant
from evenbeat.errors import RowRefused, StoreUnavailable, TooLarge
from evenbeat.stores.redis.location import Endpoint, Location
from evenbeat.stores.redis.primary import PrimaryFinder, RawConnection, finder, is_elsewhere
from evenbeat.stores.redis.scripts import script
from evenbeat.stores.server_clock import ServerClock

OnCommand: TypeAlias = Callable[[str], None]
Reply: TypeAlias = list[Any]

# How many threads of a process may use a connection at the same time; others wait.
CONNECTIONS = 32
# How many redirections one command follows: a cluster that redirects it in circles is not ready.
_REDIRECTIONS = 5

_encode = msgspec.msgpack.Encoder().encode


class Session:
    """A client of one server at a time: the primary, which may become another one.

    A session leaves a server that is away or is not the primary: it closes the connections, forgets the
    server's clock, calls ``on_leave``, and searches for the primary before the next command. Survives
    forks: a child makes its own connections and leaves its parent's sockets alone.
    """

    def __init__(
        self,
        location: Location,
        timeout: float,
        clock: Callable[[], Instant] | None,
        on_command: OnCommand | None,
        key: str | None = None,
    ) -> None:
        """``key`` is any key that is used, if not those of a store: it determines the slot of a cluster."""
        self.location = location
        self.timeout = timeout
        self.opened = False
        self.on_leave: Callable[[], None] = lambda: None
        self._key = location.meta if key is None else key
        self._fixed_clock = clock
        self._on_command = on_command
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._client: redis.Redis | None = None
        self._finder: PrimaryFinder = finder(self.location, self._key, self._raw_connection_to)
        self._clock = ServerClock(self._ask)

    # The client.

    def client(self) -> redis.Redis:
        with self._lock:
            if self._client is None:
                self._client = redis.Redis(connection_pool=self._pool(self._finder.find()))
            return self._client

    def _pool(self, endpoint: Endpoint) -> redis.BlockingConnectionPool:
        return redis.BlockingConnectionPool.from_url(
            self.location.url_of(endpoint),
            max_connections=CONNECTIONS,
            timeout=self.timeout,
            **self._options(),
        )

    def _options(self) -> dict[str, Any]:
        return {
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.timeout,
            "socket_keepalive": True,
            "socket_keepalive_options": keepalive(),
            # A command whose reply was lost may have been applied: only the caller knows whether to repeat
            # it.
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "health_check_interval": 0,
            "protocol": 2,
            "decode_responses": True,
            # Bytes that are not UTF-8 become lone surrogates: then the row is unreadable, not the whole
            # reply.
            "encoding_errors": "surrogateescape",
        }

    def raw_connection(self) -> RawConnection:
        """Create a connection outside of the pool, not connected yet."""
        return cast(RawConnection, self.client().connection_pool.make_connection())

    def _raw_connection_to(self, url: str) -> RawConnection:
        return cast(RawConnection, redis.ConnectionPool.from_url(url, **self._options()).make_connection())

    def leave(self, client: redis.Redis) -> None:
        """Leave the client's server, which is away or is not the primary: the next command searches for the
        primary."""
        with self._lock:
            if self._client is not client:
                return  # another thread has left it
            self._client = None
        self._clock.forget()
        disconnect(client.connection_pool)
        self.on_leave()

    def close(self) -> None:
        self.opened = False
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            disconnect(client.connection_pool)

    def after_fork_in_child(self) -> None:
        if self._pid != os.getpid():
            inherited = self._client
            self._reset()
            if inherited is not None:
                # Never closed here: that would end the parent's connections.
                _inherited.append(inherited)

    # Time.

    def now(self) -> Instant:
        return self._clock.now() if self._fixed_clock is None else self._fixed_clock()

    def _ask(self) -> Instant:
        seconds, micros = self.execute("time", "TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    # Commands.

    def announce(self, name: str) -> None:
        if self._on_command is not None:
            self._on_command(name)

    def committed(self) -> None:
        self.announce("committed")

    def run(self, name: str, request: object) -> Reply:
        """Run a script, and return its reply without the time, which sets the clock."""
        wanted = script(name)
        self._check_open()
        self.announce(wanted.name)
        time = "" if self._fixed_clock is None else str(self._fixed_clock())
        try:
            values = (1, self.location.meta, time, _encode(request))
        except (UnicodeEncodeError, OverflowError) as error:
            raise RowRefused(str(error), "Redis cannot store a value") from error
        sent = self._clock.mark()
        try:
            reply = self.send("EVALSHA", wanted.sha, *values)
        except driver.NoScriptError:
            # The server was restarted, or its scripts were flushed: EVAL loads the script again.
            reply = self._translated("EVAL", wanted.text, *values)
        except (driver.RedisError, OSError) as error:
            raise translated(self.location, error) from error
        if not time:
            self._clock.update(reply[0], sent)
        return cast(Reply, reply[1:])

    def execute(self, name: str, *words: str | int) -> Any:
        """Execute a plain command."""
        self._check_open()
        self.announce(name)
        return self._translated(*words)

    def ask(self, *words: str | int) -> Any:
        """Execute a command also if the store is not open, for reading."""
        return self._translated(*words)

    def _translated(self, *words: object) -> Any:
        try:
            return self.send(*words)
        except (driver.RedisError, OSError) as error:
            raise translated(self.location, error) from error

    def send(self, *words: object, **options: object) -> Any:
        """Send a command to the primary, and follow redirections of a cluster. A node that redirects a
        command has not executed it; no other command is repeated."""
        redirections = 0
        while True:
            client = self.client()
            execute: Callable[..., Any] = client.execute_command
            try:
                return execute(*words, **options)
            except driver.MovedError as error:
                # A node that does not know its own address leaves it out: the same host, another port.
                host = error.host or str(client.connection_pool.connection_kwargs["host"])
                self._finder.redirect(Endpoint(host, error.port))
                self.leave(client)
                redirections += 1
                if self.location.kind != "cluster" or redirections > _REDIRECTIONS:
                    raise
            except (driver.RedisError, OSError) as error:
                if is_elsewhere(error):
                    self.leave(client)
                raise

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            self.after_fork_in_child()
        if not self.opened:
            raise StoreUnavailable(f"{self.location.shown}: the store is not open; call open() first")


def disconnect(pool: Any) -> None:
    """Close a pool. Connections in use are closed after their commands; before redis-py 7, during them."""
    if "inuse_connections" in inspect.signature(pool.disconnect).parameters:
        pool.disconnect(inuse_connections=False)
    else:
        pool.disconnect()


def keepalive() -> dict[int, int]:
    """Return socket options with which a dead connection is noticed in about 10 s, where the system has
    them."""
    wanted = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


# Errors for which the driver has classes; it removes their codes from the message.
_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (
        driver.OutOfMemoryError,
        "maxmemory is reached, and nothing was written; give the server more, or keep less",
    ),
    (driver.BusyLoadingError, "the server is still loading its data; try again"),
    (driver.ReadOnlyError, "this server is a replica; try again, or name the primary"),
    (
        driver.NoPermissionError,
        "this user may not do that; docs/stores/redis.md says what it must be allowed",
    ),
    (driver.AuthenticationError, "the server does not accept this user or password"),
    (driver.ClusterDownError, "a part of the cluster is missing; try again"),
    (driver.TimeoutError, "the server did not answer in time; can it be reached from here? try again"),
    (driver.ConnectionError, "is the server there, and can it be reached from here? try again"),
    (OSError, "is the server there, and can it be reached from here? try again"),
)
_BY_CODE = {
    "MISCONF": "the server can't write to its disk; make room there",
    "BUSY": "another script keeps the server busy; try again",
    "NOAUTH": "the server requires a password; write it in the URL",
    "WRONGPASS": "the server does not accept this user or password",
    "WRONGTYPE": "a key has another type than the one that was written",
    "NOREPLICAS": "the server has too few replicas for min-replicas-to-write; try again",
}


# The node's answer to a script with a key that the node does not have (any more).
_MOVING = "access a non local key"
# The server ends the connection at a text of more than proto-max-bulk-len (default 512 MB), and has
# executed nothing. Its reply may be lost while the text is still being sent: that is StoreUnavailable then.
_REFUSED = "REFUSED "
_TOO_LARGE = "invalid bulk length"


def translated(location: Location, error: Exception) -> StoreUnavailable | TooLarge | RowRefused:
    """Return the error to raise, with advice for users."""
    text = str(error) or type(error).__name__
    if isinstance(error, driver.ResponseError) and text.startswith(_REFUSED):
        # A key of another type is where a script would write this row.
        return RowRefused(text.removeprefix(_REFUSED).split(" script: ")[0])
    if isinstance(error, driver.ResponseError) and _TOO_LARGE in text:
        return TooLarge(f"{location.shown}: {text} (more than proto-max-bulk-len of the server at once)")
    if isinstance(error, driver.MovedError):
        text = f"this node of a cluster does not have the keys, {Endpoint(error.host, error.port)} has"
        advice = "write redis+cluster://, which finds them" if location.kind != "cluster" else "try again"
    else:
        if _MOVING in text or isinstance(error, driver.AskError | driver.TryAgainError):
            text, error = "the cluster is moving our keys to another node", driver.ClusterDownError("")
        found = (advice for kind, advice in _BY_CLASS if isinstance(error, kind))
        known = (advice for code, advice in _BY_CODE.items() if text.startswith(f"{code} "))
        advice = next(known, next(found, ""))
    return StoreUnavailable(f"{location.shown}: {text}" + (f" ({advice})" if advice else ""))


_all: weakref.WeakSet[Session] = weakref.WeakSet()
# Clients of a parent process: kept here, since garbage collection would close their connections.
_inherited: list[redis.Redis] = []


def _after_fork_in_child() -> None:
    for session in list(_all):
        session.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
