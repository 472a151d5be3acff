"""Private means of each store, for tests that all stores share: damage a row, save everything, restore it."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, ClassVar

import psycopg
import redis
from tests.conftest import server_url
from tests.contract.redis_indexes import differences
from tests.isolation import own_place

from evenbeat.stores import rows
from evenbeat.stores.base import Store
from evenbeat.stores.mongo import MongoStore, schema
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore
from evenbeat.stores.redis import rows as redis_rows
from evenbeat.stores.redis.location import read_location
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock


class Adapter(ABC):
    """Opens stores at one location, and reads and writes there without them."""

    server: ClassVar[str | None]
    """The kind of server; None if there is none."""
    schedule_damage: ClassVar[Sequence[Any]]
    """Changes to schedules that make them unreadable, as ``damage_schedule`` takes them."""
    run_damage: ClassVar[Sequence[Any]]
    """Changes to runs that make them unreadable, as ``damage_run`` takes them."""
    unknown_state: ClassVar[Any]
    """A change that gives a schedule a state that this version does not know."""
    fields: ClassVar[Sequence[str]]
    """The fields of a schedule that ``set_field`` sets."""
    values: ClassVar[Sequence[Any]]
    """Values that most fields must not have."""

    def __init__(self, url: str, clock: VirtualClock) -> None:
        self.url = url
        self.clock = clock
        self._opened: list[Store] = []

    @classmethod
    @contextmanager
    def location(cls) -> Iterator[str]:
        """A location for many tests: creating one takes longer than most of them."""
        assert cls.server is not None
        with own_place(server_url(cls.server)) as url:
            yield url

    def open(self, **options: Any) -> Store:
        """Open a store. ``close`` closes it."""
        store = self.make(**options)
        store.open()
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    @abstractmethod
    def make(self, **options: Any) -> Store: ...

    @abstractmethod
    def empty(self) -> None:
        """Delete all rows, those of a schema's version excepted."""

    @abstractmethod
    def dump(self) -> Any:
        """Everything stored that has a meaning, comparable."""

    @abstractmethod
    def save(self) -> None:
        """Keep everything for ``restore``."""

    @abstractmethod
    def restore(self) -> None:
        """Write back what ``save`` has kept, and nothing else."""

    @abstractmethod
    def damage_schedule(self, name: str, damage: Any) -> None: ...

    @abstractmethod
    def damage_run(self, run_id: str, damage: Any) -> None: ...

    @abstractmethod
    def set_field(self, name: str, field: str, value: Any) -> None:
        """Set a field of a schedule to any value that the database takes."""

    def has_position(self, damage: Any) -> bool:
        """Whether a schedule with this damage has its place in the order of listings."""
        return True

    def is_listed(self, damage: Any) -> bool:
        """Whether listings have a schedule with this damage."""
        return True

    def problems(self) -> dict[str, Any]:
        """Whatever contradicts itself in the stored data."""
        return {}


class SqliteAdapter(Adapter):
    server = None
    schedule_damage = (
        "catch_up = '{nonsense'",
        "execution = '[1, 2]'",
        "state = 'dreaming'",
        "overlap = 'maybe'",
        "trigger = 'every now and then'",
        "payload = CAST(X'ff00fe' AS TEXT)",
        "next_tick = 9223372036854775807, spread = 5",
        "priority = 10",
    )
    run_damage = (
        "execution = 'x'",
        "cause = 'fate'",
        "payload = CAST(X'ff' AS TEXT)",
        "flow = CAST(X'ff' AS TEXT)",
    )
    unknown_state = "state = 'dreaming'"
    fields = tuple(column for column in rows.SCHEDULE if column not in ("tenant", "name", "format"))
    values = ("NULL", "''", "'?'", "CAST(X'ff' AS TEXT)", "-1", "9223372036854775807", "-9223372036854775808")

    @property
    def path(self) -> str:
        return self.url.removeprefix("sqlite:///")

    def make(self, **options: Any) -> SqliteStore:
        return SqliteStore(self.path, self.clock, **options)

    def _connect(self) -> closing[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        return closing(connection)

    def _tables(self, connection: sqlite3.Connection) -> list[str]:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return [name for (name,) in found if not name.startswith("sqlite_")]

    def empty(self) -> None:
        """Every test has a file of its own."""

    def dump(self) -> dict[str, list[Any]]:
        with self._connect() as connection:
            return {
                table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
                for table in self._tables(connection)
            }

    def save(self) -> None:
        self._saved = self.dump()

    def restore(self) -> None:
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table, found in self._saved.items():
                connection.execute(f"DELETE FROM {table}")
                if found:
                    marks = ", ".join("?" * len(found[0]))
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", found)
            connection.execute("COMMIT")

    def _update(self, statement: str, key: str) -> None:
        with self._connect() as connection:
            assert connection.execute(statement, (key,)).rowcount == 1

    def damage_schedule(self, name: str, damage: str) -> None:
        self._update(f"UPDATE evenbeat_schedules SET {damage} WHERE name = ?", name)

    def damage_run(self, run_id: str, damage: str) -> None:
        self._update(f"UPDATE evenbeat_runs SET {damage} WHERE id = ?", run_id)

    def set_field(self, name: str, field: str, value: str) -> None:
        # A STRICT table or NOT NULL may refuse the value: the row stays as it was.
        with suppress(sqlite3.IntegrityError):
            self.damage_schedule(name, f"{field} = {value}")


class PostgresAdapter(Adapter):
    server = "postgres"
    schedule_damage = (
        "catch_up = '{nonsense'",
        "execution = '[1, 2]'",
        "state = 'dreaming'",
        "overlap = 'maybe'",
        "trigger = 'every now and then'",
        "next_tick = 9223372036854775807, spread = 5",
    )
    run_damage = ("execution = 'x'", "cause = 'fate'")
    unknown_state = "state = 'dreaming'"
    tables = ("schedules", "runs", "skipped", "statistics", "records", "logs")
    fields = tuple(field for field in rows.SCHEDULE if field not in ("tenant", "name", "format"))
    values: ClassVar[Sequence[str]] = ("NULL", "-1", "9223372036854775807", "''", "'{nonsense'")

    def __init__(self, url: str, clock: VirtualClock) -> None:
        super().__init__(url, clock)
        self._location = PostgresStore(url).location
        # One for all statements: a new connection takes longer than most of them.
        self._connection = psycopg.connect(self._location.conninfo, autocommit=True)

    def close(self) -> None:
        super().close()
        self._connection.close()

    def make(self, **options: Any) -> PostgresStore:
        return PostgresStore(self.url, self.clock, **options)

    def _run(self, *statements: str) -> list[Any]:
        for statement in statements:
            cursor = self._connection.execute(self._location.own(statement).encode())
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        self.open()
        self._run(f"TRUNCATE {', '.join(f'evenbeat.{table}' for table in self.tables)}")

    def dump(self) -> dict[str, list[Any]]:
        found = {table: self._run(f"SELECT * FROM evenbeat.{table}") for table in self.tables}
        return {table: sorted(content, key=repr) for table, content in found.items()}

    def save(self) -> None:
        for table in self.tables:
            self._run(
                f"DROP TABLE IF EXISTS evenbeat.saved_{table}",
                f"CREATE TABLE evenbeat.saved_{table} AS TABLE evenbeat.{table}",
            )

    def restore(self) -> None:
        for table in self.tables:
            self._run(
                f"TRUNCATE evenbeat.{table}", f"INSERT INTO evenbeat.{table} TABLE evenbeat.saved_{table}"
            )

    def _damage(self, table: str, damage: str, row: str) -> None:
        checks = f"conrelid = 'evenbeat.{table}'::regclass AND contype = 'c'"
        for (name,) in self._run(f"SELECT conname FROM pg_constraint WHERE {checks}"):
            self._run(f"ALTER TABLE evenbeat.{table} DROP CONSTRAINT {name}")
        self._run(f"UPDATE evenbeat.{table} SET {damage} WHERE {row}")

    def damage_schedule(self, name: str, damage: str) -> None:
        self._damage("schedules", damage, f"name = '{name}'")

    def damage_run(self, run_id: str, damage: str) -> None:
        self._damage("runs", damage, f"id = '{run_id}'")

    def set_field(self, name: str, field: str, value: str) -> None:
        # The type of the column or NOT NULL may refuse the value: the row stays as it was.
        with suppress(psycopg.DataError, psycopg.IntegrityError, psycopg.errors.DatatypeMismatch):
            self.damage_schedule(name, f"{field} = {value}")


class RedisAdapter(Adapter):
    server = "valkey"
    schedule_damage: ClassVar[Sequence[dict[str, Any]]] = (
        {"definition": "{nonsense"},
        {"definition": "[1, 2]"},
        {"state": "dreaming"},
        {"overlap": "maybe"},
        {"trigger": "every now and then"},
        {"task": b"\xff\x00\xfe"},
        {"next_run": "tomorrow"},
        {"updated_at": ""},
        {"revision": "many"},
        {"fire_seq": b"\xff"},
        {"next_run": "9007199254740993000"},
        {"name": "a"},
    )
    run_damage: ClassVar[Sequence[dict[str, Any]]] = (
        {"definition": "x"},
        {"priority": "high"},
        {"task": b"\xff"},
        {"flow": b"\xff"},
    )
    unknown_state: ClassVar[dict[str, Any]] = {"state": "dreaming"}
    fields = (*(field for field in redis_rows.SCHEDULE if field != "format"), "declared", "followers")
    values = (None, "", "?", b"\xff", "-1", "9" * 19)

    def __init__(self, url: str, clock: VirtualClock) -> None:
        super().__init__(url, clock)
        location = read_location(url)
        self._base = location.base
        self._client: Any = redis.Redis.from_url(location.url, decode_responses=True, protocol=2)

    def close(self) -> None:
        super().close()
        self._client.close()

    def make(self, **options: Any) -> RedisStore:
        return RedisStore(self.url, self.clock, **options)

    def _keys(self) -> list[str]:
        return sorted(self._client.scan_iter(f"{self._base}*", count=1000))

    def empty(self) -> None:
        if keys := self._keys():
            self._client.delete(*keys)

    def dump(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._keys():
            kind = self._client.type(name)
            if kind == "hash":
                found[name] = self._client.hgetall(name)
            elif kind == "set":
                found[name] = self._client.smembers(name)
            else:
                found[name] = self._client.zrange(name, 0, -1, withscores=True)
        # What nodes reserve for a moment.
        found.pop(f"{self._base}firing", None)
        return found

    def save(self) -> None:
        self._saved = self.dump()

    def restore(self) -> None:
        self.empty()
        for name, value in self._saved.items():
            if isinstance(value, dict):
                self._client.hset(name, mapping=value)
            elif isinstance(value, set):
                self._client.sadd(name, *value)
            else:
                self._client.zadd(name, dict(value))

    def damage_schedule(self, name: str, damage: Mapping[str, Any]) -> None:
        self._client.hset(f"{self._base}schedules:{name}", mapping=damage)

    def damage_run(self, run_id: str, damage: Mapping[str, Any]) -> None:
        self._client.hset(f"{self._base}runs:{run_id}", mapping=damage)

    def set_field(self, name: str, field: str, value: Any) -> None:
        key = f"{self._base}schedules:{name}"
        if value is None:
            self._client.hdel(key, field)
        else:
            self._client.hset(key, field, value)

    def problems(self) -> dict[str, Any]:
        return dict(differences(self.url))


class MongoAdapter(Adapter):
    server = "mongo"
    schedule_damage: ClassVar[Sequence[dict[str, Any]]] = (
        {"$set": {"catch_up": "nonsense"}},
        {"$set": {"execution": [1, 2]}},
        {"$set": {"state": "dreaming"}},
        {"$set": {"overlap": "maybe"}},
        {"$set": {"trigger": "every now and then"}},
        {"$set": {"payload": 7}},
        {"$set": {"next_tick": "tomorrow"}},
        {"$unset": {"task": ""}},
        {"$unset": {"tenant": "", "name": ""}},
        {"$unset": {"fire_seq": ""}},
        {"$set": {"priority": 10}},
        {"$set": {"next_tick": (1 << 63) - 1}},
        {"$set": {"name": "a"}},
    )
    run_damage: ClassVar[Sequence[dict[str, Any]]] = (
        {"$set": {"execution": "x"}},
        {"$set": {"cause": "fate"}},
        {"$set": {"payload": 1}},
        {"$set": {"flow": 1}},
        {"$unset": {"payload": ""}},
    )
    unknown_state: ClassVar[dict[str, Any]] = {"$set": {"state": "dreaming"}}
    fields = tuple(field for field in rows.SCHEDULE if field not in ("tenant", "name", "format", "wake_at"))
    values = (None, "?", [1], -1, (1 << 63) - 1)
    collections = (
        schema.SCHEDULES,
        schema.RUNS,
        schema.SKIPPED,
        schema.STATISTICS,
        schema.RECORDS,
        schema.LOGS,
    )

    @classmethod
    @contextmanager
    def location(cls) -> Iterator[str]:
        with super().location() as url:
            # Stores of one process share a client: one that stays open makes the tests quick.
            keeper = MongoStore(url)
            keeper.open()
            yield url
            keeper.close()

    def make(self, **options: Any) -> MongoStore:
        return MongoStore(self.url, self.clock, **options)

    @property
    def _database(self) -> Any:
        store = self._opened[0] if self._opened else self.open()
        assert isinstance(store, MongoStore)
        return store._connections.unopened().database

    def empty(self) -> None:
        for name in self.collections:
            self._database[name].delete_many({})

    def dump(self) -> dict[str, list[Any]]:
        found = {name: list(self._database[name].find({}, {"touched": 0})) for name in self.collections}
        for document in found[schema.SKIPPED]:
            del document["_id"]
        return {name: sorted(documents, key=repr) for name, documents in found.items()}

    def save(self) -> None:
        self._saved = self.dump()

    def restore(self) -> None:
        self.empty()
        for name, documents in self._saved.items():
            if documents:
                self._database[name].insert_many([dict(document) for document in documents])

    def damage_schedule(self, name: str, damage: Mapping[str, Any]) -> None:
        changed = self._database.schedules.update_one({"_id": f"default/{name}"}, damage)
        assert changed.matched_count == 1

    def damage_run(self, run_id: str, damage: Mapping[str, Any]) -> None:
        assert self._database.runs.update_one({"_id": run_id}, damage).matched_count == 1

    def set_field(self, name: str, field: str, value: Any) -> None:
        change = {"$unset": {field: ""}} if value is None else {"$set": {field: value}}
        self.damage_schedule(name, change)

    def is_listed(self, damage: Mapping[str, Any]) -> bool:
        # Without a tenant and a name, only its _id finds it.
        return "tenant" not in damage.get("$unset", {})

    def has_position(self, damage: Mapping[str, Any]) -> bool:
        return "name" not in damage.get("$set", {})


ADAPTERS: dict[str, type[Adapter]] = {
    "sqlite": SqliteAdapter,
    "postgres": PostgresAdapter,
    "redis": RedisAdapter,
    "mongo": MongoAdapter,
}
