"""From a URL to a store. Drivers are imported when their URL is used."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.base import Store


def open_url(url: str) -> Store:
    """The store that a URL names, not opened yet.

    ``sqlite:///evenbeat.db`` is a file of the working directory, ``sqlite:////var/lib/evenbeat.db`` one by
    its absolute path; ``memory://`` is gone when the process ends.
    """
    parts = urlsplit(url)
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
        hint="write sqlite:///evenbeat.db or memory://; PostgreSQL, Redis and MongoDB are still to come",
    )  # fmt: skip


def without_password(url: str) -> str:
    """The URL for logs and messages."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:***@{host}").geturl()
