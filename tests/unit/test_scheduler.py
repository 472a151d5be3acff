"""The scheduler in virtual time: schedules fire, catch up, are paused, moved and changed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenbeat import (
    InvalidValue,
    RunContext,
    RunExists,
    ScheduleExists,
    ScheduleNotFound,
    Scheduler,
    at,
    cron,
    every,
)
from evenbeat.testing import VirtualScheduler
from tests.unit import virtual_time
from tests.unit.virtual_time import minute, minutes, ticks

calls = virtual_time.calls


# -- firing --------------------------------------------------------------------------------------------------


def test_a_decorated_schedule_fires_at_its_ticks(scheduler: VirtualScheduler) -> None:
    seen = []

    @scheduler.task(schedule=cron("0 9 * * mon-fri", tz="Europe/Berlin"))
    def digest(run: RunContext) -> None:
        seen.append((run.scheduled_at, scheduler.now))

    runs = scheduler.travel("+5d")
    expected = [datetime(2026, 3, day, 8, tzinfo=UTC) for day in (2, 3, 4, 5, 6)]
    assert [run.tick for run in runs] == expected
    assert seen == [(tick, tick) for tick in expected]
    assert {run.lateness for run in runs} == {timedelta(0)}


def test_an_interval_keeps_its_phase(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.travel("+7m")
    scheduler.schedules.add("beat", every("10m"), "work")
    assert ticks(scheduler.travel("+35m")) == [17, 27, 37]


def test_a_schedule_begins_at_its_start(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", cron("*/10 * * * *"), "work", start_at=minute(25))
    assert ticks(scheduler.travel("+50m")) == [30, 40, 50]


@pytest.mark.parametrize("make", ["add", "declare"])
def test_the_phase_of_an_interval_follows_its_start(
    scheduler: VirtualScheduler, calls: list[Any], make: str
) -> None:
    getattr(scheduler.schedules, make)("beat", every("10m"), "work", start_at=minute(25))
    assert minutes(scheduler.schedules.next_run("beat")) == 25
    assert ticks(scheduler.travel("+50m")) == [25, 35, 45]


def test_an_interval_with_a_start_of_its_own_keeps_its_phase_from_start_at_on(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m", start=minute(3)), "work", start_at=minute(25))
    assert ticks(scheduler.travel("+50m")) == [33, 43]


def test_an_interval_that_was_to_start_in_the_past_has_its_phase(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", start_at=minute(-7))
    assert ticks(scheduler.travel("+25m")) == [3, 13, 23]


def test_run_now_is_one_run_beside_the_ticks(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", run_now=True)
    (first,) = scheduler.run_pending()
    assert (first.tick, first.cause) == (None, "run_now")
    assert ticks(scheduler.travel("+10m")) == [10]


def test_a_one_shot_runs_once_and_is_finished(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("once", at(minute(30)), "work")
    assert ticks(scheduler.travel("+3d")) == [30]
    schedule = scheduler.schedules.get("once")
    assert (schedule.state, schedule.next_run) == ("finished", None)


def test_a_one_shot_in_the_past_is_due_at_once(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("once", at(minute(-60)), "work")
    (run,) = scheduler.run_pending()
    assert (minutes(run.tick), minutes(run.started_at)) == (-60, 0)


def test_spread_delays_by_the_name_and_keeps_the_tick(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", spread="5m")
    runs = scheduler.travel("+36m")
    assert ticks(runs) == [10, 20, 30]
    (delay,) = {(run.scheduled_at - run.tick).total_seconds() for run in runs if run.tick is not None}
    assert 0 < delay < 300
    assert {run.lateness for run in runs} == {timedelta(0)}
    beat = scheduler.schedules.get("beat")
    assert (beat.spread_delay, beat.next_run) == (
        timedelta(seconds=delay),
        minute(40) + timedelta(seconds=delay),
    )
    assert scheduler.schedules.preview("beat", 1) == [minute(40)]


def test_a_result_is_kept_and_an_async_task_is_awaited(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    async def double(value: int) -> int:
        await asyncio.sleep(0)
        return value * 2

    scheduler.enqueue(double, {"value": 21})
    assert [run.result for run in scheduler.run_pending()] == [42]


# -- catching up ---------------------------------------------------------------------------------------------


def test_after_an_outage_the_latest_tick_stands_for_the_missed_ones(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.down_for("55m")
    (run,) = scheduler.run_pending()
    assert (minutes(run.tick), minutes(run.started_at), run.coalesced) == (50, 55, 4)
    (row,) = scheduler.schedules.skipped("beat")
    assert (row.count, row.reason, row.run) == (4, "coalesced", run.id)
    assert ticks(scheduler.travel("+10m")) == [60]


def test_all_missed_ticks_run_if_that_is_wanted(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", catch_up="all", catch_up_limit=3)
    scheduler.down_for("55m")
    assert ticks(scheduler.run_pending()) == [30, 40, 50]
    (row,) = scheduler.schedules.skipped("beat")
    assert (row.count, row.reason) == (2, "limit")


def test_late_ticks_are_skipped_if_that_is_wanted(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", catch_up="skip", grace="6m")
    scheduler.down_for("55m")
    assert ticks(scheduler.run_pending()) == [50]
    scheduler.down_for("12m")
    assert scheduler.run_pending() == []


# -- pausing and moving --------------------------------------------------------------------------------------


def test_a_paused_schedule_does_not_fire_until_it_is_resumed(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    paused = scheduler.schedules.pause("beat", "maintenance")
    assert (paused.state, paused.pause_note) == ("paused", "maintenance")
    assert scheduler.schedules.next_run("beat") is None
    assert scheduler.travel("+35m") == []
    assert scheduler.schedules.resume("beat").state == "active"
    assert scheduler.schedules.next_run("beat") == minute(40)
    assert ticks(scheduler.travel("+10m")) == [40]
    (row,) = scheduler.schedules.skipped("beat")
    assert (minutes(row.first), minutes(row.last), row.count, row.reason) == (10, 30, 3, "paused")


def test_a_pause_with_an_end_ends_by_itself(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.pause("beat", until=minute(25))
    assert ticks(scheduler.travel("+40m")) == [30, 40]
    assert scheduler.schedules.get("beat").state == "active"


def test_during_a_pause_with_an_end_the_next_run_is_the_first_after_it(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.add("once", at(minute(10)), "work")
    for name in ("beat", "once"):
        scheduler.schedules.pause(name, until=minute(30))
    assert scheduler.schedules.next_run("beat") == scheduler.schedules.get("beat").next_run == minute(30)
    assert scheduler.schedules.preview("beat", 2) == [minute(30), minute(40)]
    assert scheduler.schedules.next_run("once") is None
    assert scheduler.schedules.preview("once") == []
    assert ticks(scheduler.travel("+45m")) == [30, 40]
    assert scheduler.schedules.get("once").state == "finished"


def test_a_note_that_no_store_can_hold_is_refused(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    with pytest.raises(InvalidValue, match="note 3 is not a text"):
        scheduler.schedules.pause("beat", 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="lone surrogate"):
        scheduler.schedules.pause("beat", "\udc80")
    with pytest.raises(InvalidValue, match="description"):
        scheduler.schedules.update("beat", description=3)  # type: ignore[arg-type]
    assert scheduler.schedules.get("beat").state == "active"


def test_pausing_and_resuming_twice_does_no_harm(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.resume("beat")
    scheduler.schedules.pause("beat")
    scheduler.schedules.pause("beat")
    scheduler.schedules.resume("beat")
    assert ticks(scheduler.travel("+10m")) == [10]


@pytest.mark.parametrize(("moved_to", "expected"), [(15, [15, 20, 30]), (5, [5, 20, 30]), (25, [25, 30])])
def test_reschedule_moves_the_next_tick_and_it_alone(
    scheduler: VirtualScheduler, calls: list[Any], moved_to: int, expected: list[float]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.reschedule("beat", minute(moved_to))
    assert ticks(scheduler.travel("+30m")) == expected


def test_a_trigger_by_hand_leaves_the_next_tick_where_it_is(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", {"value": 1})
    scheduler.travel("+5m")
    scheduler.schedules.run_now("beat")
    scheduler.schedules.run_now("beat", {"value": 7})
    runs = scheduler.travel("+5m")
    assert [run.cause for run in runs] == ["run_now", "run_now", "tick"]
    assert calls == [1, 7, 1]


def test_a_trigger_with_an_id_happens_once(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    assert scheduler.schedules.run_now("beat", id="mine").id == "mine"
    scheduler.run_pending()
    assert scheduler.schedules.run_now("beat", id="mine").state == "succeeded"
    assert scheduler.run_pending() == []


def test_a_trigger_takes_the_payload_of_a_schedule_whose_task_needs_one(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def greet(name: str) -> str:
        return f"hello {name}"

    scheduler.schedules.add("greeting", every("1d"), greet, {"name": "world"})
    scheduler.schedules.run_now("greeting")
    assert [run.result for run in scheduler.run_pending()] == ["hello world"]


# -- declaring and changing ----------------------------------------------------------------------------------


def test_a_name_can_be_added_once(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    with pytest.raises(ScheduleExists):
        scheduler.schedules.add("beat", every("10m"), "work")


def test_declaring_the_same_again_keeps_the_next_tick_and_the_pause(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    declare = functools.partial(scheduler.schedules.declare, "beat", task="work")
    made = declare(trigger=every("10m"))
    scheduler.travel("+5m")
    assert declare(trigger="every 600s") == made
    scheduler.schedules.pause("beat")
    again = declare(trigger=every("10m"), description="now with words")
    assert (again.state, again.next_run, again.description) == ("paused", minute(10), "now with words")


def test_declaring_another_trigger_begins_anew(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.declare("beat", every("10m"), "work")
    scheduler.travel("+5m")
    scheduler.schedules.declare("beat", every("3m"), "work")
    assert ticks(scheduler.travel("+7m")) == [8, 11]


def test_update_changes_the_given_fields_and_nothing_else(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work", {"value": 1}, retries=3)
    scheduler.schedules.pause("beat", "for now")
    changed = scheduler.schedules.update("beat", payload={"value": 5}, timeout="1m")
    assert (changed.payload, changed.state, changed.pause_note) == ({"value": 5}, "paused", "for now")
    assert (changed.retries, changed.timeout) == (3, timedelta(minutes=1))
    scheduler.schedules.resume("beat")
    scheduler.travel("+10m")
    assert calls == [5]


def test_update_to_another_task_checks_the_payload_that_stays(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def greet(name: str) -> str:
        return f"hello {name}"

    @scheduler.task
    def wave(name: str) -> str:
        return f"{name}!"

    @scheduler.task
    def count(number: int) -> int:
        return number

    scheduler.schedules.add("daily", every("1d"), greet, {"name": "world"})
    scheduler.schedules.update("daily", task=wave)
    with pytest.raises(InvalidValue, match="number"):
        scheduler.schedules.update("daily", task=count)
    assert [run.result for run in scheduler.travel("+1d")] == ["world!"]
    scheduler.schedules.update("daily", task=count.bind(number=3))
    assert [run.result for run in scheduler.travel("+1d")] == [3]


def test_a_deleted_schedule_is_gone_and_its_name_is_free(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.travel("+10m")
    scheduler.schedules.delete("beat")
    for act in (scheduler.schedules.get, scheduler.schedules.delete, scheduler.schedules.pause):
        with pytest.raises(ScheduleNotFound):
            act("beat")
    assert scheduler.travel("+20m") == []
    scheduler.schedules.add("beat", every("20m"), "work")
    assert ticks(scheduler.travel("+20m")) == [50]
    assert len(scheduler.runs.list(schedule="beat")) == 2
    assert scheduler.schedules.stats("beat").run_count == 2


def test_tenants_are_apart(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    for tenant, value in (("acme", 1), ("umbrella", 2)):
        scheduler.schedules.add("beat", every("10m"), "work", {"value": value}, tenant=tenant)
    scheduler.schedules.pause("beat", tenant="acme")
    assert {run.tenant for run in scheduler.travel("+10m")} == {"umbrella"}
    assert calls == [2]
    with pytest.raises(ScheduleNotFound):
        scheduler.schedules.get("beat")
    assert scheduler.schedules.list() == []
    assert [s.tenant for s in scheduler.schedules.list(all_tenants=True)] == ["acme", "umbrella"]
    assert scheduler.runs.list(tenant="acme") == []
    assert scheduler.runs.count(tenant="umbrella") == {"succeeded": 1}


def test_the_id_of_a_run_of_another_tenant_is_taken(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.enqueue("work", {"value": 1}, id="order-7", tenant="acme")
    scheduler.schedules.add("beat", every("10m"), "work")
    again: list[Callable[[], object]] = [
        lambda: scheduler.enqueue("work", {"value": 2}, id="order-7"),
        lambda: scheduler.enqueue_many([("work", None), ("work", None)], ids=["order-8", "order-7"]),
        lambda: scheduler.schedules.run_now("beat", id="order-7"),
    ]
    for attempt in again:
        with pytest.raises(RunExists, match="another tenant"):
            attempt()
    assert scheduler.enqueue_many([("work", None)], ids=["order-7"], tenant="acme") == ["order-7"]


def test_the_id_of_a_run_of_another_task_is_taken(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.enqueue("work", {"value": 1}, id="order-7")
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.add("other", every("10m"), "work")
    scheduler.schedules.run_now("beat", id="by-hand")
    again: list[tuple[str, Callable[[], object]]] = [
        ('task "work"', lambda: scheduler.enqueue("fails", id="order-7")),
        ('task "work"', lambda: scheduler.enqueue_many([("fails", None)], ids=["order-7"])),
        ('task "work"', lambda: scheduler.schedules.run_now("beat", id="order-7")),
        ('schedule "beat"', lambda: scheduler.schedules.run_now("other", id="by-hand")),
        ('schedule "beat"', lambda: scheduler.enqueue("work", id="by-hand")),
    ]
    for whose, attempt in again:
        with pytest.raises(RunExists, match=f"is taken by a run of {whose}, so nothing was added") as taken:
            attempt()
        assert taken.value.run in ("order-7", "by-hand")
        assert taken.value.whose == whose
    assert scheduler.schedules.run_now("beat", id="by-hand").schedule == "beat"
    assert len(scheduler.runs.list()) == 2


def test_a_task_and_its_schedule_may_have_dots_and_colons_in_their_name(scheduler: VirtualScheduler) -> None:
    @scheduler.task(name="reports.nightly:eu", schedule=every("10m"))
    def nightly() -> str:
        return "done"

    (run,) = scheduler.travel("+10m")
    assert (run.task, run.schedule, run.result) == ("reports.nightly:eu", "reports.nightly:eu", "done")
    assert run.id == f"default/reports.nightly:eu/1/{int(run.scheduled_at.timestamp() * 1000)}"
    assert scheduler.schedules.preview("reports.nightly:eu", 1) == [minute(20)]
    assert scheduler.schedules.preview("every 10m", 1) == [minute(20)]
    assert scheduler.runs.get(run.id) == run


@pytest.mark.parametrize("name", ["a/b", "größe", ".", "..", ".a", ":a", "x" * 129, "a@b"])
def test_a_task_whose_schedule_can_not_have_its_name_is_refused_by_the_decorator(name: str) -> None:
    app = Scheduler("memory://")
    with pytest.raises(InvalidValue, match=r"has a schedule, which can't have its name; name it otherwise"):
        app.task(name=name, schedule="@daily")(lambda: None)
    assert app.task(name=name)(lambda: None).name == name  # without a schedule, nobody minds


def test_preview_shows_the_ticks_that_come(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.schedules.reschedule("beat", minute(5))
    promised = scheduler.schedules.preview("beat", 3)
    assert [run.tick for run in scheduler.travel("+30m")] == promised
    assert scheduler.schedules.preview(cron("0 9 * * *"), 1) == [datetime(2026, 3, 2, 9, tzinfo=UTC)]
