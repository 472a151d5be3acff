"""Snapshots of the catalogue: the entries of all schedules, in several orders. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from evenbeat.rules.schedule_filters import Entry, Key

Order: TypeAlias = Literal["name", "updated_at", "task"]
Position: TypeAlias = tuple[str | int, ...]
"""The values that an order compares. No two entries have the same position."""

# Sorting all entries again costs as much as inserting so many.
_MOST_INSERTED = 500


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
