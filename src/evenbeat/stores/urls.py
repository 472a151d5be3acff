"""From a URL to a store. Drivers are imported when their URL is used."""

from __future__ import annotations

import os
from importlib import import_module
from urllib.parse import unquote, urlsplit

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.base import Store


def open_url(url: str) -> Store:
    """The store that a URL names, not opened yet.

    ``sqlite:///evenbeat.db`` is a file of the working directory, ``sqlite:////var/lib/evenbeat.db`` one by
    its absolute path; ``memory://`` is gone when the process ends. ``postgresql://``, ``redis://``,
    ``valkey://`` and ``mongodb://`` are servers; docs/stores says what their URLs may hold.
    """
    parts = urlsplit(url)
    if parts.scheme in _SERVERS:
        return _server(url, *_SERVERS[parts.scheme])
    if parts.scheme == "sqlite":
        from evenbeat.stores.sqlite import SqliteStore

        path = unquote(parts.path)[1:]
        if parts.netloc or not path:
            raise InvalidValue(
                f"store {shown(url)} names no file", field="store", value=url,
                hint="write sqlite:///evenbeat.db, with three slashes, or sqlite:////an/absolute/path.db",
            )  # fmt: skip
        return SqliteStore(os.path.expanduser(path))
    if parts.scheme == "memory":
        from evenbeat.stores.memory import MemoryStore

        return MemoryStore()
    raise InvalidValue(
        f"store {shown(without_password(url))} is of no known kind", field="store",
        value=without_password(url),
        hint="write sqlite:///…, postgresql://…, redis://…, valkey://…, mongodb://… or memory://",
    )  # fmt: skip


_POSTGRES = ("evenbeat.stores.postgres", "PostgresStore", ("psycopg",), "postgres")
_REDIS = ("evenbeat.stores.redis", "RedisStore", ("redis",), "redis")
_MONGO = ("evenbeat.stores.mongo", "MongoStore", ("pymongo", "bson"), "mongo")
_SERVERS = {
    "postgresql": _POSTGRES, "postgres": _POSTGRES,
    "redis": _REDIS, "rediss": _REDIS, "valkey": _REDIS, "valkeys": _REDIS,
    "mongodb": _MONGO, "mongodb+srv": _MONGO,
}  # fmt: skip


def _server(url: str, module: str, name: str, driver: tuple[str, ...], extra: str) -> Store:
    _check_escaped(url)
    try:
        kind = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in driver:
            raise
        raise InvalidValue(
            f"store {shown(without_password(url))} needs {driver[0]}, which is not installed", field="store",
            value=without_password(url), hint=f"pip install 'evenbeat[{extra}]'",
        ) from None  # fmt: skip
    store: Store = kind(url)
    return store


def _check_escaped(url: str) -> None:
    """A password with a / or @ as it is cuts the URL elsewhere than its writer meant."""
    user = _user(url.partition("://")[2])
    if user is not None and any(character in user for character in "/?#@"):
        raise InvalidValue(
            f"store {shown(without_password(url))} has a user or a password with one of / ? # @ in it",
            field="store", value=without_password(url),
            hint="percent-encode them: / is %2F, ? is %3F, # is %23, @ is %40",
        )  # fmt: skip


_AUTHORIZATION = ("authmechanismproperties",)


def without_password(url: str) -> str:
    """The URL for logs and messages. As it was written: one that is put together again may look different."""
    scheme, mark, rest = url.partition("://")
    if mark and (user := _user(rest)) is not None:
        name, colon, _ = user.partition(":")
        rest = f"{name}{':***' if colon else ''}{rest[len(user) :]}"
    place, question, query = f"{scheme}{mark}{rest}".partition("?")
    return place + question + "&".join(_without_secret(option) for option in query.split("&"))


def _user(rest: str) -> str | None:
    """What stands before the host. A password that should have been percent-encoded may hold anything, so it
    goes as far as the last @ that is not in an option."""
    place, _, query = rest.partition("?")
    if "@" in place:
        return place.rpartition("@")[0]
    # A ? in the password: an option that is none, with an @ in it.
    if ":" in place and "@" in query and "=" not in query.partition("@")[0]:
        return rest.rpartition("@")[0]
    return None


def _without_secret(option: str) -> str:
    name, equals, value = option.partition("=")
    if ("password" in name.lower() or name.lower() in _AUTHORIZATION) and value:
        return f"{name}=***"
    # An option may be a URL itself: that of the connection to listen on.
    inner = unquote(value)
    if "://" in inner and (hidden := without_password(inner)) != inner:
        return f"{name}{equals}{hidden}"
    return option
