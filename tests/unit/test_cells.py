"""Cells of time: hours and days by the clock of a zone, also where it changes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import at, every
from evenbeat.core.cells import CellLength
from evenbeat.core.instants import from_ms, read_instant
from evenbeat.rules.cells import cell_edges, evenly, place_of, planned_counts
from evenbeat.triggers import parse_trigger
from evenbeat.triggers.zones import read_zone
from tests.lengths import examples

MINUTE, HOUR = 60_000, 3_600_000


def labels(key: str, by: CellLength, start: str, end: str) -> list[tuple[str, int]]:
    """Return the local time at which each cell begins, and its length in minutes."""
    zone = read_zone(key)
    edges = cell_edges(zone, by, read_instant(start, "since"), read_instant(end, "until"))
    form = "%d %H:%M%z" if by == "hour" else "%m-%d %H:%M"
    return [
        (from_ms(begin, zone.info).strftime(form), (finish - begin) // MINUTE)
        for begin, finish in pairwise(edges)
    ]


def test_hours_of_a_zone_begin_on_its_own_clock() -> None:
    assert labels("UTC", "hour", "2026-03-02T08:10Z", "2026-03-02T10:00Z") == [
        ("02 08:00+0000", 60),
        ("02 09:00+0000", 60),
    ]
    # 05:30 ahead of UTC: an hour begins at :30 of UTC.
    assert labels("Asia/Kolkata", "hour", "2026-03-02T08:10Z", "2026-03-02T09:30Z") == [
        ("02 13:00+0530", 60),
        ("02 14:00+0530", 60),
    ]
    assert labels("Asia/Kolkata", "day", "2026-03-02T18:29Z", "2026-03-02T18:31Z") == [
        ("03-02 00:00", 1440),
        ("03-03 00:00", 1440),
    ]


@pytest.mark.parametrize(
    ("key", "start", "end", "cells"),
    [
        # The clock goes from 02:00 to 03:00: no cell begins at 02:00.
        (
            "Europe/Berlin",
            "2026-03-29T00:00Z",
            "2026-03-29T02:00Z",
            [("29 01:00+0100", 60), ("29 03:00+0200", 60)],
        ),
        # From 03:00 back to 02:00: the hour from 02:00 on is two cells.
        (
            "Europe/Berlin",
            "2026-10-24T23:00Z",
            "2026-10-25T03:00Z",
            [("25 01:00+0200", 60), ("25 02:00+0200", 60), ("25 02:00+0100", 60), ("25 03:00+0100", 60)],
        ),
        # From 02:00 to 02:30: the rest of the hour is a cell.
        (
            "Australia/Lord_Howe",
            "2026-10-03T14:30Z",
            "2026-10-03T17:00Z",
            [("04 01:00+1030", 60), ("04 02:30+1100", 30), ("04 03:00+1100", 60)],
        ),
        # From 02:00 back to 01:30: the half hour that comes again is a cell.
        (
            "Australia/Lord_Howe",
            "2026-04-04T14:00Z",
            "2026-04-04T16:30Z",
            [("05 01:00+1100", 60), ("05 01:30+1030", 30), ("05 02:00+1030", 60)],
        ),
    ],
)
def test_hours_at_a_clock_change(key: str, start: str, end: str, cells: list[tuple[str, int]]) -> None:
    assert labels(key, "hour", start, end) == cells


@pytest.mark.parametrize(
    ("key", "day", "begins", "minutes"),
    [
        # Years that are over: governments still change the rules of later ones.
        ("Europe/Berlin", "2024-03-31", "03-31 00:00", 23 * 60),
        ("Europe/Berlin", "2024-10-27", "10-27 00:00", 25 * 60),
        ("Asia/Kolkata", "2024-03-31", "03-31 00:00", 24 * 60),
        ("Australia/Lord_Howe", "2024-10-06", "10-06 00:00", 24 * 60 - 30),
        ("Australia/Lord_Howe", "2024-04-07", "04-07 00:00", 24 * 60 + 30),
        # The clock skips midnight: the day begins at 01:00.
        ("Africa/Cairo", "2024-04-26", "04-26 01:00", 23 * 60),
        # At 01:00 it goes back to midnight, which does not begin another day.
        ("America/Havana", "2024-11-03", "11-03 00:00", 25 * 60),
    ],
)
def test_days_at_a_clock_change(key: str, day: str, begins: str, minutes: int) -> None:
    zone = read_zone(key)
    noon = read_instant(f"{day}T12:00", "since", zone.info)
    found = labels(key, "day", from_ms(noon).isoformat(), from_ms(noon + 1).isoformat())
    assert found == [(begins, minutes)]


def test_a_day_that_a_zone_skips_has_no_cell() -> None:
    # Samoa went from 29 to 31 December 2011.
    found = labels("Pacific/Apia", "day", "2011-12-29T12:00Z", "2011-12-31T00:00Z")
    assert [begins for begins, _ in found] == ["12-29 00:00", "12-31 00:00"]


@settings(max_examples=examples(200))
@given(
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "America/Havana"]),
    st.sampled_from(["hour", "day"]),
    st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    st.integers(1, 20 * 24 * HOUR),
)
def test_cells_cover_the_range_without_gaps(key: str, by: CellLength, moment: datetime, length: int) -> None:
    zone = read_zone(key)
    start = round(moment.timestamp()) * 1000
    edges = cell_edges(zone, by, start, start + length)
    assert edges[0] <= start < edges[1]
    assert edges[-2] < start + length <= edges[-1]
    for begin, end in pairwise(edges):
        first, last = from_ms(begin, zone.info), from_ms(end - 1, zone.info)
        if by == "hour":
            assert (first.date(), first.hour) == (last.date(), last.hour)
        else:
            assert first.date() == last.date()
    if by == "day":
        days = [from_ms(begin, zone.info).date() for begin in edges[:-1]]
        assert len(set(days)) == len(days)


def test_an_instant_is_in_the_cell_that_begins_with_it() -> None:
    edges = [0, 10, 20]
    assert [place_of(edges, instant) for instant in (-1, 0, 9, 10, 19, 20)] == [None, 0, 0, 1, 1, None]


def test_planned_ticks_begin_with_the_next_one() -> None:
    edges = [hour * HOUR for hour in range(5)]
    minutes = every("20m").bind("a", 0)
    assert planned_counts(edges, minutes, 40 * MINUTE) == [1, 3, 3, 3]
    assert planned_counts(edges, minutes, None) == [0, 0, 0, 0]
    # Moved to a time that the trigger does not have.
    assert planned_counts(edges, minutes, 130 * MINUTE) == [0, 0, 3, 3]
    assert planned_counts(edges, at(from_ms(HOUR)), HOUR) == [0, 1, 0, 0]
    assert planned_counts(edges, minutes, -HOUR) == [2, 3, 3, 3]
    assert planned_counts(edges, parse_trigger("59 * * * *"), 9 * HOUR) == [0, 0, 0, 0]


@settings(max_examples=examples(100))
@given(st.integers(0, 80), st.integers(0, 40), st.integers(1, 50))
def test_ticks_of_unknown_times_are_spread_evenly(first: int, length: int, count: int) -> None:
    edges = [0, 30, 60, 90, 130]
    shares = dict(evenly(edges, first, first + length, count))
    assert sum(shares.values()) == count
    touched = {place_of(edges, instant) for instant in range(first, first + length + 1)}
    assert shares.keys() <= touched


def test_a_range_that_begins_before_the_cells_is_cut() -> None:
    assert dict(evenly([50, 100], 0, 99, 10)) == {0: 5}
