"""Makes the database of a store refuse rows: by triggers, a validator, or a key of another type."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg
import redis

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.mongo.rows import key_text
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.sqlite import SqliteStore

MESSAGE = "auditors say no"
_numbers = itertools.count()
_EVENTS = {"add": "INSERT", "change": "UPDATE", "delete": "DELETE"}


class RefusingMemoryStore(MemoryStore):
    """A store in memory that refuses rows as a database does."""

    refused: tuple[str, str, dict[str, str]] | None = None

    def _check(self, table: str, on: str, row: object) -> None:
        if self.refused is not None and self.refused[:2] == (table, on):
            if all(getattr(row, name) == value for name, value in self.refused[2].items()):
                raise RowRefused(MESSAGE)

    def _apply(self, planned: Planned) -> None:
        if planned.schedule.key in self._schedules:
            self._check("schedules", "change", planned.schedule)
        for run in planned.runs:
            self._check("runs", "add", run)
        super()._apply(planned)

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        with self._lock:
            for run in runs:
                self._check("runs", "add", run)
            return super().add_runs(runs, before)

    def _store(self, run: RunRecord) -> None:
        if run.id in self._runs:
            self._check("runs", "change", run)
        super()._store(run)


class Refusing:
    """How each of our stores is made to refuse rows, for the contract."""

    @contextmanager
    def refusing(self, store: Store, table: str, on: str, **fields: str) -> Iterator[None]:
        with refusing(store, table, on, fields):
            yield


@contextmanager
def refusing(store: Store, table: str, on: str, fields: dict[str, str]) -> Iterator[None]:
    """Make the database refuse to add, change or delete rows of a table that have these values."""
    if isinstance(store, RefusingMemoryStore):
        store.refused = (table, on, fields)
        yield
        store.refused = None
    elif isinstance(store, SqliteStore):
        with _in_sqlite(store, table, on, fields):
            yield
    elif isinstance(store, PostgresStore):
        with _in_postgres(store, table, on, fields):
            yield
    elif isinstance(store, MongoStore):
        with _in_mongo(store, table, on, fields):
            yield
    else:
        assert isinstance(store, RedisStore)
        with _in_redis(store, table, on, fields):
            yield


@contextmanager
def _in_sqlite(store: SqliteStore, table: str, on: str, fields: dict[str, str]) -> Iterator[None]:
    name, row = f"refusal_{next(_numbers)}", "OLD" if on == "delete" else "NEW"
    where = " AND ".join(f"{row}.{field} = '{value}'" for field, value in fields.items())
    with closing(sqlite3.connect(store.path, timeout=60, isolation_level=None)) as connection:
        connection.execute(
            f"CREATE TRIGGER {name} BEFORE {_EVENTS[on]} ON evenbeat_{table} WHEN {where} "
            f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
        )
        yield
        connection.execute(f"DROP TRIGGER {name}")


@contextmanager
def _in_postgres(store: PostgresStore, table: str, on: str, fields: dict[str, str]) -> Iterator[None]:
    name, row = f"refusal_{next(_numbers)}", "OLD" if on == "delete" else "NEW"
    where = " AND ".join(f"{row}.{field} = '{value}'" for field, value in fields.items())
    with psycopg.connect(store.location.conninfo, autocommit=True) as connection:

        def execute(text: str) -> None:
            connection.execute(store.location.own(text).encode())

        execute(
            f"CREATE FUNCTION evenbeat.{name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$"
        )
        execute(
            f"CREATE TRIGGER {name} BEFORE {_EVENTS[on]} ON evenbeat.{table} FOR EACH ROW "
            f"WHEN ({where}) EXECUTE FUNCTION evenbeat.{name}()"
        )
        try:
            yield
        finally:
            execute(f"DROP TRIGGER {name} ON evenbeat.{table}")
            execute(f"DROP FUNCTION evenbeat.{name}()")


@contextmanager
def _in_mongo(store: MongoStore, table: str, on: str, fields: dict[str, str]) -> Iterator[None]:
    where = {"_id" if field == "id" else field: value for field, value in fields.items()}
    if table == "schedules":
        where = {"_id": key_text(("default", fields["name"]))}
    database = store._connections.session().database
    database.command("collMod", table, validator={"$nor": [where]}, validationLevel="strict")
    try:
        yield
    finally:
        database.command("collMod", table, validator={}, validationLevel="off")


@contextmanager
def _in_redis(store: RedisStore, table: str, on: str, fields: dict[str, str]) -> Iterator[None]:
    """A key of another type than expected is what makes Redis refuse a write."""
    assert table == "runs"
    ((field, value),) = fields.items()
    assert on == "add" or field == "id"
    name = {"schedule": "active:", "tenant": "newest:tenant:", "id": "runs:"}[field] + value
    with redis.Redis.from_url(store.location.url_of(store._session._finder.find())) as client:
        key = store.location.base + name
        kept = client.dump(key)
        client.set(key, MESSAGE)
        yield
        client.delete(key)
        if kept is not None:
            client.restore(key, 0, kept)
