"""The stores under test, and a view of their data that no node has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState, Skipped, Statistics
from evenbeat.rules.backfills import KIND, StoredBackfill, read_backfill
from evenbeat.rules.dependencies import PENDING
from evenbeat.rules.limits import LIMIT, Limit
from evenbeat.rules.owed import OWED
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock

Hook: TypeAlias = Callable[[str], None]
Key: TypeAlias = tuple[str, str]

_EVERYTHING = 1_000_000
ALL_STATES: tuple[ScheduleState, ...] = ("active", "paused", "finished", "deleted")


class View(NamedTuple):
    """Everything in a store at one moment. Callers that keep it make a copy."""

    schedules: dict[Key, ScheduleRecord]
    runs: dict[str, RunRecord]
    skipped: dict[Key, list[Skipped]]
    statistics: dict[Key, Statistics]
    limits: tuple[Limit, ...] = ()
    """Read only if ``has_limits`` is true for the backend."""
    pending: frozenset[str] = frozenset()
    """The keys of successes that have not fired yet. Read only if ``has_dependencies`` is true."""
    owed: frozenset[str] = frozenset()
    """The keys of successes that are not handed over to followers yet."""
    backfills: Mapping[str, StoredBackfill] = MappingProxyType({})
    """By their ids. Read only if ``has_backfills`` is true."""
    is_atomic: bool = True
    """Whether no other call commits between the reads of a claim and its commit."""


class Backend(Protocol):
    """A database that many nodes share."""

    yields: bool
    """Whether its stores themselves call the hook, before every command and after each commit."""
    has_limits: bool
    """Whether users set limits."""
    has_dependencies: bool
    """Whether users make schedules depend on others."""
    has_backfills: bool
    """Whether users make backfills."""

    def connect(self, hook: Hook) -> Store:
        """Create a store for one node."""

    def look(self) -> View:
        """Return everything that is committed."""

    def close(self) -> None:
        """Close everything."""


MakeBackend: TypeAlias = Callable[[VirtualClock], Backend]


class WatchedMemory(MemoryStore):
    """A MemoryStore whose data can be read. Broken variants call ``step`` between their steps."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        super().__init__(clock)
        self.step: Hook = lambda _: None

    def look(self) -> View:
        return View(self._schedules, self._runs, self._skipped, self._statistics)


class MemoryBackend:
    """One MemoryStore for all nodes: it has no driver, so the fault proxy around it yields."""

    yields = False
    has_limits = False
    has_dependencies = False
    has_backfills = False

    def __init__(self, clock: VirtualClock, kind: type[WatchedMemory] = WatchedMemory) -> None:
        self._store = kind(clock)

    def connect(self, hook: Hook) -> Store:
        # Only one node runs at a time, and all nodes have the same hook.
        self._store.step = hook
        return self._store

    def look(self) -> View:
        view = self._store.look()
        if self.has_dependencies:
            view = view._replace(pending=_keys(self._store, PENDING), owed=_keys(self._store, OWED))
        if self.has_backfills:
            view = view._replace(backfills=_backfills(self._store))
        return view._replace(limits=_limits(self._store)) if self.has_limits else view

    def close(self) -> None:
        pass


class DatabaseBackend:
    """Stores with a driver: a connection for each node, and one for the view."""

    yields = True
    has_limits = False
    has_dependencies = False
    has_backfills = False

    def __init__(self, connect: Callable[[Hook | None], Store]) -> None:
        self._connect = connect
        self._window = connect(None)
        self._window.open()

    def connect(self, hook: Hook) -> Store:
        return self._connect(hook)

    def look(self) -> View:
        store = self._window
        rows = store.find_schedules(ScheduleQuery(states=ALL_STATES, limit=_EVERYTHING)).items
        schedules = {row.key: row for row in rows}
        runs = {run.id: run for run in store.find_runs(RunQuery(limit=_EVERYTHING)).items}
        return View(
            schedules,
            runs,
            {key: store.find_skipped(*key, limit=_EVERYTHING) for key in schedules},
            dict(zip(schedules, store.statistics(list(schedules)), strict=True)),
            _limits(store) if self.has_limits else (),
            _keys(store, PENDING) if self.has_dependencies else frozenset(),
            _keys(store, OWED) if self.has_dependencies else frozenset(),
            _backfills(store) if self.has_backfills else {},
            is_atomic=False,
        )

    def close(self) -> None:
        self._window.close()


def _limits(store: Store) -> tuple[Limit, ...]:
    return tuple(msgspec.json.decode(record.body, type=Limit) for record in store.find_records(LIMIT))


def _backfills(store: Store) -> dict[str, StoredBackfill]:
    found = ((record.key, read_backfill(record)) for record in store.find_records(KIND))
    return {key: backfill for key, backfill in found if backfill is not None}


def _keys(store: Store, kind: str) -> frozenset[str]:
    return frozenset(record.key for record in store.find_records(kind))


def sqlite_backend(path: Path) -> MakeBackend:
    """SQLite in a file that must not exist yet."""
    from evenbeat.stores.sqlite import SqliteStore

    def make(clock: VirtualClock) -> Backend:
        return DatabaseBackend(lambda hook: SqliteStore(path, clock=clock, busy_timeout=0, on_command=hook))

    return make


def server_backend(url: str) -> MakeBackend:
    """A server, in a schema, prefix or database that must not exist yet."""

    def make(clock: VirtualClock) -> Backend:
        return DatabaseBackend(lambda hook: _impatient(url, clock, hook))

    return make


def _impatient(url: str, clock: VirtualClock, hook: Hook | None) -> Store:
    """Create a store that does not wait for locks: the holder of a lock is suspended in the middle of a
    command."""
    scheme = urlsplit(url).scheme
    if scheme in ("postgresql", "postgres"):
        from evenbeat.stores.postgres import PostgresStore

        return PostgresStore(url, clock=clock, lock_timeout=0.001, on_command=hook)
    if scheme in ("mongodb", "mongodb+srv"):
        from evenbeat.stores.mongo import MongoStore

        return MongoStore(url, clock=clock, lock_timeout=0.001, on_command=hook)
    from evenbeat.stores.redis import RedisStore

    return RedisStore(url, clock=clock, on_command=hook)
