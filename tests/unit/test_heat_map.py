"""The heat map of a schedule: each tick and run is in the cell of its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenbeat import DamagedSchedule, HeatCell, HeatMap, InvalidValue, ScheduleNotFound, UnknownZone, every
from evenbeat.app import heat_map
from evenbeat.core.instants import to_ms
from evenbeat.core.records import Record
from evenbeat.node.pruner import Pruner
from evenbeat.rules import rollups
from evenbeat.testing import VirtualScheduler, virtual
from tests.lengths import examples

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    return prepared(scheduler)


def prepared(app: VirtualScheduler) -> VirtualScheduler:
    app.task(name="work")(lambda: None)

    @app.task(name="breaks")
    def breaks() -> None:
        raise ValueError("no")

    return app


def cells(app: VirtualScheduler, *args: Any, **options: Any) -> HeatMap:
    return app.schedules.cells("beat", *args, **options)


def counts(found: HeatMap, *names: str) -> dict[str, tuple[int, ...]]:
    """Return the counts of the cells that have any, by the local time of the cell."""
    rows = {f"{cell.at:%d %H}": tuple(getattr(cell, name) for name in names) for cell in found.cells}
    return {at: row for at, row in rows.items() if any(row)}


def total(found: HeatMap) -> dict[str, int]:
    names = [name for name in HeatCell.__struct_fields__ if name not in ("at", "end")]
    return {name: sum(getattr(cell, name) for cell in found.cells) for name in names}


def test_past_ticks_have_fired_and_coming_ones_are_planned(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.travel("2h30m")
    found = cells(app, "4h", "3h")
    assert counts(found, "fired", "succeeded", "planned") == {
        "01 12": (2, 2, 0),
        "01 13": (3, 3, 0),
        "01 14": (2, 2, 1),
        "01 15": (0, 0, 3),
        "01 16": (0, 0, 3),
        "01 17": (0, 0, 3),
    }
    assert (found.since, found.until, found.now) == (NOON - 2 * HOUR, NOON + 6 * HOUR, NOON + 2.5 * HOUR)
    assert (found.zone, found.by, found.is_exact, found.schedule) == ("UTC", "hour", True, "beat")
    assert len(found.cells) == 8
    assert found == asyncio.run(app.schedules.acells("beat", "4h", "3h"))


def test_a_week_back_and_two_days_ahead_are_the_default(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    found = cells(app)
    assert (found.since, found.until) == (NOON - timedelta(days=7), NOON + timedelta(days=2))


def test_runs_are_counted_by_state_and_those_by_hand_do_not_fire(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "breaks")
    app.travel("2h")
    app.schedules.update("beat", task="work")
    app.travel("10m")
    app.schedules.run_now("beat")
    app.run_pending()
    app.schedules.run_now("beat")
    assert counts(cells(app, "3h", "30m"), "fired", "succeeded", "failed", "running") == {
        "01 13": (1, 0, 1, 0),
        "01 14": (1, 1, 1, 1),
    }


def test_missed_ticks_are_in_their_own_cells(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.down_for("3h")
    # Due, and not fired yet.
    assert counts(cells(app, "3h", "1m"), "fired", "coalesced", "planned") == {
        "01 12": (0, 0, 2),
        "01 13": (0, 0, 3),
        "01 14": (0, 0, 3),
        "01 15": (0, 0, 3),
    }
    app.run_pending()
    assert counts(cells(app, "3h", "1m"), "fired", "coalesced", "planned") == {
        "01 12": (0, 2, 0),
        "01 13": (0, 3, 0),
        "01 14": (0, 3, 0),
        "01 15": (1, 0, 2),
    }


def test_a_late_run_is_in_the_cell_of_its_tick(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("30m"), "work", catch_up="all", overlap="allow")
    app.down_for("2h")
    app.run_pending()
    found = counts(cells(app, "3h", "1m"), "fired", "succeeded")
    assert found == {"01 12": (1, 1), "01 13": (2, 2), "01 14": (1, 1)}


def test_a_pause_has_no_planned_ticks_until_it_ends(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.schedules.pause("beat", until="2h10m")
    assert counts(cells(app, "1h", "4h"), "planned") == {"01 14": (2,), "01 15": (3,)}
    app.schedules.pause("beat")
    assert counts(cells(app, "1h", "4h"), "planned") == {}
    app.travel("90m")
    assert counts(cells(app, "2h", "4h"), "planned", "skipped") == {}
    app.schedules.resume("beat")
    assert counts(cells(app, "2h", "90m"), "planned", "skipped") == {
        "01 12": (0, 2),
        "01 13": (1, 2),
        "01 14": (3, 0),
    }


def test_ticks_of_a_pause_are_paused_until_it_ends(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.travel("30m")
    app.schedules.pause("beat", until="2h")  # 12:30 to 14:30
    app.travel("1h")
    names = ("fired", "skipped", "paused", "planned")
    assert counts(cells(app, "2h", "2h"), *names) == {
        "01 12": (1, 0, 1, 0),
        "01 13": (0, 0, 3, 0),
        "01 14": (0, 0, 2, 1),
        "01 15": (0, 0, 0, 3),
    }
    app.travel("65m")
    assert counts(cells(app, "3h", "30m"), *names) == {
        "01 12": (1, 1, 0, 0),
        "01 13": (0, 3, 0, 0),
        "01 14": (0, 2, 0, 1),
        "01 15": (0, 0, 0, 3),
    }


def test_a_pause_without_an_end_has_all_ticks_to_come(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("30m"), "work")
    app.schedules.pause("beat")
    app.travel("1h")
    assert counts(cells(app, "2h", "90m"), "paused", "planned", "skipped") == {
        "01 12": (1, 0, 0),
        "01 13": (2, 0, 0),
        "01 14": (2, 0, 0),
    }


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["every 7m", "*/20 * * * *", "every 50m", "7 14 * * *"]),
    st.lists(st.sampled_from(["later", "sooner", "travel", "pause"]), max_size=3),
    st.integers(0, 200),
    st.integers(1, 400),
    st.integers(0, 400),
)
def test_paused_ticks_are_those_that_the_end_of_the_pause_records(
    trigger: str, steps: list[str], before: int, length: int, passed: int
) -> None:
    with virtual() as scheduler:
        app = prepared(scheduler)
        app.schedules.add("beat", trigger, "work")
        for step in steps:
            _take(app, step)
        app.travel(f"{before}m") if before else None
        app.schedules.pause("beat", until=f"{length}m")
        earlier = by_cell(cells(app, "1d", "1d"), "skipped")
        if 0 < passed < length:
            app.travel(f"{passed}m")
        expected = by_cell(cells(app, "2d", "1d"), "paused")
        # The pause ends, and no tick is due by then: each tick has a record or is to come.
        app.travel(f"{length + 1}m")
        found = by_cell(cells(app, "2d", "1d"), "skipped")
        assert {at: number - earlier.get(at, 0) for at, number in found.items()} == {
            at: expected.get(at, 0) for at in found
        }
        assert sum(expected.values()) == sum(found.values()) - sum(earlier.values())
        assert app.schedules.get("beat").state == "active"
        assert not total(cells(app, "2d", "1d"))["paused"]


def by_cell(found: HeatMap, name: str) -> dict[datetime, int]:
    return {cell.at: number for cell in found.cells if (number := getattr(cell, name))}


def test_a_finished_and_a_deleted_schedule_keep_their_past(app: VirtualScheduler) -> None:
    app.schedules.add("beat", "every 20m until=2026-03-01T13:00:00Z", "work")
    app.travel("2h")
    assert app.schedules.get("beat").state == "finished"
    assert counts(cells(app, "3h", "3h"), "fired", "planned") == {"01 12": (2, 0), "01 13": (1, 0)}
    app.schedules.delete("beat")
    assert counts(cells(app, "3h", "3h"), "fired", "planned") == {"01 12": (2, 0), "01 13": (1, 0)}


def test_a_moved_tick_is_where_it_was_moved(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    app.schedules.reschedule("beat", "3h30m")
    found = counts(cells(app, "1h", "6h"), "planned", "skipped")
    # Those before it were passed over.
    assert found == {"01 13": (0, 1), "01 14": (0, 1), "01 15": (1, 1), "01 16": (1, 0), "01 17": (1, 0)}
    app.schedules.reschedule("beat", "30m")
    assert counts(cells(app, "1h", "6h"), "planned")["01 12"] == (1,)
    app.travel("45m")
    assert counts(cells(app, "1h", "1m"), "fired") == {"01 12": (1,)}


def test_cells_follow_the_zone_of_the_trigger_or_the_one_asked_for(app: VirtualScheduler) -> None:
    app.schedules.add("beat", "30 20 * * * tz=Asia/Kolkata", "work")
    app.travel("1d")
    assert cells(app).zone == "Asia/Kolkata"
    assert counts(cells(app, "1d", "1d"), "fired", "planned") == {"01 20": (1, 0), "02 20": (0, 1)}
    assert counts(cells(app, "1d", "1d", tz="Europe/Berlin"), "fired") == {"01 16": (1,)}
    assert cells(app, "1d", "1m", by="day", tz="Asia/Tokyo").since.isoformat() == "2026-03-01T00:00:00+09:00"
    with pytest.raises(UnknownZone):
        cells(app, tz="Asia/Kolkatta")


@pytest.mark.evenbeat(now="2026-10-23T22:00:00Z")
def test_the_night_of_a_clock_change_has_each_hour_once(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("30m"), "work", start_at="2026-10-23T22:30:00Z")
    app.travel("3d")
    days = cells(app, "3d", "1m", by="day", tz="Europe/Berlin").cells
    # From 00:30 of the first day to 23:00 of the last one.
    assert [cell.fired for cell in days] == [47, 50, 47]
    hours = cells(app, "3d", "1m", tz="Europe/Berlin").cells
    assert [cell.fired for cell in hours if cell.at.day == 25] == [2] * 25


def test_a_change_of_the_trigger_keeps_what_happened_before(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.travel("1h5m")
    app.schedules.pause("beat")
    app.travel("30m")
    app.schedules.resume("beat")
    app.schedules.update("beat", trigger="0 * * * *")
    app.travel("1h")
    found = cells(app, "3h", "1m")
    assert counts(found, "fired", "skipped") == {"01 12": (5, 0), "01 13": (1, 3), "01 14": (1, 0)}
    assert found.is_exact


def test_skipped_ticks_of_an_earlier_trigger_in_several_cells_are_estimated(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("10m"), "work")
    app.schedules.pause("beat")
    app.travel("2h")
    app.schedules.resume("beat")
    app.schedules.update("beat", trigger="0 * * * *")
    app.travel("2h")
    found = cells(app, "4h", "1m")
    assert (total(found)["skipped"], found.is_exact) == (12, False)
    # A day has all of them, so that nothing is estimated.
    assert cells(app, "4h", "1m", by="day").is_exact


def test_history_that_was_purged_is_named(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    app.travel("2d")
    assert cells(app, "1d").counted_from == NOON + timedelta(days=1)
    Pruner(app.store, retention=3_600_000 * 5).step(to_ms(app.now))
    found = cells(app, "2d", "1m")
    assert found.counted_from > NOON + timedelta(days=1, hours=18)
    assert found.is_exact


def test_more_ticks_than_can_be_counted_come_from_the_figures(
    app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat_map, "MOST_TICKS", 10)
    app.schedules.add("beat", every("20m"), "work")
    app.travel("3h")
    assert cells(app, "4h", "1h").is_exact
    app.travel("2h")
    write_figures(app, NOON + HOUR, fired=7, succeeded=5, failed=1, cancelled=1, late=3, coalesced=2)
    found = cells(app, "6h", "2h", tz="Asia/Kolkata")
    assert not found.is_exact
    assert {cell.at.minute for cell in found.cells} == {30}, "hours of UTC"
    names = ("fired", "succeeded", "failed", "cancelled", "skipped", "coalesced")
    # Added to what the node of this test has written.
    assert counts(found, *names)["01 18"] == (3 + 7, 3 + 5, 1, 1, 3, 2)
    assert counts(found, "planned") == {"01 22": (2,), "01 23": (3,)}
    days = cells(app, "6h", "2h", by="day", tz="Asia/Kolkata")
    assert counts(days, "fired", "skipped") == {"01 00": (14 + 7, 3)}


def test_ticks_of_a_pause_are_bounded_too(app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat_map, "MOST_TICKS", 10)
    app.schedules.add("beat", every("20m"), "work")
    app.schedules.pause("beat")
    app.travel("5h")
    app.schedules.resume("beat")
    assert not cells(app, "6h", "1m").is_exact


def test_runs_by_hand_are_bounded_as_ticks_are(
    app: VirtualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat_map, "MOST_TICKS", 3)
    app.schedules.add("beat", every("1d"), "work")
    for number in range(4):
        assert cells(app, "1h").is_exact, number
        app.schedules.run_now("beat")
        app.run_pending()
    assert not cells(app, "1h").is_exact


def write_figures(app: VirtualScheduler, hour: datetime, **numbers: int) -> None:
    """Write what a node has counted in an hour."""
    tally = rollups.new_tally()
    for name, number in numbers.items():
        tally[rollups.SKIPPED[name] if name in rollups.SKIPPED else getattr(rollups, name.upper())] = number
    body = rollups.write_rollup(rollups.make_rollup({("default", "beat", "work"): tally}, written_at=0))
    key = rollups.rollup_key("hour", to_ms(hour), "n1")
    assert app.store.put_record(Record(kind="rollup", key=key, body=body))


@pytest.mark.parametrize(
    ("args", "options", "problem"),
    [
        (("1h", "2026-03-01T10:00Z"), {}, "is not after the start"),
        (("41d",), {}, 'since "41d" is more than 40d ago; give a later time, or by="day"'),
        (("7d", "32d"), {}, 'until "32d" is more than 31d ahead'),
        (("401d",), {"by": "day"}, "is more than 400d ago"),
        (("7d", "367d"), {"by": "day"}, "is more than 366d ahead"),
        ((), {"by": "week"}, "by"),
        (("+1h",), {}, "is in the future"),
    ],
)
def test_a_range_that_cannot_be_shown_is_refused(
    app: VirtualScheduler, args: tuple[str, ...], options: dict[str, str], problem: str
) -> None:
    app.schedules.add("beat", every("20m"), "work")
    with pytest.raises(InvalidValue, match=problem):
        cells(app, *args, **options)


def test_a_past_range_ends_where_it_was_asked_to(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.travel("3h")
    assert counts(cells(app, "3h", "2026-03-01T13:00:00Z"), "fired", "planned") == {"01 12": (2, 0)}


def test_an_unknown_and_an_unreadable_schedule_are_refused(app: VirtualScheduler) -> None:
    with pytest.raises(ScheduleNotFound):
        cells(app)
    app.schedules.add("beat", every("20m"), "work")
    rows = app.store._schedules  # type: ignore[attr-defined]
    rows["default", "beat"] = replace(rows["default", "beat"], damage="trigger: no")
    with pytest.raises(DamagedSchedule):
        cells(app)


STEPS = ["travel", "down", "pause", "resume", "run_now", "later", "sooner"]


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=8),
    st.sampled_from(["every 7m", "*/20 * * * *", "every 50m"]),
    st.sampled_from(["latest", "all"]),
)
def test_cells_say_the_same_as_the_account(steps: list[str], trigger: str, catch_up: Any) -> None:
    with virtual() as scheduler:
        app = prepared(scheduler)
        app.schedules.add("beat", trigger, "work", catch_up=catch_up, overlap="allow")
        for step in steps:
            _take(app, step)
        app.travel("4h")
        account, found = app.schedules.account("beat"), cells(app, "2d", "1m")
        sums = total(found)
        assert found.is_exact
        assert sums["fired"] == len([run for run in app.fired if run.cause == "tick"])
        assert sums["succeeded"] == sums["fired"] + steps.count("run_now")
        if not {"later", "sooner"} & set(steps):
            # A moved tick may stand for one of the trigger's own, or come in addition to them.
            skipped = sum(account.skipped.values())
            counted = (account.ran, account.coalesced, skipped)
            assert (sums["fired"], sums["coalesced"], sums["skipped"]) == counted


def _take(app: VirtualScheduler, step: str) -> None:
    steps: dict[str, Callable[[], object]] = {
        "travel": lambda: app.travel("75m"),
        "down": lambda: app.down_for("95m"),
        "pause": lambda: app.schedules.pause("beat"),
        "resume": lambda: app.schedules.resume("beat"),
        "run_now": lambda: app.schedules.run_now("beat"),
        "later": lambda: app.schedules.reschedule("beat", "3h11m"),
        "sooner": lambda: app.schedules.reschedule("beat", "1m"),
    }
    steps[step]()


def test_a_row_of_an_earlier_trigger_keeps_its_ticks_if_the_new_trigger_has_none_in_it(
    app: VirtualScheduler,
) -> None:
    app.schedules.add("beat", every("20m"), "work")
    app.schedules.reschedule("beat", "1h50m")  # passes over 12:20 to 13:40
    app.down_for("1s")
    app.schedules.update("beat", trigger=every("6h"))
    found = cells(app, "1h", "8h")
    assert total(found)["skipped"] == sum(row.count for row in app.schedules.skipped("beat")) == 5
    assert not found.is_exact


def test_a_moved_tick_that_is_passed_over_is_counted_once(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("90m"), "work")
    app.schedules.reschedule("beat", "66m")
    app.schedules.reschedule("beat", "5h")  # passes over 13:06, which stands for 13:30, 15:00 and 16:30
    found = cells(app, "1h", "8h")
    assert total(found)["skipped"] == sum(row.count for row in app.schedules.skipped("beat")) == 3
