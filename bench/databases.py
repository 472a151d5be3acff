"""The servers that the suites measure on, and a place of its own for each contestant in each round.

They are those of the tests, with the settings that lose nothing that was acknowledged: PostgreSQL as it comes
(fsync, synchronous_commit), Valkey with ``appendfsync always``, MongoDB as a replica set of one.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import psycopg
import redis
from psycopg.sql import SQL, Identifier
from tests import servers
from tests.isolation import own_place

Database: TypeAlias = Literal["postgres", "valkey", "mongo"]
TITLES: dict[Database, str] = {"postgres": "PostgreSQL", "valkey": "Valkey", "mongo": "MongoDB"}


def present(*wanted: Database) -> list[Database]:
    """Those that can be had here; what can't is said, and its rows are missing."""
    found: list[Database] = []
    for name in wanted or get_args(Database):
        try:
            servers.shared(name)
        except servers.Unavailable as error:
            print(f"without {TITLES[name]}: {error}", file=sys.stderr)
        else:
            _check(name)
            found.append(name)
    return found


def _check(name: Database) -> None:
    """Fails on a server that may forget what it acknowledged: its figures would not compare."""
    if name == "postgres":
        with psycopg.connect(url_of(name)) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                value = connection.execute("SELECT current_setting(%s)", [setting]).fetchone()
                assert value == ("on",), f"{setting} is {value}"
    elif name == "valkey":
        with redis.Redis.from_url(url_of(name)) as client:
            kept = client.config_get("append*")
            assert (kept["appendonly"], kept["appendfsync"]) == ("yes", "always"), kept


def url_of(name: Database) -> str:
    return servers.shared(name).url


@contextmanager
def place(name: Database) -> Iterator[str]:
    """A URL where nothing is yet and nobody else is: a database, or the keys under a prefix."""
    if name != "postgres":
        with own_place(url_of(name)) as url:
            yield url
        return
    # Peers know no schema of their own, and ANALYZE is for all tables of a database.
    fresh = f"bench_{secrets.token_hex(6)}"
    with psycopg.connect(url_of(name), autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(fresh)))
        try:
            yield urlsplit(url_of(name))._replace(path=f"/{fresh}").geturl()
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(fresh)))


def analyze(url: str) -> None:
    """Let PostgreSQL look at new tables, which autovacuum would do within a minute; elsewhere nothing."""
    if urlsplit(url).scheme == "postgresql":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
