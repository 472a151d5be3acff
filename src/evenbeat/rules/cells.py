"""Cells of time: hours and days by the clock of a zone, and counts that are sorted into them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from evenbeat.core.cells import CellLength
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, Skipped
from evenbeat.rules.ticks import trigger_of, upcoming_tick
from evenbeat.triggers import Trigger
from evenbeat.triggers.zones import Zone

STEPS = (10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000)
"""The lengths that a column of a timeline may have, in milliseconds."""
MOST_COLUMNS = 360

_SECONDS: dict[CellLength, int] = {"hour": 3_600, "day": 86_400}
# So far around a range there is an edge of a cell: no day is longer, whatever the clock does.
_MARGIN = 2 * 86_400


def cell_edges(zone: Zone, by: CellLength, start: Instant, end: Instant) -> list[Instant]:
    """Return the instants at which cells begin, from the cell that contains ``start`` to the end of the cell
    that contains the last millisecond before ``end``.

    Hours begin where the zone's clock shows :00, and where it changes. So an hour that the clock repeats is
    two cells, and a change by 30 minutes makes a cell of 30 minutes. Days begin at midnight, or where the
    clock skips midnight.
    """
    edges = list(_edges(zone, by, start // 1000 - _MARGIN, -(-end // 1000) + _MARGIN))
    first = bisect_right(edges, start) - 1
    last = bisect_right(edges, end - 1)
    return edges[first : last + 1]


def _edges(zone: Zone, by: CellLength, begin: int, finish: int) -> Iterator[Instant]:
    length = _SECONDS[by]
    at = begin
    before: int | None = None
    last: int | None = None
    while at < finish:
        if zone.fixed is None:
            window = zone.window(at)
            offset, until = window.offset, min(finish, window.hi)
        else:
            offset, until = zone.fixed, finish
        edges = range(at + -(at + offset) % length, until, length)
        changes = (at,) if before not in (None, offset) and at not in edges else ()
        for edge in (*changes, *edges):
            label = (edge + offset) // length
            # A change of the clock begins another day only if it skips midnight, and a midnight that the
            # clock shows again does not.
            if by == "hour" or last is None or label > last:
                yield edge * 1000
                last = label
        at, before = until, offset


def place_of(edges: Sequence[Instant], instant: Instant) -> int | None:
    """Return the number of the cell that contains an instant; None if it is outside of all cells."""
    at = bisect_right(edges, instant) - 1
    return at if 0 <= at < len(edges) - 1 else None


def planned_counts(edges: Sequence[Instant], trigger: Trigger, first: Instant | None) -> list[int]:
    """Return how many ticks of a schedule each cell has. ``first`` is the next one, which a user may have
    moved to a time that the trigger does not have; None if no tick will fire."""
    counts = [0] * (len(edges) - 1)
    if first is None:
        return counts
    place = place_of(edges, first)
    if place is not None:
        counts[place] = 1
    begin = max(edges[0], first + 1)
    if begin >= edges[-1]:
        return counts
    if trigger.count_ms(begin, edges[-1]) <= len(counts):
        # A next tick costs about as much as a count.
        for tick in trigger.between_ms(begin, edges[-1]):
            counts[bisect_right(edges, tick) - 1] += 1
        return counts
    for at in range(bisect_right(edges, begin) - 1, len(counts)):
        counts[at] += trigger.count_ms(max(edges[at], begin), edges[at + 1])
    return counts


def ahead_counts(edges: Sequence[Instant], schedule: ScheduleRecord) -> tuple[list[int], list[int]]:
    """Return how many ticks of each cell will fire, and how many are ticks of the present pause: these will
    be skipped, and the ledger does not have them yet. A pause without an end has all ticks to come."""
    trigger = trigger_of(schedule)
    goes_on = schedule.state == "active" or (schedule.state == "paused" and schedule.paused_until is not None)
    planned = planned_counts(edges, trigger, upcoming_tick(schedule) if goes_on else None)
    if schedule.state != "paused":
        return planned, [0] * len(planned)
    left = planned_counts(edges, trigger, schedule.next_tick)
    return planned, [of_all - later for of_all, later in zip(left, planned, strict=True)]


def evenly(edges: Sequence[Instant], first: Instant, last: Instant, count: int) -> Iterator[tuple[int, int]]:
    """Yield (cell, count) for ticks of which only the first, the last and the number are known: as if they
    were spread evenly."""
    length = last - first + 1

    def before(instant: Instant) -> int:
        return count * min(max(instant - first, 0), length) // length

    for at, (start, end) in enumerate(pairwise(edges)):
        if number := before(end) - before(start):
            yield at, number


def column_edges(start: Instant, end: Instant) -> list[Instant]:
    """Return the edges of the columns of a timeline: whole steps of UTC, of the shortest step that makes at
    most MOST_COLUMNS of them."""
    for step in STEPS:
        first, last = start // step * step, -(-end // step) * step
        if last - first <= MOST_COLUMNS * step:
            break
    return list(range(first, last + 1, step))


def row_counts(
    edges: Sequence[Instant], row: Skipped, trigger: Trigger | None
) -> tuple[list[tuple[int, int]], bool]:
    """Return (cell, count) for the ticks of a row of the ledger, and whether that is known.

    ``trigger`` is the one that had these ticks, if it is known.
    """
    if row.count == 1:
        place = place_of(edges, row.first)
        return ([] if place is None else [(place, 1)]), True
    if trigger is not None and trigger.count_ms(row.first, row.last + 1) == row.count:
        counts = []
        for at in range(max(0, bisect_right(edges, row.first) - 1), len(edges) - 1):
            if edges[at] > row.last:
                break
            number = trigger.count_ms(max(edges[at], row.first), min(edges[at + 1], row.last + 1))
            if number:
                counts.append((at, number))
        return counts, True
    is_known = place_of(edges, row.first) == place_of(edges, row.last) is not None
    return list(evenly(edges, row.first, row.last, row.count)), is_known
