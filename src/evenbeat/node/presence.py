"""Presence: the record by which a node announces itself, and the reader of all such records."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, encode
from evenbeat.rules.waiting import Taker
from evenbeat.stores.base import RunQuery, Store
from evenbeat.tasks.task import ExecutorKind

PRESENT_EVERY = 20_000
PRESENT_FOR = 65_000

_PAGE = 500


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself: the body of its record."""

    name: str
    host: str
    pid: int
    version: str
    started_at: Instant
    seen_at: Instant
    ticker: bool
    worker: bool
    tasks: dict[str, ExecutorKind]
    """Those that it executes, with how."""
    queues: list[str]
    slots: dict[ExecutorKind, int]
    """How many runs it executes at once, of each kind."""


class Presence:
    """A record that says that this node is there; it goes by itself when the node does."""

    def __init__(self, store: Store, info: NodeInfo) -> None:
        self._store = store
        self._info = info
        self._version: int | None = None

    def learn(self, task: str, kind: ExecutorKind) -> None:
        """Say with the next step that the node executes this task, too."""
        self._info = msgspec.structs.replace(self._info, tasks={**self._info.tasks, task: kind})

    def step(self, now: Instant) -> Instant:
        record = Record(
            kind="node",
            key=self._info.name,
            body=encode(msgspec.structs.replace(self._info, seen_at=now)),
            version=secrets.randbits(53),
            expires=now + PRESENT_FOR,
        )
        if not self._store.put_record(record, self._version):
            # A lost reply, or it expired while this node slept: what is there is ours, whatever its version.
            present = self._store.get_record("node", record.tenant, record.key)
            self._store.put_record(record, None if present is None else present.version)
        self._version = record.version
        return now + PRESENT_EVERY

    def leave(self) -> None:
        if self._version is not None:
            self._store.delete_record("node", "default", self._info.name, self._version)


class LiveNode(NamedTuple):
    """A node that is alive, as it says itself."""

    key: str
    host: str | None
    pid: int | None
    tasks: frozenset[str] | None
    """None: it did not say."""
    queues: tuple[str, ...]
    ticker: bool
    worker: bool
    kinds: Mapping[str, str]
    """By task: how it is executed there."""
    slots: Mapping[str, int]
    """By that kind: how many runs at once."""

    @property
    def taker(self) -> Taker:
        return Taker(self.key, self.worker, self.tasks, self.queues)

    def is_busy(self, store: Store, task: str) -> bool:
        """Whether as many runs of the task's kind are in its hands as it executes at once; False if it did
        not say how many that are."""
        kind = self.kinds.get(task)
        if kind is None or kind not in self.slots:
            return False
        left = self.slots[kind]
        query = RunQuery(worker=self.key, states=("running",), limit=_PAGE)
        while left > 0:
            page = store.find_runs(query)
            left -= sum(1 for run in page.items if self.kinds.get(run.task) == kind)
            if page.cursor is None:
                break
            query = RunQuery(worker=self.key, states=("running",), limit=_PAGE, cursor=page.cursor)
        return left <= 0


def live_nodes(store: Store) -> list[LiveNode]:
    """The nodes whose records have not expired."""
    return [_node(record) for record in store.find_records("node")]


def _node(record: Record) -> LiveNode:
    """What a node says of itself; whatever of it can't be read is left out."""
    try:
        body = json.loads(record.body)
    except ValueError:
        body = None
    said: dict[str, Any] = body if isinstance(body, dict) else {}
    tasks, queues, slots = said.get("tasks"), said.get("queues"), said.get("slots")
    kinds = {str(task): str(kind) for task, kind in tasks.items()} if isinstance(tasks, dict) else {}
    numbers = slots.items() if isinstance(slots, dict) else ()
    return LiveNode(
        key=record.key,
        host=str(said["host"]) if "host" in said else None,
        pid=said["pid"] if isinstance(said.get("pid"), int) else None,
        tasks=frozenset(map(str, tasks)) if isinstance(tasks, (dict, list)) else None,
        queues=tuple(map(str, queues)) if isinstance(queues, list) else ("default",),
        ticker=said.get("ticker") is not False,
        worker=said.get("worker") is not False,
        kinds=kinds,
        slots={str(kind): number for kind, number in numbers if isinstance(number, int)},
    )
