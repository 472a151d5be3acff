"""A place of one's own in a database that others use, too: made for a test, erased after it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.urls import without_password


@contextmanager
def own_place(url: str) -> Iterator[str]:
    """The URL with a schema, prefix or database that nobody else has, which is gone afterwards."""
    scheme = urlsplit(url).scheme
    name = f"test_{secrets.token_hex(6)}"
    if scheme in ("postgresql", "postgres"):
        place, erase = _with(url, schema=name), _drop_schema
    elif scheme in ("redis", "rediss", "valkey", "valkeys"):
        place, erase = _with(url, prefix=name), _delete_keys
    elif scheme in ("mongodb", "mongodb+srv"):
        place, erase = urlsplit(url)._replace(path=f"/{name}").geturl(), _drop_database
    else:
        visible = without_password(url)
        raise InvalidValue(f"store {shown(visible)} is not a server", field="store", value=visible)
    try:
        yield place
    finally:
        erase(url, name)


def _with(url: str, **options: str) -> str:
    parts = urlsplit(url)
    return parts._replace(query=urlencode([*parse_qsl(parts.query), *options.items()])).geturl()


def _drop_schema(url: str, name: str) -> None:
    import psycopg
    from psycopg.sql import SQL, Identifier

    with psycopg.connect(url, autocommit=True) as connection:
        # Whoever still holds a lock there was killed by a test, and its connection with it.
        connection.execute("SET lock_timeout = '20s'")
        connection.execute("SET client_min_messages = warning")
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(name)))


def _delete_keys(url: str, name: str) -> None:
    import redis

    with redis.Redis.from_url(url.replace("valkey", "redis", 1)) as client:
        # The prefix stands in braces where it is the hash tag of a cluster.
        for pattern in (f"{name}:*", f"{{{name}}}:*"):
            keys: list[bytes] = list(client.scan_iter(pattern, count=5000))
            for at in range(0, len(keys), 5000):
                client.unlink(*keys[at : at + 5000])


def _drop_database(url: str, name: str) -> None:
    from pymongo import MongoClient

    with MongoClient[dict[str, object]](url, serverSelectionTimeoutMS=10_000) as client:
        # Transactions of processes that a test has killed: the drop would wait a minute until they expire.
        pipeline: list[dict[str, Any]] = [
            {"$currentOp": {"allUsers": True, "idleSessions": True}},
            {"$match": {"type": "idleSession", "transaction": {"$exists": True}}},
        ]
        for session in client.admin.aggregate(pipeline):
            client.admin.command("killSessions", [session["lsid"]])
        client.drop_database(name)
