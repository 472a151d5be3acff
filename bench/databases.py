"""The servers that the suites measure on, with an empty database for each library in each round.

The tests' own servers, with settings that lose no acknowledged write: PostgreSQL with its defaults
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
from tests.missing import Unavailable

from bench.processes import scratch

Database: TypeAlias = Literal["postgres", "valkey", "mongo"]
StoreName: TypeAlias = Literal["memory", "SQLite", "PostgreSQL", "Valkey", "MongoDB"]
TITLES: dict[Database, StoreName] = {"postgres": "PostgreSQL", "valkey": "Valkey", "mongo": "MongoDB"}


def present(*wanted: Database) -> list[Database]:
    """Yield the servers that can run here; print which can't, whose rows are then missing."""
    found: list[Database] = []
    for name in wanted or get_args(Database):
        try:
            servers.shared(name)
        except Unavailable as error:
            print(f"without {TITLES[name]}: {error}", file=sys.stderr)
        else:
            _check(name)
            found.append(name)
    return found


def _check(name: Database) -> None:
    """Fail on a server that may lose acknowledged writes: its figures could not be compared."""
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
    """Yield the URL of an empty place that nothing else uses: a database, or the keys under a prefix."""
    if name != "postgres":
        with own_place(url_of(name)) as url:
            yield url
        return
    # Peers have no schema of their own, and ANALYZE reads all tables of a database.
    fresh = f"bench_{secrets.token_hex(6)}"
    with psycopg.connect(url_of(name), autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(fresh)))
        try:
            yield urlsplit(url_of(name))._replace(path=f"/{fresh}").geturl()
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(fresh)))


def stores() -> list[StoreName]:
    """Return the stores that can run here: memory, SQLite, and those on servers."""
    return ["memory", "SQLite", *(TITLES[name] for name in present())]


@contextmanager
def store_place(name: StoreName) -> Iterator[str]:
    """Yield the URL of an empty store that nothing else uses."""
    if name == "memory":
        yield "memory://"
    elif name == "SQLite":
        with scratch() as folder:
            yield f"sqlite:///{folder}/bench.db"
    else:
        (database,) = (key for key, title in TITLES.items() if title == name)
        with place(database) as url:
            yield url


def analyze(url: str) -> None:
    """Have PostgreSQL analyze new tables, as autovacuum would within a minute; do nothing elsewhere."""
    if urlsplit(url).scheme == "postgresql":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
