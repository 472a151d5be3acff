"""Searches the catalogue: filters and sorts over a snapshot of all schedules. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from evenbeat.core.checks import check_one_of, check_whole
from evenbeat.errors import InvalidValue
from evenbeat.rules.schedule_filters import Entry, Key, ScheduleCriteria, matching
from evenbeat.stores.pages import read_position, write_position
from evenbeat.web.entries import POSITIONS, Order, Position, Snapshot

Sort: TypeAlias = Literal["name", "-name", "updated_at", "-updated_at", "task"]
"""The field to sort by, with a minus for descending order. Equal values are sorted by name, then tenant."""

MOST_ON_A_PAGE = 500
MOST_COUNTED = 1_000

# How many entries to filter before the next check of how many were found.
_CHUNK = 4_096


class CatalogueQuery(ScheduleCriteria, frozen=True, kw_only=True):
    """A search in the catalogue. ``late_keys`` finds the late schedules."""

    sort: Sort = "name"
    limit: int = 100
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_one_of("sort", self.sort, get_args(Sort))
        check_whole("limit", self.limit, 1, MOST_ON_A_PAGE)

    @property
    def order(self) -> Order:
        return cast("Order", self.sort.removeprefix("-"))

    @property
    def is_descending(self) -> bool:
        return self.sort.startswith("-")


class CataloguePage(NamedTuple):
    """A part of the result, in order."""

    keys: tuple[Key, ...]
    cursor: str | None
    """Continues after this page; None at the end."""
    matched: int
    """How many schedules match, on all pages: at most 1,000."""
    more_match: bool
    """Whether more than 1,000 match."""


def search(snapshot: Snapshot, query: CatalogueQuery, late: frozenset[Key] = frozenset()) -> CataloguePage:
    """Return the page of a query. Stops counting after 1,000 matches."""
    after = _read_cursor(query)
    order = snapshot.orders[query.order]
    if query.late:
        # There are few late ones: filtering all entries would take longer.
        known = (snapshot.entries.get(key) for key in late)
        order = sorted((entry for entry in known if entry is not None), key=POSITIONS[query.order])
    counted = list(islice(_matches(order, query, late, None), MOST_COUNTED + 1))
    found = counted if after is None else list(islice(_matches(order, query, late, after), query.limit + 1))
    page = found[: query.limit]
    return CataloguePage(
        tuple(entry.key for entry in page),
        _write_cursor(query, page[-1]) if len(found) > query.limit else None,
        min(len(counted), MOST_COUNTED),
        len(counted) > MOST_COUNTED,
    )


def _matches(
    order: list[Entry], query: CatalogueQuery, late: frozenset[Key], after: Position | None
) -> Iterator[Entry]:
    """Yield the entries that match, from the first one after a position."""
    for chunk in _chunks(order, query, after):
        yield from matching(chunk, query, late)


def _chunks(order: list[Entry], query: CatalogueQuery, after: Position | None) -> Iterator[list[Entry]]:
    position = POSITIONS[query.order]
    if query.is_descending:
        end = len(order) if after is None else bisect_left(order, after, key=position)
        for stop in range(end, 0, -_CHUNK):
            yield order[max(0, stop - _CHUNK) : stop][::-1]
    else:
        begin = 0 if after is None else bisect_right(order, after, key=position)
        for start in range(begin, len(order), _CHUNK):
            yield order[start : start + _CHUNK]


_POSITION_TYPES: dict[Order, Any] = {
    "name": tuple[str, str, str],
    "updated_at": tuple[str, int, str, str],
    "task": tuple[str, str, str, str],
}


def _write_cursor(query: CatalogueQuery, last: Entry) -> str:
    return write_position((query.sort, *POSITIONS[query.order](last)))


def _read_cursor(query: CatalogueQuery) -> Position | None:
    if query.cursor is None:
        return None
    sort, *position = read_position(query.cursor, _POSITION_TYPES[query.order])
    if sort != query.sort:
        raise InvalidValue(
            f"cursor is of a page that was sorted by {sort if sort in get_args(Sort) else 'another field'}",
            field="cursor",
            value=query.cursor,
            hint=f"start without one, or sort as before instead of by {query.sort}",
        )
    return tuple(position)
