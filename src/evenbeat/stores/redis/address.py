"""Where the server is and where our keys are, from a URL."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.urls import without_password

_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DEFAULT_PREFIX = "evenbeat"


class Address(NamedTuple):
    """A server and a place on it."""

    url: str
    """For the driver, which does not know our options."""
    shown: str
    """For messages: without a password."""
    prefix: str

    @property
    def base(self) -> str:
        """What every key begins with. The braces make it the hash tag of a cluster: all keys in one slot."""
        return f"{{{self.prefix}}}:"

    @property
    def meta(self) -> str:
        return f"{self.base}meta"

    @property
    def channel(self) -> str:
        return f"{self.base}wake"


def read_address(url: str, prefix: str | None = None) -> Address:
    """An address from a URL; ``prefix`` goes before the one that the URL names."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidValue(
            f"store is not a URL: {error}", field="store", value=None, hint="write redis://host:6379/0"
        ) from None
    visible = without_password(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidValue(
            f"store {shown(visible)} is no Redis", field="store", value=visible,
            hint="write redis://, rediss:// (TLS), valkey:// or valkeys://",
        )  # fmt: skip
    if not parts.hostname or port == 0:
        raise InvalidValue(
            f"store {shown(visible)} names no host", field="store", value=visible,
            hint="write redis://host:6379/0",
        )  # fmt: skip
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise InvalidValue(
            f"store {shown(visible)} names database {shown(database)}, which is not a number", field="store",
            value=visible, hint="write redis://host:6379/0",
        )  # fmt: skip
    options = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in options if name == "prefix"]
    chosen = prefix if prefix is not None else (named[-1] if named else _DEFAULT_PREFIX)
    if not _PREFIX.fullmatch(chosen):
        raise InvalidValue(
            f"prefix {shown(chosen)} is not 1 to 64 letters, digits, _, . or -", field="prefix", value=chosen
        )
    rest = [(name, value) for name, value in options if name != "prefix"]
    plain = parts._replace(scheme=_SCHEMES[parts.scheme], query=urlencode(rest)).geturl()
    _check_options(plain, [name for name, _ in rest], visible)
    return Address(plain, visible, chosen)


def _check_options(url: str, names: list[str], visible: str) -> None:
    """The driver takes options as they come, and stumbles over them when it connects."""
    try:
        redis.ConnectionPool.from_url(url).make_connection()
    except (TypeError, ValueError) as error:
        unknown = next((name for name in names if f"'{name}'" in str(error)), None)
        near = get_close_matches(unknown or "", ["prefix"], n=1, cutoff=0.6)
        raise InvalidValue(
            f"store {shown(visible)} has an option that redis-py does not take: {unknown or error}",
            field="store", value=visible,
            hint=f"did you mean {near[0]}?" if near else "prefix is ours; the others are those of redis-py",
        ) from None  # fmt: skip
