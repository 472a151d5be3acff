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


_POSTGRES = ("evenbeat.stores.postgres", "PostgresStore", "psycopg", "postgres")
_REDIS = ("evenbeat.stores.redis", "RedisStore", "redis", "redis")
_MONGO = ("evenbeat.stores.mongo", "MongoStore", "pymongo", "mongo")
_SERVERS = {
    "postgresql": _POSTGRES, "postgres": _POSTGRES,
    "redis": _REDIS, "rediss": _REDIS, "valkey": _REDIS, "valkeys": _REDIS,
    "mongodb": _MONGO, "mongodb+srv": _MONGO,
}  # fmt: skip


def _server(url: str, module: str, name: str, driver: str, extra: str) -> Store:
    try:
        kind = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != driver:
            raise
        raise InvalidValue(
            f"store {shown(without_password(url))} needs {driver}, which is not installed", field="store",
            value=without_password(url), hint=f"pip install 'evenbeat[{extra}]'",
        ) from None  # fmt: skip
    store: Store = kind(url)
    return store


_SECRETS = frozenset(("password", "sslpassword", "tlscertificatekeyfilepassword", "authmechanismproperties"))
"""Options of the drivers that nobody else should read."""


def without_password(url: str) -> str:
    """The URL for logs and messages."""
    parts = urlsplit(url)
    # As it was written: a URL that is taken apart and put together again may look different.
    place, mark, query = url.partition("?")
    if parts.password is not None:
        host = parts.netloc.rpartition("@")[2]
        place = place.replace(parts.netloc, f"{parts.username or ''}:***@{host}", 1)
    return place + mark + "&".join(_without_secret(option) for option in query.split("&"))


def _without_secret(option: str) -> str:
    name, equals, value = option.partition("=")
    if name.lower() in _SECRETS and value:
        return f"{name}=***"
    # An option may be a URL itself: that of the connection to listen on.
    inner = unquote(value)
    if "://" in inner and (hidden := without_password(inner)) != inner:
        return f"{name}{equals}{hidden}"
    return option
