"""Documents on each database: made, counted, the store on them, and the same taken one at a time."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import redis
from pymongo import MongoClient
from pymongo.collection import Collection

from bench import databases
from bench.processes import scratch
from evenbeat.documents import (
    Documents,
    MongoDocuments,
    PostgresDocuments,
    RedisDocuments,
    SqliteDocuments,
)

TEXT = "a document of some length " * 4
LOCK = timedelta(minutes=10)


class Place(ABC):
    """Documents in a database, in a process of its own each."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def make(self) -> None:
        """The table or collection, with the index that the docs recommend."""

    @abstractmethod
    def fill(self, count: int, due: datetime) -> None:
        """Documents numbered from 0, all due then."""

    @abstractmethod
    def left(self) -> int:
        """How many are still jobs."""

    @abstractmethod
    def documents(self) -> Documents:
        """The store."""

    def one(self) -> int | None:
        """Take the next one and end it, in the plainest way that is safe: the number of it."""
        raise NotImplementedError


class Mongo(Place):
    def _collection(self) -> Collection[dict[str, Any]]:
        if not hasattr(self, "_client"):
            self._client: MongoClient[dict[str, Any]] = MongoClient(self.url)
        return self._client.get_default_database()["jobs"]

    def make(self) -> None:
        self._collection().create_index("sleep_until", sparse=True)

    def fill(self, count: int, due: datetime) -> None:
        self._collection().insert_many(
            [{"number": number, "sleep_until": due, "text": TEXT} for number in range(count)]
        )

    def left(self) -> int:
        return self._collection().count_documents({"sleep_until": {"$gt": datetime(1970, 1, 1)}})

    def documents(self) -> Documents:
        return MongoDocuments(self._collection())

    def one(self) -> int | None:
        now = datetime.now(UTC)
        found = self._collection().find_one_and_update(
            {"sleep_until": {"$lte": now}}, {"$set": {"sleep_until": now + LOCK}}
        )
        if found is None:
            return None
        self._collection().update_one({"_id": found["_id"]}, {"$set": {"sleep_until": None}})
        return int(found["number"])


class Postgres(Place):
    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)

    def make(self) -> None:
        with self._connection() as connection:
            connection.execute(
                "CREATE TABLE jobs (id bigint PRIMARY KEY, sleep_until timestamptz, interval text, text text)"
            )
            connection.execute("CREATE INDEX ON jobs (sleep_until) WHERE sleep_until IS NOT NULL")

    def fill(self, count: int, due: datetime) -> None:
        with self._connection() as connection:
            connection.execute(
                "INSERT INTO jobs SELECT n, %s, NULL, %s FROM generate_series(0, %s) n",
                [due, TEXT, count - 1],
            )
            connection.execute("ANALYZE jobs")

    def left(self) -> int:
        with self._connection() as connection:
            row = connection.execute("SELECT count(*) FROM jobs WHERE sleep_until IS NOT NULL").fetchone()
        assert row is not None
        return int(row[0])

    def documents(self) -> Documents:
        return PostgresDocuments(self.url, "jobs")

    def one(self) -> int | None:
        if not hasattr(self, "_own"):
            self._own = self._connection()
        row = self._own.execute(
            "UPDATE jobs SET sleep_until = now() + interval '10 minutes' WHERE id = (SELECT id FROM jobs"
            " WHERE sleep_until <= now() ORDER BY sleep_until FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id"
        ).fetchone()
        if row is None:
            return None
        self._own.execute("UPDATE jobs SET sleep_until = NULL WHERE id = %s", row)
        return int(row[0])


class Sqlite(Place):
    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.url, isolation_level=None, timeout=60)

    def make(self) -> None:
        connection = self._connection()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, sleep_until INTEGER, text TEXT)")
        connection.execute("CREATE INDEX jobs_due ON jobs (sleep_until)")
        connection.close()

    def fill(self, count: int, due: datetime) -> None:
        connection = self._connection()
        connection.execute("BEGIN")
        rows = [(number, int(due.timestamp() * 1000), TEXT) for number in range(count)]
        connection.executemany("INSERT INTO jobs VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")
        connection.close()

    def left(self) -> int:
        connection = self._connection()
        (count,) = connection.execute("SELECT count(*) FROM jobs WHERE sleep_until IS NOT NULL").fetchone()
        connection.close()
        return int(count)

    def documents(self) -> Documents:
        return SqliteDocuments(self.url, "jobs", times="milliseconds", busy_timeout=60)


class Valkey(Place):
    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url.partition("?")[0])

    def make(self) -> None:
        """Hashes need no making."""

    def fill(self, count: int, due: datetime) -> None:
        pipeline = self._client().pipeline(transaction=False)
        text = due.isoformat(timespec="milliseconds")
        for number in range(count):
            pipeline.hset(f"bench-job:{number}", mapping={"sleep_until": text, "text": TEXT})
        pipeline.execute()

    def left(self) -> int:
        client = self._client()
        pipeline = client.pipeline(transaction=False)
        for key in client.scan_iter("bench-job:*", count=1000):
            pipeline.hexists(key, "sleep_until")
        return sum(map(bool, pipeline.execute()))

    def documents(self) -> Documents:
        return RedisDocuments(self.url.partition("?")[0], "bench-job:*")


KINDS: dict[str, type[Place]] = {
    "mongo": Mongo,
    "postgres": Postgres,
    "sqlite": Sqlite,
    "valkey": Valkey,
}


@contextmanager
def fresh(kind: str) -> Iterator[Place]:
    """A place where nothing is yet."""
    if kind == "sqlite":
        with scratch() as folder:
            yield Sqlite(str(folder / "bench.db"))
    elif kind == "valkey":
        place = Valkey(databases.url_of("valkey"))
        place._client().flushdb()
        yield place
        place._client().flushdb()
    else:
        assert kind in ("mongo", "postgres")
        with databases.place("mongo" if kind == "mongo" else "postgres") as url:
            yield KINDS[kind](url)
