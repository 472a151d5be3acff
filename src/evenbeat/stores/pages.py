"""Pages of schedules and runs, and their cursors: the position at which a page ended, as opaque text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.base import Page, RunQuery, ScheduleQuery, Store

Position: TypeAlias = tuple[Instant, str]
"""A run's position in the order of pages: when it was created, and its id."""

_Query = TypeVar("_Query", ScheduleQuery, RunQuery)
_Item = TypeVar("_Item")

Fetch: TypeAlias = Callable[[Position | None, int], tuple[Iterable[RunRecord], Position | None]]
"""Returns the readable runs among so many rows after a position, and the position of the last of these
rows; None if no rows follow."""


def every_schedule(store: Store, query: ScheduleQuery) -> Iterator[ScheduleRecord]:
    """Yield all schedules that a search finds, read in pages of ``query.limit``."""
    return _every(store.find_schedules, query)


def every_run(store: Store, query: RunQuery) -> Iterator[RunRecord]:
    """Yield all runs that a search finds, read in pages of ``query.limit``."""
    return _every(store.find_runs, query)


def _every(find: Callable[[_Query], Page[_Item]], query: _Query) -> Iterator[_Item]:
    while True:
        page = find(query)
        yield from page.items
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def schedule_page(found: Sequence[ScheduleRecord], limit: int) -> Page[ScheduleRecord]:
    """Cut a page from schedules; one more than ``limit`` of them says that others follow."""
    items = tuple(found[:limit])
    more = bool(items) and len(found) > limit
    return Page(items, write_position((items[-1].tenant, items[-1].name)) if more else None)


def keys_after(
    query: ScheduleQuery, keys: Iterable[tuple[str, str]], after: tuple[str, str] | None
) -> list[tuple[str, str]]:
    """Return the keys of schedules that may follow a position, in order and each once."""
    return sorted(
        {
            (tenant, name)
            for tenant, name in keys
            if (query.tenant is None or tenant == query.tenant)
            and (query.name is None or name == query.name)
            and (after is None or (tenant, name) > after)
        }
    )


def run_page(found: Sequence[RunRecord], limit: int) -> Page[RunRecord]:
    """Cut a page from runs; one more than ``limit`` of them says that others follow."""
    items = tuple(found[:limit])
    more = bool(items) and len(found) > limit
    return Page(items, write_position((items[-1].created_at, items[-1].id)) if more else None)


def fetch_run_page(query: RunQuery, fetch: Fetch) -> Page[RunRecord]:
    """Fetch rows until the page is full: rows that cannot be read, or do not match, are left out of it."""
    after = read_run_cursor(query.cursor)
    if query.states == ():
        return Page((), None)
    found: list[RunRecord] = []
    while len(found) <= query.limit:
        # One more than the page holds says whether there is more.
        runs, after = fetch(after, query.limit + 1 - len(found))
        # The database cannot compare earlier attempts.
        found += filter(query.matches, runs)
        if after is None:
            break
    return run_page(found, query.limit)


def read_schedule_cursor(cursor: str | None) -> tuple[str, str] | None:
    return None if cursor is None else read_position(cursor, tuple[str, str])


def read_run_cursor(cursor: str | None) -> Position | None:
    return None if cursor is None else read_position(cursor, tuple[int, str])


def cursor_at(created_at: Instant) -> str:
    """Return the cursor of the runs that were created at an instant or before, for a search for runs."""
    return write_position((created_at, ""))  # no id sorts before the empty text


def write_position(position: tuple[object, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def read_position(cursor: str, kind: Any) -> Any:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded.encode()), type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise unknown_cursor(cursor) from None


def unknown_cursor(cursor: str) -> InvalidValue:
    """Return the refusal of a cursor that no page has returned."""
    return InvalidValue(
        f"cursor {shown(cursor)} is not one that a page gave",
        field="cursor",
        value=cursor,
        hint="start without one",
    )
