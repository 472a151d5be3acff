"""The Redis server of documents: its client, scripts and clock, and the meaning of its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import redis
from redis import exceptions as driver
from redis.client import NEVER_DECODE

from evenbeat.core.instants import Instant
from evenbeat.errors import InvalidValue, StoreUnavailable, TooLarge, shown
from evenbeat.stores.redis.location import Kind, Location, read_location
from evenbeat.stores.redis.primary import is_elsewhere
from evenbeat.stores.redis.scripts import script
from evenbeat.stores.redis.session import Session, disconnect, translated
from evenbeat.stores.server_clock import ServerClock

Client: TypeAlias = "redis.Redis | redis.RedisCluster"

# Seconds that a connection made from a URL waits for an answer.
_TIMEOUT = 5.0


class RedisServer:
    """Runs scripts on the server of a URL, or of a client that the user has.

    Texts are sent and received as UTF-8 bytes, whatever encoding the client has. Bytes that are not UTF-8 are
    read as lone surrogates, and written back as they were.
    """

    def __init__(self, source: object, index: str, clock: Callable[[], Instant] | None) -> None:
        self._own: Session | None = None
        if isinstance(source, str):
            self._location = read_location(source)
            self._own = Session(self._location, _TIMEOUT, None, None, index)
        elif isinstance(source, redis.Redis | redis.RedisCluster):
            self._given: Client = source
            self._location = _location(source)
        else:
            raise InvalidValue(
                f"{shown(source)} is neither a URL nor a client of redis-py",
                field="client",
                value=None,
                hint="write redis://host:6379/0, or give a redis.Redis (not one of redis.asyncio)",
            )
        self.keys = [self.encode(index, "index"), self.encode(f"{index}:scan", "index")]
        """The keys of the index and of the scan's note. In a cluster, scripts run on the node of these."""
        self._fixed_clock = clock
        self._clock = ServerClock(self._read_clock)

    @property
    def is_cluster(self) -> bool:
        return self._location.kind == "cluster"

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def now(self) -> Instant:
        return self._clock.now() if self._fixed_clock is None else self._fixed_clock()

    def given_time(self) -> Instant | bool:
        """Return the time for a script: that of the clock which replaces the server's; False for the server's
        own, which is right also after it was set back."""
        return False if self._fixed_clock is None else self._fixed_clock()

    def mark(self) -> float:
        """Return a mark for ``update_clock``; to call before a script is run."""
        return self._clock.mark()

    def update_clock(self, instant: Instant, sent: float) -> None:
        """Note the server's time that a script has returned."""
        if self._fixed_clock is None:
            self._clock.update(instant, sent)

    def _read_clock(self) -> Instant:
        # By a script: a cluster sends a plain TIME to any node.
        seconds, micros = self.execute("EVAL", "return redis.call('TIME')", 1, self.keys[0])
        return int(seconds) * 1000 + int(micros) // 1000

    # Commands

    def run(self, name: str, *arguments: object) -> Any:
        wanted = script(name, "evenbeat.documents.redis")
        values = (len(self.keys), *self.keys, _pack(list(arguments)))
        try:
            return self._send("EVALSHA", wanted.sha, *values)
        except driver.NoScriptError:
            # The server was restarted, or its scripts were flushed. EVAL loads the script again.
            return self.execute("EVAL", wanted.text, *values)
        except (driver.RedisError, OSError) as error:
            raise self._translated(error) from error

    def execute(self, *words: object) -> Any:
        try:
            return self._send(*words)
        except (driver.RedisError, OSError) as error:
            raise self._translated(error) from error

    def _send(self, *words: object) -> Any:
        options = {NEVER_DECODE: True}
        if self._own is not None:
            return self._own.send(*words, **options)
        send: Callable[..., Any] = self._given.execute_command
        try:
            return send(*words, **options)
        except driver.ResponseError as error:
            # The client's connections lead to a server that is not the primary any more.
            if is_elsewhere(error) and isinstance(self._given, redis.Redis):
                disconnect(self._given.connection_pool)
            raise

    def _translated(self, error: Exception) -> StoreUnavailable | InvalidValue:
        if is_elsewhere(error):
            # Another server, with a clock of its own, may answer next.
            self._clock.forget()
        found = translated(self._location, error)
        if isinstance(found, TooLarge):
            return InvalidValue(f"Redis can't hold a value: {found}", field="document", value=None)
        return found

    # Texts

    def encode(self, text: str, field: str) -> bytes:
        try:
            return text.encode(errors="surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidValue(
                f"{field}: Redis can't hold a text: {error}", field=field, value=text
            ) from error

    def decode(self, value: bytes) -> str:
        return value.decode(errors="surrogateescape")


def _pack(value: object) -> bytes:
    """Return MessagePack with strings of bytes: the server's reader knows no other type for them."""
    if isinstance(value, list):
        return b"\xdd" + len(value).to_bytes(4) + b"".join(map(_pack, value))
    if isinstance(value, bytes):
        return b"\xdb" + len(value).to_bytes(4) + value
    if value is False:
        return b"\xc2"
    assert type(value) is int
    return b"\xd3" + value.to_bytes(8, signed=True)


def _location(client: Client) -> Location:
    """Return the location of a client, for messages and for its kind."""
    kind: Kind = "cluster" if isinstance(client, redis.RedisCluster) else "server"
    return read_location("redis://given")._replace(kind=kind, shown=_address(client))


def _address(client: Client) -> str:
    """Return the address of a client for messages, without a password."""
    if isinstance(client, redis.Redis):
        options = client.connection_pool.connection_kwargs
        if "path" in options:
            return f"unix://{options['path']}"
        if "host" in options:
            return f"redis://{options['host']}:{options.get('port', 6379)}/{options.get('db', 0)}"
    return "redis"
