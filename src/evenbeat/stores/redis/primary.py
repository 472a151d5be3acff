"""Finding the server to write to: the one in the URL, the one that sentinels name, or the owner of a slot.

All keys of a store have one hash tag, so in a cluster, too, one server at a time has all of them. Answers
of sentinels and of cluster nodes may be outdated: a server that is not the primary any more refuses writes,
and the session searches again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from redis import exceptions as driver
from redis.crc import key_slot

from evenbeat.stores.redis.location import Endpoint, Location

Connect: TypeAlias = Callable[[str], "RawConnection"]
"""Creates a connection to the server of a URL, not connected yet."""


class RawConnection(Protocol):
    """A connection of the driver, which does not declare its type."""

    _sock: Any

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_command(self, *words: str) -> None: ...
    def can_read(self, timeout: float) -> bool: ...
    def read_response(self) -> Any: ...


class PrimaryFinder(Protocol):
    def find(self) -> Endpoint:
        """Return the primary. Raises an error of the driver if no server knows it."""

    def redirect(self, endpoint: Endpoint) -> None:
        """Note that a node of the cluster has redirected a command to this endpoint."""


def finder(location: Location, key: str, connect: Connect) -> PrimaryFinder:
    """Return the finder for a location. ``key`` is any key of the store: it determines the slot of a
    cluster."""
    if location.kind == "sentinel":
        return _Sentinels(location, connect)
    if location.kind == "cluster":
        return _Cluster(location, key_slot(key.encode(errors="surrogateescape")), connect)
    return _NamedServer(location)


class _NamedServer:
    """A server by its address. Another server may take over the address."""

    def __init__(self, location: Location) -> None:
        self._endpoint = location.endpoints[0]

    def find(self) -> Endpoint:
        return self._endpoint

    def redirect(self, endpoint: Endpoint) -> None:
        pass


class _Sentinels:
    def __init__(self, location: Location, connect: Connect) -> None:
        self._location = location
        self._connect = connect
        self._endpoints = list(location.endpoints)

    def find(self) -> Endpoint:
        """Ask one sentinel after the other, until one names a server that says it is a primary."""
        troubles: list[str] = []
        for _ in self._location.endpoints:
            # The next search starts with another sentinel: this one may be outdated.
            asked = self._endpoints.pop(0)
            self._endpoints.append(asked)
            try:
                found = self._named_by(asked)
                role = None if found is None else self._role(found)
            except (driver.RedisError, OSError) as error:
                troubles.append(f"{asked}: {error}")
                continue
            if found is None:
                troubles.append(f"{asked} does not know {self._location.service}")
            elif role != "master":
                troubles.append(f"{asked} names {found}, which is a {role}")
            else:
                return found
        raise driver.ConnectionError(f"no sentinel names a primary ({'; '.join(troubles)})")

    def redirect(self, endpoint: Endpoint) -> None:
        pass

    def _named_by(self, sentinel: Endpoint) -> Endpoint | None:
        reply = self._ask(
            self._location.sentinel_url(sentinel),
            "SENTINEL",
            "GET-MASTER-ADDR-BY-NAME",
            self._location.service,
        )
        return None if reply is None else Endpoint(reply[0], int(reply[1]))

    def _role(self, endpoint: Endpoint) -> str:
        # Not ROLE: the users that docs/stores/redis.md recommends may not send it.
        facts = str(self._ask(self._location.url_of(endpoint), "INFO", "replication"))
        found = re.search(r"^role:(\w+)", facts, re.MULTILINE)
        return found[1] if found else "server without a role"

    def _ask(self, url: str, *words: str) -> Any:
        return ask(self._connect(url), *words)


class _Cluster:
    def __init__(self, location: Location, slot: int, connect: Connect) -> None:
        self._location = location
        self._slot = slot
        self._connect = connect
        self._known: tuple[Endpoint, ...] = ()
        """The nodes of the cluster in the last answer: all nodes of the URL may be gone."""
        self._redirected: Endpoint | None = None

    def find(self) -> Endpoint:
        if self._redirected is not None:
            found, self._redirected = self._redirected, None
            return found
        troubles: list[str] = []
        for endpoint in dict.fromkeys((*self._location.endpoints, *self._known)):
            try:
                ranges = ask(self._connect(self._location.url_of(endpoint)), "CLUSTER", "SLOTS")
            except (driver.RedisError, OSError) as error:
                troubles.append(f"{endpoint}: {error}")
                continue
            nodes = {_endpoint(node, endpoint) for _, _, *nodes in ranges for node in nodes}
            self._known = tuple(sorted(nodes))
            owners = (nodes[0] for first, last, *nodes in ranges if int(first) <= self._slot <= int(last))
            owner = next(owners, None)
            if owner is not None:
                return _endpoint(owner, endpoint)
            troubles.append(f"{endpoint} does not know a node with slot {self._slot}")
        raise driver.ClusterDownError(f"no node knows the owner of the keys ({'; '.join(troubles)})")

    def redirect(self, endpoint: Endpoint) -> None:
        self._redirected = endpoint


def _endpoint(node: list[Any], asked: Endpoint) -> Endpoint:
    """Read an endpoint. A node that does not know its own address sends an empty one: it is the one that
    was asked."""
    host, port = node[0], int(node[1])
    return Endpoint(host if host not in (None, "", "?") else asked.host, port)


def ask(connection: RawConnection, *words: str) -> Any:
    """Send one command on a connection of its own."""
    try:
        connection.connect()
        connection.send_command(*words)
        return connection.read_response()
    finally:
        connection.disconnect()


def is_elsewhere(error: Exception) -> bool:
    """Whether an error means that the server is away, or is not (or not yet) the primary."""
    if isinstance(error, _ELSEWHERE):
        return True
    return isinstance(error, driver.ResponseError) and _CODES.search(str(error)) is not None


_ELSEWHERE = (
    driver.ConnectionError,  # also LOADING
    driver.TimeoutError,
    OSError,
    driver.ReadOnlyError,
    driver.ClusterDownError,  # also MASTERDOWN
    driver.MovedError,
)
# NOREPLICAS: a primary that has lost its replicas, perhaps to another primary. Before Redis 7 an error inside
# of a script is "ERR Error running script …: -READONLY …".
_CODES = re.compile("(?:^|-)(?:READONLY|MASTERDOWN|LOADING|NOREPLICAS) ")
