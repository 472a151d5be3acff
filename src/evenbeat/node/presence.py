"""Presence: the record by which a node announces itself, and the reader of all such records."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.rules.waiting import Taker
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.stores.pages import every_run
from evenbeat.tasks.task import ExecutorKind

PRESENT_EVERY = 20_000
PRESENT_FOR = 65_000

_PAGE = 500


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a node's record: what it is, and what it executes."""

    name: str
    host: str
    pid: int
    version: str
    started_at: Instant
    seen_at: Instant
    ticker: bool
    worker: bool
    tasks: dict[str, ExecutorKind]
    """The tasks that it executes, each with its executor."""
    queues: list[str]
    slots: dict[ExecutorKind, int]
    """How many runs it executes at once, by executor."""
    running: int = 0
    """How many runs it held when the record was written."""
    code_only: tuple[str, ...] = ()
    """The schedules without a row that it plans."""
    fallback_since: Instant | None = None
    """Since when it fires schedules from memory because their rows can't be read."""


class Presence:
    """Keeps a record of this node in the store, which expires after the node is gone."""

    def __init__(
        self,
        store: Store,
        info: NodeInfo,
        running: Callable[[], int] = lambda: 0,
        fallback_since: Callable[[], Instant | None] = lambda: None,
    ) -> None:
        self._store = store
        self._info = info
        self._running = running
        self._fallback_since = fallback_since
        self._version: int | None = None

    def add_task(self, task: str, kind: ExecutorKind) -> None:
        """Add a task to the record; the next step writes it."""
        self._info = msgspec.structs.replace(self._info, tasks={**self._info.tasks, task: kind})

    def add_code_only(self, schedule: str) -> None:
        """Add a schedule without a row to the record; the next step writes it."""
        names = sorted({*self._info.code_only, schedule})
        self._info = msgspec.structs.replace(self._info, code_only=tuple(names))

    def step(self, now: Instant) -> Instant:
        present = msgspec.structs.replace(
            self._info, seen_at=now, running=self._running(), fallback_since=self._fallback_since()
        )
        record = Record(
            kind="node",
            key=self._info.name,
            body=encode(present),
            version=secrets.randbits(53),
            expires=now + PRESENT_FOR,
        )
        if not self._store.put_record(record, self._version):
            # The reply to the last write was lost, or the record expired while this machine was suspended.
            # The name is unique, so a record that is there is this node's own, whatever its version.
            found = self._store.get_record("node", record.tenant, record.key)
            self._store.put_record(record, None if found is None else found.version)
        self._version = record.version
        return now + PRESENT_EVERY

    def leave(self) -> None:
        """Delete the record."""
        if self._version is not None:
            self._store.delete_record("node", "default", self._info.name, self._version)


class LiveNode(NamedTuple):
    """A node whose record has not expired, as the record describes it."""

    key: str
    host: str | None
    pid: int | None
    tasks: frozenset[str] | None
    """None if the record does not list them."""
    queues: tuple[str, ...]
    ticker: bool
    worker: bool
    kinds: Mapping[str, str]
    """The executor of each task."""
    slots: Mapping[str, int]
    """How many runs it executes at once, by executor."""
    version: str | None = None
    started_at: Instant | None = None
    seen_at: Instant | None = None
    running: int | None = None
    expires: Instant | None = None
    """When its record expires, unless the node writes it again."""
    code_only: tuple[str, ...] = ()
    """The schedules without a row that it plans."""
    fallback_since: Instant | None = None
    """Since when it fires schedules from memory because their rows can't be read."""

    @property
    def taker(self) -> Taker:
        return Taker(self.key, self.worker, self.tasks, self.queues)

    def is_busy(self, store: Store, task: str) -> bool:
        """Return whether all of its slots for the task's executor are in use; False if the record does not
        contain their number."""
        found = self.slots_in_use(store, task)
        return found is not None and found[0] == found[1]

    def slots_in_use(self, store: Store, task: str) -> tuple[int, int] | None:
        """Return how many of its slots for the task's executor are in use, and how many there are; None if
        the record does not contain their number."""
        kind = self.kinds.get(task)
        if kind is None or kind not in self.slots:
            return None
        query = RunQuery(worker=self.key, states=("running",), without=LARGE_FIELDS, limit=_PAGE)
        held = (run for run in every_run(store, query) if self.kinds.get(run.task) == kind)
        slots = max(0, self.slots[kind])
        return sum(1 for _ in islice(held, slots)), slots


def live_nodes(store: Store) -> list[LiveNode]:
    """Return the nodes whose records have not expired."""
    return [_node(record) for record in store.find_records("node")]


def _node(record: Record) -> LiveNode:
    """Read a node's record. A field that can't be read gets a default."""
    try:
        body = json.loads(record.body)
    except ValueError:
        body = None
    fields: dict[str, Any] = body if isinstance(body, dict) else {}
    tasks, queues, slots = fields.get("tasks"), fields.get("queues"), fields.get("slots")
    code_only = fields.get("code_only")
    kinds = {str(task): str(kind) for task, kind in tasks.items()} if isinstance(tasks, dict) else {}
    numbers = slots.items() if isinstance(slots, dict) else ()
    return LiveNode(
        key=record.key,
        expires=record.expires,
        host=str(fields["host"]) if "host" in fields else None,
        pid=fields["pid"] if isinstance(fields.get("pid"), int) else None,
        tasks=frozenset(map(str, tasks)) if isinstance(tasks, (dict, list)) else None,
        queues=tuple(map(str, queues)) if isinstance(queues, list) else ("default",),
        ticker=fields.get("ticker") is not False,
        worker=fields.get("worker") is not False,
        kinds=kinds,
        slots={str(kind): number for kind, number in numbers if isinstance(number, int)},
        version=fields["version"] if isinstance(fields.get("version"), str) else None,
        started_at=_instant(fields.get("started_at")),
        seen_at=_instant(fields.get("seen_at")),
        running=_number(fields.get("running")),
        code_only=tuple(map(str, code_only)) if isinstance(code_only, list) else (),
        fallback_since=_instant(fields.get("fallback_since")),
    )


def _instant(value: object) -> Instant | None:
    """Return an instant of the calendar; None for any other value."""
    number = _number(value)
    return number if number is not None and FIRST <= number <= LAST else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
