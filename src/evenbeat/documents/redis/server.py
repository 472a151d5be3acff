"""The server of documents: a client of ours or of the user, scripts, a clock, and every error translated."""

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

# Seconds that a connection of ours waits for an answer.
_TIMEOUT = 5.0


class Server:
    """Scripts, on the server that a URL names or that a client of the user is connected to.

    Texts go out and come back as bytes of UTF-8, whatever the client makes of them: what is no UTF-8 comes as
    lone surrogates, and goes back as it was.
    """

    def __init__(self, source: object, index: str, clock: Callable[[], Instant] | None) -> None:
        self._own: Session | None = None
        if isinstance(source, str):
            self._address = read_location(source)
            self._own = Session(self._address, _TIMEOUT, None, None, index)
        elif isinstance(source, redis.Redis | redis.RedisCluster):
            self._given: Client = source
            self._address = _address(source)
        else:
            raise InvalidValue(
                f"{shown(source)} is neither a URL nor a client of redis-py",
                field="client",
                value=None,
                hint="write redis://host:6379/0, or give a redis.Redis (not one of redis.asyncio)",
            )
        self.keys = [self.encode(index, "index"), self.encode(f"{index}:scan", "index")]
        """Of the index, and of the note beside it. They say where scripts run, in a cluster."""
        self._fixed_clock = clock
        self._clock = ServerClock(self._ask)

    @property
    def is_cluster(self) -> bool:
        return self._address.kind == "cluster"

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def now(self) -> Instant:
        return self._clock.now() if self._fixed_clock is None else self._fixed_clock()

    def given_time(self) -> Instant | bool:
        """For a script: the time of a clock that stands for the server's; False for that of the server, which
        is never ahead of itself, also after it was set back."""
        return False if self._fixed_clock is None else self._fixed_clock()

    def mark(self) -> float:
        """To be taken before a script is run, for ``heard``."""
        return self._clock.mark()

    def heard(self, instant: Instant, sent: float) -> None:
        """A script has told the time."""
        if self._fixed_clock is None:
            self._clock.heard(instant, sent)

    def _ask(self) -> Instant:
        # As a script: a plain TIME goes to any node of a cluster.
        seconds, micros = self.execute("EVAL", "return redis.call('TIME')", 1, self.keys[0])
        return int(seconds) * 1000 + int(micros) // 1000

    # Commands.

    def run(self, name: str, *asked: object) -> Any:
        wanted = script(name, "evenbeat.documents.redis")
        values = (len(self.keys), *self.keys, _pack(list(asked)))
        try:
            return self._send("EVALSHA", wanted.sha, *values)
        except driver.NoScriptError:
            # The server was restarted, or told to forget: it knows the script again after this.
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
            # Connections of a client to one address: they lead to a server that is not the primary any more.
            if is_elsewhere(error) and isinstance(self._given, redis.Redis):
                disconnect(self._given.connection_pool)
            raise

    def _translated(self, error: Exception) -> StoreUnavailable | InvalidValue:
        if is_elsewhere(error):
            # Another server may answer from now on.
            self._clock.forget()
        found = translated(self._address, error)
        if isinstance(found, TooLarge):
            return InvalidValue(f"Redis can't hold a value: {found}", field="document", value=None)
        return found

    # Texts.

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
    """MessagePack with bytes as its strings: the server's reader knows no others."""
    if isinstance(value, list):
        return b"\xdd" + len(value).to_bytes(4) + b"".join(map(_pack, value))
    if isinstance(value, bytes):
        return b"\xdb" + len(value).to_bytes(4) + value
    if value is False:
        return b"\xc2"
    assert type(value) is int
    return b"\xd3" + value.to_bytes(8, signed=True)


def _address(client: Client) -> Location:
    """For messages, and to know which kind it is."""
    kind: Kind = "cluster" if isinstance(client, redis.RedisCluster) else "server"
    return read_location("redis://given")._replace(kind=kind, shown=_place(client))


def _place(client: Client) -> str:
    """For messages: where a client of the user is connected to. No password."""
    if isinstance(client, redis.Redis):
        facts = client.connection_pool.connection_kwargs
        if "path" in facts:
            return f"unix://{facts['path']}"
        if "host" in facts:
            return f"redis://{facts['host']}:{facts.get('port', 6379)}/{facts.get('db', 0)}"
    return "redis"
