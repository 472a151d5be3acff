"""Commands to the server: each announced by name, none repeated by the driver, every error translated."""

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
from evenbeat.errors import InvalidValue, StoreUnavailable, TooLarge
from evenbeat.stores.redis.location import Endpoint, Location
from evenbeat.stores.redis.primary import PrimaryFinder, RawConnection, finder, is_elsewhere
from evenbeat.stores.redis.scripts import script
from evenbeat.stores.server_clock import ServerClock

OnCommand: TypeAlias = Callable[[str], None]
Reply: TypeAlias = list[Any]

# Threads of one process that talk to the server at once; the next one waits for its turn.
CONNECTIONS = 32
# Redirections that one command follows: a cluster that sends it in circles is not ready.
_REDIRECTIONS = 5

_encode = msgspec.msgpack.Encoder().encode


class Session:
    """A client of one server at a time: the primary, which may become another one.

    A server that can't be reached, or that refuses to be the primary, is left: its connections are closed,
    its clock is forgotten, ``on_leave`` is called, and the next command looks for the primary again. Survives
    forks: a child connects anew and leaves its parent's sockets alone.
    """

    def __init__(
        self,
        location: Location,
        timeout: float,
        clock: Callable[[], Instant] | None,
        on_command: OnCommand | None,
        key: str | None = None,
    ) -> None:
        """``key``: any that is used, where it is not one of a store: it says which slot of a cluster."""
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
            # A command whose reply was lost may have been applied: repeating it is for those who know.
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "health_check_interval": 0,
            "protocol": 2,
            "decode_responses": True,
            # Bytes that are no text come as lone surrogates: their row is unreadable then, not the reply.
            "encoding_errors": "surrogateescape",
        }

    def raw_connection(self) -> RawConnection:
        """A connection that belongs to nobody's pool, not connected yet."""
        return cast(RawConnection, self.client().connection_pool.make_connection())

    def _raw_connection_to(self, url: str) -> RawConnection:
        return cast(RawConnection, redis.ConnectionPool.from_url(url, **self._options()).make_connection())

    def leave(self, client: redis.Redis) -> None:
        """Look for the primary again, for the next command: this client's server is not it, or is away."""
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
                # Never closed in words here, which would end the conversations of the parent.
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

    def run(self, name: str, asked: object) -> Reply:
        """Run a script; the answer is what it says after the time, which is kept here."""
        wanted = script(name)
        self._check_open()
        self.announce(wanted.name)
        time = "" if self._fixed_clock is None else str(self._fixed_clock())
        try:
            values = (1, self.location.meta, time, _encode(asked))
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidValue(f"Redis can't hold a value: {error}", field="row", value=None) from error
        sent = self._clock.mark()
        try:
            reply = self.send("EVALSHA", wanted.sha, *values)
        except driver.NoScriptError:
            # The server was restarted, or told to forget: it knows the script again after this.
            reply = self._translated("EVAL", wanted.text, *values)
        except (driver.RedisError, OSError) as error:
            raise translated(self.location, error) from error
        if not time:
            self._clock.heard(reply[0], sent)
        return cast(Reply, reply[1:])

    def execute(self, name: str, *words: str | int) -> Any:
        """A plain command."""
        self._check_open()
        self.announce(name)
        return self._translated(*words)

    def ask(self, *words: str | int) -> Any:
        """A question that may be asked also when the store is not open."""
        return self._translated(*words)

    def _translated(self, *words: object) -> Any:
        try:
            return self.send(*words)
        except (driver.RedisError, OSError) as error:
            raise translated(self.location, error) from error

    def send(self, *words: object, **options: object) -> Any:
        """Send a command to the primary, and follow the cluster where that has moved. Nothing else is
        repeated: a node that answers with a redirection has done nothing."""
        redirections = 0
        while True:
            client = self.client()
            execute: Callable[..., Any] = client.execute_command
            try:
                return execute(*words, **options)
            except driver.MovedError as error:
                # A node that does not know its own location leaves it out: the same host, another port.
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
    """Connections in use end with their commands; before redis-py 7 their commands end with them."""
    if "inuse_connections" in inspect.signature(pool.disconnect).parameters:
        pool.disconnect(inuse_connections=False)
    else:
        pool.disconnect()


def keepalive() -> dict[int, int]:
    """A connection that leads nowhere is noticed in about 10 s, where the system can be told so."""
    wanted = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


# The driver has classes for some errors, whose codes it then leaves out of the message.
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
    (driver.AuthenticationError, "the server does not take this user or password"),
    (driver.ClusterDownError, "a part of the cluster is missing; try again"),
    (driver.TimeoutError, "the server did not answer in time; can it be reached from here? try again"),
    (driver.ConnectionError, "is the server there, and can it be reached from here? try again"),
    (OSError, "is the server there, and can it be reached from here? try again"),
)
_BY_CODE = {
    "MISCONF": "the server can't write to its disk; make room there",
    "BUSY": "somebody's script keeps the server busy; try again",
    "NOAUTH": "the server wants a password; put it into the URL",
    "WRONGPASS": "the server does not take this user or password",
    "WRONGTYPE": "a key holds something else than what was written there",
    "NOREPLICAS": "the server has too few replicas for min-replicas-to-write; try again",
}


# The node's answer to a script that names a key which the node does not hold (any more).
_MOVING = "access a non local key"
# The server hangs up on a text of more than proto-max-bulk-len (512 MB unless set), and has read nothing. Its
# reply may be lost while the text is still being written: that is StoreUnavailable then.
_TOO_LARGE = "invalid bulk length"


def translated(location: Location, error: Exception) -> StoreUnavailable | TooLarge:
    """What went wrong, and what to do, in the words of a user."""
    text = str(error) or type(error).__name__
    if isinstance(error, driver.ResponseError) and _TOO_LARGE in text:
        return TooLarge(f"{location.shown}: {text} (more than proto-max-bulk-len of the server at once)")
    if isinstance(error, driver.MovedError):
        text = f"this node of a cluster has not got our keys, {Endpoint(error.host, error.port)} has"
        advice = "write redis+cluster://, which finds them" if location.kind != "cluster" else "try again"
    else:
        if _MOVING in text or isinstance(error, driver.AskError | driver.TryAgainError):
            text, error = "the cluster is moving our keys to another node", driver.ClusterDownError("")
        found = (advice for kind, advice in _BY_CLASS if isinstance(error, kind))
        known = (advice for code, advice in _BY_CODE.items() if text.startswith(f"{code} "))
        advice = next(known, next(found, ""))
    return StoreUnavailable(f"{location.shown}: {text}" + (f" ({advice})" if advice else ""))


_all: weakref.WeakSet[Session] = weakref.WeakSet()
# Clients of a parent process: kept, so that nothing of them is ended by their being forgotten.
_inherited: list[redis.Redis] = []


def _after_fork_in_child() -> None:
    for session in list(_all):
        session.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
