"""Documents with the same fields in each kind of database, for tests of processes and the benchmark.

A place is identified by its URL alone, so that other processes find it.
"""

from __future__ import annotations

import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import redis
from psycopg.rows import dict_row
from pymongo import MongoClient
from pymongo.collection import Collection

from evenbeat.core.instants import Instant, to_ms
from evenbeat.documents import Documents, MongoDocuments, PostgresDocuments, RedisDocuments, SqliteDocuments
from evenbeat.documents.time_formats import read, write
from tests import servers
from tests.isolation import own_place

Row: TypeAlias = Mapping[str, Any]
"""A document: ``id``, ``sleep_until`` (an instant or None), ``interval`` and ``note``."""

TEXT = "a document of some length " * 4
_TABLE = "CREATE TABLE jobs (id {} PRIMARY KEY, sleep_until {}, interval text, text text, note text)"


class Place(ABC):
    """A table, collection or set of hashes; its documents have numbers and an empty ``note``."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def make(self) -> None:
        """Create the table or collection, with the index that the docs recommend."""

    @abstractmethod
    def fill(self, first: int, count: int, due: datetime, interval: str | None = None) -> None:
        """Add documents that are all due at ``due``."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return all documents, in the order of their numbers."""

    @abstractmethod
    def left(self) -> int:
        """Return how many documents are still jobs."""

    @abstractmethod
    def documents(self) -> Documents:
        """Return the document store."""


class MongoPlace(Place):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: MongoClient[dict[str, Any]] | None = None

    @property
    def collection(self) -> Collection[dict[str, Any]]:
        if self._client is None:
            # Tests cut connections: the client must not wait forever for a lost reply.
            self._client = MongoClient(self.url, serverSelectionTimeoutMS=2000, socketTimeoutMS=2000)
        return self._client.get_default_database("test")["jobs"]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def make(self) -> None:
        self.collection.create_index("sleep_until", sparse=True)

    def fill(self, first: int, count: int, due: datetime, interval: str | None = None) -> None:
        self.collection.insert_many(
            [
                {"_id": number, "sleep_until": due, "interval": interval, "text": TEXT, "note": ""}
                for number in range(first, first + count)
            ]
        )

    def rows(self) -> list[Row]:
        return [
            {**row, "id": row["_id"], "sleep_until": _instant(row["sleep_until"])}
            for row in self.collection.find().sort("_id")
        ]

    def left(self) -> int:
        return self.collection.count_documents({"sleep_until": {"$gt": datetime(1970, 1, 1)}})

    def documents(self) -> Documents:
        return MongoDocuments(self.collection)


class PostgresPlace(Place):
    def connect(self) -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row)

    def make(self) -> None:
        with self.connect() as connection:
            connection.execute(_TABLE.format("bigint", "timestamptz").encode())
            connection.execute("CREATE INDEX ON jobs (sleep_until) WHERE sleep_until IS NOT NULL")

    def fill(self, first: int, count: int, due: datetime, interval: str | None = None) -> None:
        with self.connect() as connection:
            connection.execute(
                "INSERT INTO jobs SELECT n, %s, %s, %s, '' FROM generate_series(%s::bigint, %s) n",
                [due, interval, TEXT, first, first + count - 1],
            )
            connection.execute("ANALYZE jobs")

    def rows(self) -> list[Row]:
        with self.connect() as connection:
            rows = connection.execute("SELECT * FROM jobs ORDER BY id").fetchall()
        return [{**row, "sleep_until": _instant(row["sleep_until"])} for row in rows]

    def left(self) -> int:
        with self.connect() as connection:
            row = connection.execute("SELECT count(*) FROM jobs WHERE sleep_until IS NOT NULL").fetchone()
        assert row is not None
        return int(row["count"])

    def documents(self) -> Documents:
        return PostgresDocuments(self.url, "jobs", timeout=2)


class SqlitePlace(Place):
    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.url, isolation_level=None, timeout=60)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def make(self) -> None:
        with self.connect() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE.format("INTEGER", "INTEGER"))
            connection.execute("CREATE INDEX jobs_due ON jobs (sleep_until)")

    def fill(self, first: int, count: int, due: datetime, interval: str | None = None) -> None:
        numbers = range(first, first + count)
        with self.connect() as connection:
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, '')",
                [(number, to_ms(due), interval, TEXT) for number in numbers],
            )
            connection.execute("COMMIT")

    def rows(self) -> list[Row]:
        with self.connect() as connection:
            return [dict(row) for row in connection.execute("SELECT * FROM jobs ORDER BY id")]

    def left(self) -> int:
        with self.connect() as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM jobs WHERE sleep_until IS NOT NULL"
            ).fetchone()
        return int(count)

    def documents(self) -> Documents:
        return SqliteDocuments(self.url, "jobs", times="milliseconds", busy_timeout=60)


class ValkeyPlace(Place):
    """Its URL ends in ``#`` and the prefix of its keys."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._server, _, self._prefix = url.partition("#")
        self.client = redis.Redis.from_url(self._server, decode_responses=True)

    @property
    def pattern(self) -> str:
        return f"{self._prefix}:*"

    def make(self) -> None:
        """Do nothing: hashes need no table."""

    def fill(self, first: int, count: int, due: datetime, interval: str | None = None) -> None:
        pipeline = self.client.pipeline(transaction=False)
        text = str(write(to_ms(due), "text"))
        for number in range(first, first + count):
            fields: dict[Any, Any] = {
                "sleep_until": text,
                "interval": interval or "",
                "text": TEXT,
                "note": "",
            }
            pipeline.hset(f"{self._prefix}:{number}", mapping=fields)
        pipeline.execute()

    def rows(self) -> list[Row]:
        rows = []
        for key in self.client.scan_iter(self.pattern, count=1000):
            row: dict[Any, Any] = self.client.hgetall(key)
            number = int(key.rpartition(":")[2])
            due = read(row.get("sleep_until"), "text")
            rows.append({**row, "id": number, "sleep_until": due})
        return sorted(rows, key=lambda row: int(row["id"]))

    def left(self) -> int:
        pipeline = self.client.pipeline(transaction=False)
        for key in self.client.scan_iter(self.pattern, count=1000):
            pipeline.hexists(key, "sleep_until")
        return sum(map(bool, pipeline.execute()))

    def documents(self) -> Documents:
        return RedisDocuments(self._server, self.pattern)


KINDS: dict[str, type[Place]] = {
    "sqlite": SqlitePlace,
    "postgres": PostgresPlace,
    "valkey": ValkeyPlace,
    "mongo": MongoPlace,
}


@contextmanager
def fresh(kind: str, folder: Path, server: servers.Server | None = None) -> Iterator[Place]:
    """Return an empty place: on the shared server, or on ``server``."""
    name = f"documents_{secrets.token_hex(6)}"
    if kind == "sqlite":
        yield SqlitePlace(str(folder / f"{name}.db"))
        return
    url = servers.shared(kind).url if server is None else server.url
    if kind == "valkey":
        place = ValkeyPlace(f"{url}#{name}")
        yield place
        # Also the index: its key contains the pattern.
        for key in place.client.scan_iter(f"*{name}*", count=1000):
            place.client.unlink(key)
        place.client.close()
    elif kind == "postgres":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield PostgresPlace(f"{url.rpartition('/')[0]}/{name}")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    else:
        with own_place(url) as own:
            place_there = MongoPlace(own)
            yield place_there
            place_there.close()


def _instant(moment: datetime | None) -> Instant | None:
    if moment is None:
        return None
    return to_ms(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
