"""The location of the server and of Evenbeat's keys, read from a URL."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import redis

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.urls import without_password

Kind: TypeAlias = Literal["server", "sentinel", "cluster"]

_TLS = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_KINDS: dict[str, Kind] = {"": "server", "sentinel": "sentinel", "cluster": "cluster"}
_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_FORMS: dict[Kind, str] = {
    "server": "redis://host:6379/0",
    "sentinel": "redis+sentinel://host:26379,host2:26379/service_name/0",
    "cluster": "redis+cluster://host:6379,host2:6379",
}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:]+)(?::(\d+))?")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEFAULT_PREFIX = "evenbeat"


class Endpoint(NamedTuple):
    """A server of Redis or Valkey, or a sentinel."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Location(NamedTuple):
    """Servers, a database and a prefix."""

    kind: Kind
    endpoints: tuple[Endpoint, ...]
    """The server; the sentinels; or some nodes of the cluster."""
    service: str
    """The sentinels' name for the primary; empty for other kinds."""
    shown: str
    """The URL in messages, without a password."""
    prefix: str
    scheme: str
    user: str
    """The part before the host in a URL of the driver, with its @; may be empty."""
    sentinel_user: str
    """The same for sentinels, which have users of their own."""
    database: int
    options: str
    """The query of a URL for the driver, without Evenbeat's own options."""

    @property
    def url(self) -> str:
        """The driver's URL of the first server."""
        return self.url_of(self.endpoints[0])

    def url_of(self, endpoint: Endpoint) -> str:
        """Return the driver's URL of a server."""
        query = f"?{self.options}" if self.options else ""
        return f"{self.scheme}://{self.user}{endpoint}/{self.database}{query}"

    def sentinel_url(self, endpoint: Endpoint) -> str:
        """Return the driver's URL of a sentinel. Sentinels have no databases."""
        query = f"?{self.options}" if self.options else ""
        return f"{self.scheme}://{self.sentinel_user}{endpoint}/0{query}"

    @property
    def base(self) -> str:
        """The beginning of every key. The braces make it the hash tag of a cluster: all keys are in one
        slot."""
        return f"{{{self.prefix}}}:"

    @property
    def meta(self) -> str:
        return f"{self.base}meta"

    @property
    def channel(self) -> str:
        return f"{self.base}wake"


def read_location(url: str, prefix: str | None = None) -> Location:
    """Read a location from a URL. ``prefix`` overrides the URL's."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidValue(
            f"store is not a URL: {error}", field="store", value=None, hint=f"write {_FORMS['server']}"
        ) from None
    visible = without_password(url)
    driver, _, way = parts.scheme.partition("+")
    if driver not in _TLS or way not in _KINDS or parts.scheme.endswith("+"):
        raise InvalidValue(
            f"store {shown(visible)} is not a Redis or Valkey",
            field="store",
            value=visible,
            hint="write redis://, rediss:// (TLS), valkey:// or valkeys://; redis+sentinel:// or "
            "redis+cluster:// (likewise with rediss, valkey and valkeys)",
        )
    kind = _KINDS[way]
    user, at, hosts = parts.netloc.rpartition("@")
    endpoints = _read_endpoints(hosts, kind, visible)
    service, database = _read_path(parts.path, kind, visible)
    options = parse_qsl(parts.query, keep_blank_values=True)
    chosen = prefix if prefix is not None else _last(options, "prefix", _DEFAULT_PREFIX)
    if not _PREFIX.fullmatch(chosen):
        raise InvalidValue(
            f"prefix {shown(chosen)} is not 1 to 64 letters, digits, _, . or -", field="prefix", value=chosen
        )
    ours = ["prefix"]
    sentinel_user = ""
    if kind == "sentinel":
        ours += ["sentinel_username", "sentinel_password"]
        name, password = (_last(options, f"sentinel_{what}", "") for what in ("username", "password"))
        if name or password:
            sentinel_user = f"{quote(name, safe='')}:{quote(password, safe='')}@"
    rest = [(name, value) for name, value in options if name not in ours]
    location = Location(
        kind=kind,
        endpoints=endpoints,
        service=service,
        shown=visible,
        prefix=chosen,
        scheme=_TLS[driver],
        user=user + at,
        sentinel_user=sentinel_user,
        database=database,
        options=urlencode(rest),
    )
    _check_options(location, [name for name, _ in rest], ours)
    return location


def _last(options: list[tuple[str, str]], wanted: str, otherwise: str) -> str:
    found = [value for name, value in options if name == wanted]
    return found[-1] if found else otherwise


def _read_endpoints(hosts: str, kind: Kind, visible: str) -> tuple[Endpoint, ...]:
    endpoints = []
    for text in hosts.split(","):
        found = _HOST.fullmatch(text)
        port = int(found[2] or _PORTS[kind]) if found else 0
        if found is None or not 0 < port < 65536:
            what = f"{shown(text)} is not host:port" if text else "it does not name a host"
            raise InvalidValue(
                f"store {shown(visible)}: {what}", field="store", value=visible, hint=f"write {_FORMS[kind]}"
            )
        endpoints.append(Endpoint(found[1].strip("[]"), port))
    if kind == "server" and len(endpoints) > 1:
        raise InvalidValue(
            f"store {shown(visible)} names several hosts, and redis:// connects to one",
            field="store",
            value=visible,
            hint=f"for sentinels write {_FORMS['sentinel']}, for a cluster {_FORMS['cluster']}",
        )
    return tuple(endpoints)


def _read_path(path: str, kind: Kind, visible: str) -> tuple[str, int]:
    """Return the service and the database."""
    words = [word for word in path.split("/") if word]
    service = ""
    if kind == "sentinel":
        if not words:
            raise InvalidValue(
                f"store {shown(visible)} does not name the service that the sentinels watch",
                field="store",
                value=visible,
                hint=f"write {_FORMS[kind]}",
            )
        service = words.pop(0)
    if len(words) > 1 or (words and not words[0].isdecimal()):
        raise InvalidValue(
            f"store {shown(visible)} names database {shown('/'.join(words))}, which is not a number",
            field="store",
            value=visible,
            hint=f"write {_FORMS[kind]}",
        )
    database = int(words[0]) if words else 0
    if kind == "cluster" and database:
        raise InvalidValue(
            f"store {shown(visible)} names database {database}: a cluster has database 0 alone",
            field="store",
            value=visible,
            hint="leave it out, and choose a prefix instead: ?prefix=…",
        )
    return service, database


def _check_options(location: Location, names: list[str], ours: list[str]) -> None:
    """Refuse unknown options: the driver would accept them here and fail when it connects."""
    try:
        redis.ConnectionPool.from_url(location.url).make_connection()
    except (TypeError, ValueError) as error:
        unknown = next((name for name in names if f"'{name}'" in str(error)), None)
        near = get_close_matches(unknown or "", ours, n=1, cutoff=0.6)
        raise InvalidValue(
            f"store {shown(location.shown)} has an option that redis-py does not take: {unknown or error}",
            field="store",
            value=location.shown,
            hint=f"did you mean {near[0]}?" if near else f"ours: {', '.join(ours)}; others: redis-py's",
        ) from None
