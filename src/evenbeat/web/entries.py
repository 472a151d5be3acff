"""Entries of the catalogue, and snapshots of all entries in several orders. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import lru_cache
from sys import intern
from typing import Literal, NamedTuple, TypeAlias, cast

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, ScheduleState

Key: TypeAlias = tuple[str, str]
"""(tenant, name)."""

Order: TypeAlias = Literal["name", "updated_at", "task"]
Position: TypeAlias = tuple[str | int, ...]
"""The values that an order compares. No two entries have the same position."""

# Stands between the fields, so that no search matches across two of them.
_BETWEEN = "\0"
# Sorting all entries again costs as much as inserting so many.
_MOST_INSERTED = 500


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a schedule that searches compare. Entries share equal texts."""

    tenant: str
    name: str
    task: str
    state: ScheduleState
    queue: str
    managed_by: str
    trigger: str
    tags: tuple[str, ...]
    text: str
    """Name, task, tags and description in lower case."""
    generation: int
    revision: int
    updated_at: Instant
    failing: bool = False
    """Whether the last run that succeeded or failed has failed."""

    @property
    def key(self) -> Key:
        return (self.tenant, self.name)


def entry_of(record: ScheduleRecord) -> Entry:
    """Return the entry of a schedule, as if it were not failing."""
    searched = (record.name, record.task, record.tags, record.description)
    return Entry(
        tenant=intern(record.tenant),
        name=record.name,
        task=intern(record.task),
        state=cast("ScheduleState", intern(record.state)),
        queue=intern(record.queue),
        managed_by=intern(record.managed_by),
        trigger=_shared(record.trigger),
        tags=_words(record.tags),
        text=_BETWEEN.join(searched).casefold(),
        generation=record.generation,
        revision=record.revision,
        updated_at=record.updated_at,
    )


@lru_cache(maxsize=4096)
def _shared(text: str) -> str:
    return text


@lru_cache(maxsize=4096)
def _words(tags: str) -> tuple[str, ...]:
    return tuple(map(intern, tags.split()))


def _by_name(entry: Entry) -> Position:
    return (entry.name, entry.tenant)


def _by_updated_at(entry: Entry) -> Position:
    return (entry.updated_at, entry.name, entry.tenant)


def _by_task(entry: Entry) -> Position:
    return (entry.task, entry.name, entry.tenant)


POSITIONS: Mapping[Order, Callable[[Entry], Position]] = {
    "name": _by_name,
    "updated_at": _by_updated_at,
    "task": _by_task,
}


class Snapshot(NamedTuple):
    """All entries at one moment, by key and in each order. Nothing changes a snapshot."""

    entries: Mapping[Key, Entry]
    orders: Mapping[Order, list[Entry]]

    def changed(self, changes: Mapping[Key, Entry | None]) -> Snapshot:
        """Return a snapshot with these entries changed or added, and without those that are None."""
        if not changes:
            return self
        entries = dict(self.entries)
        for key, entry in changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry
        if len(changes) > _MOST_INSERTED:
            return _sorted(entries)
        orders = {order: list(those) for order, those in self.orders.items()}
        for order, those in orders.items():
            for key, entry in changes.items():
                _replace(those, POSITIONS[order], self.entries.get(key), entry)
        return Snapshot(entries, orders)


def _sorted(entries: Mapping[Key, Entry]) -> Snapshot:
    return Snapshot(
        entries, {order: sorted(entries.values(), key=position) for order, position in POSITIONS.items()}
    )


def _replace(
    order: list[Entry], position: Callable[[Entry], Position], old: Entry | None, new: Entry | None
) -> None:
    if old is not None:
        index = bisect_left(order, position(old), key=position)
        if new is not None and position(new) == position(old):
            order[index] = new
            return
        del order[index]
    if new is not None:
        order.insert(bisect_left(order, position(new), key=position), new)


EMPTY = _sorted({})
