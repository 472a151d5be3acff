"""The timeline of many schedules: their ticks in columns, past and future."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenbeat import InvalidValue, TimelineCell, TimelineLane, every
from evenbeat.app import lanes
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.core.records import RunRecord, Skipped
from evenbeat.rules.cells import MOST_COLUMNS, STEPS, column_edges, row_counts
from evenbeat.rules.ticks import own_trigger
from evenbeat.stores.base import Page, RunQuery, ScheduleQuery
from evenbeat.testing import VirtualScheduler, virtual
from tests.lengths import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    scheduler.task(name="work")(lambda: None)

    @scheduler.task(name="breaks")
    def breaks() -> None:
        raise ValueError("no")

    return scheduler


def counts(lane: TimelineLane) -> dict[str, tuple[int, int, int, int]]:
    return {f"{cell.at:%H:%M}": (cell.fired, cell.failed, cell.skipped, cell.planned) for cell in lane.cells}


def paused(lane: TimelineLane) -> list[str]:
    """Return the columns with a tick of the present pause and nothing else."""
    return [f"{cell.at:%H:%M}" for cell in lane.cells if only(cell, paused=1)]


def only(cell: TimelineCell, **expected: int) -> bool:
    names = [name for name in TimelineCell.__struct_fields__ if name not in ("at", "end")]
    return {name: getattr(cell, name) for name in names} == {**dict.fromkeys(names, 0), **expected}


def lane(app: VirtualScheduler, name: str, *args: Any, **options: Any) -> TimelineLane:
    found = app.app.timeline(*args, **options)
    return next(each for each in found.lanes if each.schedule == name)


@settings(max_examples=examples(200))
@given(st.integers(-(10**12), 10**12), st.integers(1, 71 * 86_400_000))
def test_columns_are_the_shortest_that_are_not_too_many(start: int, length: int) -> None:
    edges = column_edges(start, start + length)
    step = edges[1] - edges[0]
    assert step in STEPS
    assert len(edges) - 1 <= MOST_COLUMNS
    assert {end - begin for begin, end in pairwise(edges)} == {step}
    assert edges[0] <= start < edges[1]
    assert edges[-2] < start + length <= edges[-1]
    assert edges[0] % step == 0
    if step > STEPS[0]:
        shorter = STEPS[STEPS.index(step) - 1]
        assert -(-(start + length) // shorter) - start // shorter > MOST_COLUMNS


def test_a_range_that_begins_inside_a_column_has_one_more() -> None:
    hour = 3_600_000
    assert len(column_edges(0, hour)) - 1 == MOST_COLUMNS
    # 361 columns of 10 s would be too many.
    assert column_edges(5_000, hour + 5_000)[1] == 60_000


def test_lanes_have_past_and_coming_ticks(app: VirtualScheduler) -> None:
    app.schedules.add("bad", every("20m"), "breaks")
    app.schedules.add("good", every("30m"), "work")
    app.travel("65m")
    found = app.app.timeline()
    assert (found.since, found.until, found.now) == (
        NOON + 5 * MINUTE,
        NOON + 125 * MINUTE,
        NOON + 65 * MINUTE,
    )
    assert found.step == MINUTE
    assert [each.schedule for each in found.lanes] == ["bad", "good"]
    assert counts(found.lanes[0]) == {
        **dict.fromkeys(("12:20", "12:40", "13:00"), (1, 1, 0, 0)),
        **dict.fromkeys(("13:20", "13:40", "14:00"), (0, 0, 0, 1)),
    }
    assert counts(found.lanes[1]) == {
        **dict.fromkeys(("12:30", "13:00"), (1, 0, 0, 0)),
        **dict.fromkeys(("13:30", "14:00"), (0, 0, 0, 1)),
    }
    assert all(each.is_exact for each in found.lanes)
    assert found == asyncio.run(app.app.atimeline())
    assert counts(app.app.timeline("3h", "1m").lanes[0]).keys() == {"12:20", "12:40", "13:00"}


def test_runs_by_hand_count_only_if_they_fail(app: VirtualScheduler) -> None:
    app.schedules.add("bad", every("1d"), "breaks")
    app.schedules.add("good", every("1d"), "work")
    for name in ("bad", "good"):
        app.schedules.run_now(name)
    app.run_pending()
    assert counts(lane(app, "bad")) == {"12:00": (0, 1, 0, 0)}
    assert counts(lane(app, "good")) == {}


def test_skipped_ticks_come_from_the_ledger(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.pause("beat")
    app.travel("35m")
    assert paused(lane(app, "beat", "1h", "20m")) == ["12:10", "12:20", "12:30", "12:40", "12:50"]
    app.schedules.resume("beat")
    found = lane(app, "beat", "1h", "10m")
    assert counts(found) == {
        **dict.fromkeys(("12:10", "12:20", "12:30"), (0, 0, 1, 0)),
        "12:40": (0, 0, 0, 1),
    }
    assert found.is_exact
    app.down_for("30m")
    app.run_pending()
    # Coalesced, too.
    assert counts(lane(app, "beat", "30m", "1m")) == {
        **dict.fromkeys(("12:40", "12:50"), (0, 0, 1, 0)),
        "13:00": (1, 0, 0, 0),
    }


def test_a_pause_has_no_ticks_until_it_ends(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.pause("beat", until="25m")
    found = lane(app, "beat", "1h", "45m")
    assert [f"{cell.at:%H:%M}" for cell in found.cells if only(cell, planned=1)] == ["12:30", "12:40"]
    assert paused(found) == ["12:10", "12:20"]
    assert len(found.cells) == 4
    assert found.state == "paused"


def test_runs_that_have_not_ended_are_waiting(app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    app.schedules.add("beat", every("20m"), "absent", overlap="allow")
    app.travel("50m")
    app.schedules.run_now("beat")
    app.run_pending()
    found = lane(app, "beat", "1h", "5m")
    assert [(f"{cell.at:%H:%M}", only(cell, fired=1, waiting=1)) for cell in found.cells[:2]] == [
        ("12:20", True),
        ("12:40", True),
    ]
    assert only(found.cells[2], waiting=1), "by hand"
    assert [cell.end - cell.at for cell in found.cells] == [MINUTE] * 3
    # Of a lane with figures, too.
    monkeypatch.setattr(lanes, "MOST_RUNS", 0)
    figures = lane(app, "beat", "1h", "5m")
    assert not figures.is_exact
    assert [(cell.at, cell.waiting) for cell in figures.cells if cell.waiting] == [
        (cell.at, cell.waiting) for cell in found.cells
    ]


def test_figures_of_an_hour_are_one_cell_of_shorter_columns(
    app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MOST_RUNS", 10)
    app.schedules.add("busy", every("1m"), "breaks")
    app.travel("150m")
    found = app.app.timeline("1d", "1h")
    assert found.step == 5 * MINUTE
    cells = found.lanes[0].cells
    # The present hour ends with the present column.
    assert [(cell.at - NOON, cell.end - NOON, cell.fired) for cell in cells if cell.fired] == [
        (0 * MINUTE, 60 * MINUTE, 59),
        (60 * MINUTE, 120 * MINUTE, 60),
        (120 * MINUTE, 155 * MINUTE, 31),
    ]
    ahead = [cell for cell in cells if cell.planned]
    assert {cell.end - cell.at for cell in ahead[1:]} == {found.step}
    assert sum(cell.planned for cell in ahead) == 59, "from 14:31 to 15:29"
    assert all(before.end <= after.at for before, after in pairwise(cells)), "no time is in two cells"


def test_figures_of_a_minute_are_one_cell_of_columns_of_10_seconds(
    app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "MOST_RUNS", 10)
    app.schedules.add("busy", every("20s"), "work")
    app.travel("30m25s")
    found = app.app.timeline("10m", "2m")
    assert found.step == timedelta(seconds=10)
    first, *past, last = (cell for cell in found.lanes[0].cells if cell.fired)
    assert (first.at, first.end) == (found.since, NOON + 21 * MINUTE), "the first minute began earlier"
    assert [(cell.at, cell.end - cell.at) for cell in past] == [
        (NOON + number * MINUTE, MINUTE) for number in range(21, 30)
    ]
    assert (last.at, last.end) == (NOON + 30 * MINUTE, NOON + 30.5 * MINUTE)


@settings(max_examples=examples(40))
@given(
    st.sampled_from(["every 7m", "*/20 * * * *", "every 5s", "50 12 * * *"]),
    st.integers(0, 100),
    st.one_of(st.none(), st.integers(1, 200)),
    st.integers(0, 100),
    st.integers(1, 3000),
)
def test_each_tick_to_come_is_planned_or_paused(
    trigger: str, before: int, length: int | None, passed: int, ahead: int
) -> None:
    """Compare with the ticks one by one."""
    with virtual() as scheduler:
        scheduler.task(name="work")(lambda: None)
        scheduler.schedules.add("beat", trigger, "work", start_at=NOON)
        scheduler.down_for(f"{before}m") if before else None
        scheduler.schedules.pause("beat", until=None if length is None else f"{length}m")
        scheduler.down_for(f"{passed}m") if passed else None
        (row,) = scheduler.store.find_schedules(ScheduleQuery()).items
        found = scheduler.app.timeline("3h", f"{ahead}m")
        ticks: list[datetime] = []
        if row.next_tick is not None:
            end = to_ms(found.until)
            ticks = [from_ms(tick) for tick in own_trigger(row).between_ms(row.next_tick, end)]
        pause_ends = None if row.paused_until is None else from_ms(row.paused_until)
        count = 0
        for cell in found.lanes[0].cells:
            inside = ticks[bisect_left(ticks, cell.at) : bisect_left(ticks, cell.end)]
            waiting = [tick for tick in inside if pause_ends is None or tick < pause_ends]
            assert (cell.paused, cell.planned) == (len(waiting), len(inside) - len(waiting))
            count += len(inside)
        assert count == sum(tick >= found.since for tick in ticks), "each tick is in a cell"


def test_a_lane_with_many_runs_comes_from_the_figures(
    app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("busy", every("1m"), "breaks")
    app.schedules.add("calm", every("30m"), "work")
    app.travel("2h")
    exact = lane(app, "busy", "1h", "1m")
    monkeypatch.setattr(lanes, "MOST_RUNS", 10)
    found = app.app.timeline("1h", "1m")
    busy, calm = found.lanes
    assert (busy.is_exact, calm.is_exact) == (False, True)
    # Nodes write a minute when it is over.
    assert counts(busy).keys() == counts(exact).keys() - {"14:00"}
    assert sum(cell.fired for cell in busy.cells) == sum(cell.fired for cell in exact.cells) - 1
    assert sum(cell.failed for cell in busy.cells) > 50
    # By the hour, if the minutes are not kept that long.
    hours = lane(app, "busy", "4h", "1m")
    assert [at for at, (fired, *_) in counts(hours).items() if fired] == ["12:00", "13:00"]
    assert sum(cell.fired for cell in hours.cells) == 119


def test_older_runs_do_not_count(app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_RUNS", 40)
    app.schedules.add("beat", every("1m"), "work")
    app.travel("2h")
    found = lane(app, "beat", "30m", "1m")
    assert (found.is_exact, sum(cell.fired for cell in found.cells)) == (True, 31)


def test_runs_by_hand_are_bounded_too(app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_RUNS", 3)
    app.schedules.add("beat", every("1d"), "work")
    for number in range(4):
        assert lane(app, "beat").is_exact, number
        app.schedules.run_now("beat")
        app.run_pending()
    assert not lane(app, "beat").is_exact


def test_all_lanes_share_a_budget(app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "MOST_RUNS_OF_ALL", 20)
    for name in ("a", "b"):
        app.schedules.add(name, every("5m"), "work")
    app.travel("1h")
    read: list[RunQuery] = []
    find = app.store.find_runs

    def noted(query: RunQuery) -> Page[RunRecord]:
        read.append(query)
        return find(query)

    monkeypatch.setattr(app.store, "find_runs", noted)
    assert [each.is_exact for each in app.app.timeline("2h").lanes] == [False, False]
    # The trigger says how many runs to expect: only those that have not ended are read.
    assert [set(query.states or ()) for query in read] == [{"queued", "running"}] * 2
    assert [each.is_exact for each in app.app.timeline("2h", limit=1).lanes] == [True]


def test_the_filter_is_that_of_the_list(app: VirtualScheduler) -> None:
    app.schedules.add("a", every("5m"), "work", tags=["red"])
    app.schedules.add("b", every("5m"), "breaks", queue="slow")
    app.schedules.add("c", every("5m"), "work", tenant="blue")
    app.schedules.pause("b")

    def names(**options: Any) -> list[str]:
        return [each.schedule for each in app.app.timeline(**options).lanes]

    assert names() == ["a", "b"]
    assert names(all_tenants=True) == ["c", "a", "b"]
    assert names(tag="red") == names(state="active") == names(text="RED") == names(limit=1) == ["a"]
    assert names(queue="slow") == names(task="breaks") == ["b"]
    assert names(tenant="blue") == ["c"]
    keys = [("blue", "c"), ("default", "x"), ("default", "a")]
    assert [each.schedule for each in app.app.timeline_of(keys).lanes] == ["c", "a"]
    assert app.app.timeline_of([]).lanes == ()


@pytest.mark.parametrize(
    ("args", "options", "problem"),
    [
        (("41d",), {}, "is more than 40d ago"),
        (("1h", "32d"), {}, "is more than 31d ahead"),
        (("1h", "2026-03-01T10:00Z"), {}, "is not after the start"),
        ((), {"limit": 101}, "limit 101 is not a whole number of 1 to 100"),
    ],
)
def test_a_range_that_cannot_be_shown_is_refused(
    app: VirtualScheduler, args: tuple[str, ...], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidValue, match=problem):
        app.app.timeline(*args, **options)


def test_rows_of_the_ledger_are_counted_by_the_trigger_that_had_them() -> None:
    edges = [0, 60_000, 120_000, 180_000]

    def row(first: int, last: int, count: int) -> Skipped:
        return Skipped(
            tenant="t",
            schedule="s",
            generation=1,
            first=first,
            last=last,
            count=count,
            reason="late",
            recorded_at=0,
        )

    trigger = every("20s").bind("s", 0)
    assert row_counts(edges, row(40_000, 120_000, 5), trigger) == ([(0, 1), (1, 3), (2, 1)], True)
    assert row_counts(edges, row(40_000, 40_000, 1), None) == ([(0, 1)], True)
    assert row_counts(edges, row(-40_000, -40_000, 1), None) == ([], True)
    # Of an earlier trigger: as if they were even.
    assert row_counts(edges, row(0, 119_999, 10), None) == ([(0, 5), (1, 5)], False)
    assert row_counts(edges, row(0, 59_999, 10), None) == ([(0, 10)], True)
    # A row that leaves out ticks.
    assert row_counts(edges, row(40_000, 120_000, 3), trigger)[1] is False
