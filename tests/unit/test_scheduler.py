"""The scheduler that people hold, in virtual time: each call takes effect, at the instant it names."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import evenbeat
from evenbeat import (
    Event,
    InvalidValue,
    LockHeld,
    Run,
    RunContext,
    RunExists,
    RunNotFound,
    RunRefused,
    ScheduleExists,
    ScheduleNotFound,
    Scheduler,
    Task,
    at,
    cron,
    every,
)
from evenbeat.app.locks import Lock, this_process
from evenbeat.app.runs import Runs
from evenbeat.app.schedules import Schedules
from evenbeat.testing import VirtualScheduler, virtual

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  # where virtual time starts, a Sunday


def minutes(moment: datetime | None) -> float:
    """After noon."""
    assert moment is not None
    return (moment - NOON) / timedelta(minutes=1)


def ticks(runs: list[Run]) -> list[float]:
    return [minutes(run.tick) for run in runs]


def starts(runs: list[Run]) -> list[float]:
    return [minutes(run.started_at) for run in runs]


def minute(count: float) -> datetime:
    return NOON + timedelta(minutes=count)


@pytest.fixture
def calls(scheduler: VirtualScheduler) -> list[Any]:
    """What ``work`` was called with; ``work`` and ``fails`` are registered."""
    made: list[Any] = []

    @scheduler.task
    def work(value: int = 0) -> int:
        made.append(value)
        return value * 2

    @scheduler.task(retries=2, backoff="50m")
    def fails() -> None:
        made.append(scheduler.now)
        raise ValueError("not today")

    return made


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


# -- overlap -------------------------------------------------------------------------------------------------
# A run takes no virtual time: one that is active when the next tick comes is one that waits for a retry.


def test_overlap_skip_leaves_out_ticks_while_a_retry_waits(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("20m"), "fails", overlap="skip", retries=1)
    runs = scheduler.travel("+90m")
    # The retry comes 45 to 50 minutes after the first attempt.
    assert ticks(scheduler.fired) == [20, 80]
    assert [(run.state, run.attempt) for run in runs] == [("failed", 2)]
    assert [row.reason for row in scheduler.schedules.skipped("beat")] == ["overlap", "overlap"]


def test_overlap_queue_waits_with_one_run_for_all_that_came_due(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("20m"), "fails", overlap="queue", retries=1)
    scheduler.travel("+75m")
    first, second = scheduler.fired
    assert (first.state, second.state) == ("failed", "queued")
    assert (minutes(second.tick), second.coalesced) == (60, 1)
    assert second.started_at == first.finished_at


def test_overlap_queue_all_waits_with_each(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("20m"), "fails", overlap="queue_all", retries=1, backoff="30m")
    runs = scheduler.travel("+3h")
    assert ticks(runs) == [20 * (1 + n) for n in range(len(runs))]
    assert all(run.started_at == run.finished_at for run in runs)
    assert len(runs) >= 5


def test_overlap_cancel_running_ends_a_waiting_retry_at_once(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("20m"), "fails", overlap="cancel_running")
    runs = scheduler.travel("+60m")
    assert [(minutes(run.tick), run.state, minutes(run.finished_at)) for run in runs] == [
        (20, "cancelled", 40),
        (40, "cancelled", 60),
    ]
    # Nobody executes a run that was cancelled.
    assert [minutes(call) for call in calls] == [20, 40, 60]


def test_a_run_that_was_asked_to_stop_while_it_waited_is_not_begun(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    from evenbeat.core.records import RunRecord as Record

    due = int(NOON.timestamp() * 1000)
    record = Record(id="r", task="work", run_at=due, created_at=due, cancel_requested=True)
    scheduler.store.add_runs([record])
    events: list[str] = []
    scheduler.on_event(lambda event: events.append(event.kind))
    assert [run.state for run in scheduler.run_pending()] == ["cancelled"]
    assert calls == []
    assert events == ["cancelled", "idle"]


def test_max_concurrent_bounds_the_active_runs(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "fails", max_concurrent=2, retries=1)
    scheduler.travel("+45m")
    assert ticks(scheduler.fired) == [10, 20]
    with pytest.raises(RunRefused, match="max_concurrent=2"):
        scheduler.schedules.run_now("beat")


# -- failing -------------------------------------------------------------------------------------------------


def test_a_failed_run_is_tried_again_with_a_growing_wait(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.enqueue("fails", retries=3, backoff="10m", max_backoff="25m")
    (run,) = scheduler.travel("+2h")
    assert (run.state, run.attempt, run.failures) == ("failed", 4, 4)
    waits = [(after - before) / timedelta(minutes=1) for before, after in itertools.pairwise(calls)]
    # Up to a tenth less: what failed together does not come back together.
    for wait, longest in zip(waits, (10, 20, 25), strict=True):
        assert longest * 0.9 <= wait <= longest
    assert run.error is not None
    assert run.error.startswith("ValueError: not today")


def test_a_run_that_succeeds_on_the_second_try_has_succeeded(scheduler: VirtualScheduler) -> None:
    @scheduler.task(retries=1, backoff="10s")
    def flaky(run: RunContext) -> str:
        if run.attempt == 1:
            raise OSError("the network")
        return f"attempt {run.attempt}, {run.failures} failed"

    scheduler.enqueue(flaky)
    (run,) = scheduler.travel("+1m")
    assert (run.state, run.result, run.failures) == ("succeeded", "attempt 2, 1 failed", 1)


def test_a_failure_does_not_stop_its_schedule(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "fails", retries=0)
    assert ticks(scheduler.travel("+30m")) == [10, 20, 30]
    history = scheduler.schedules.stats("beat")
    assert (history.run_count, history.success_count, history.failure_count) == (3, 0, 3)
    assert history.last_failure == minute(30)


def test_a_failed_run_can_be_tried_again_by_hand(scheduler: VirtualScheduler) -> None:
    broken = [True]

    @scheduler.task
    def work() -> None:
        if broken:
            raise ValueError

    run = scheduler.enqueue(work)
    assert [run.state for run in scheduler.run_pending()] == ["failed"]
    broken.clear()
    scheduler.runs.retry(run.id)
    assert [run.state for run in scheduler.run_pending()] == ["succeeded"]
    with pytest.raises(RunRefused, match="succeeded"):
        scheduler.runs.retry(run.id)


def test_a_retry_by_hand_of_a_bounded_schedule_is_a_new_run(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    scheduler.schedules.add("beat", every("1h"), "fails", retries=0, overlap="skip")
    (failed,) = scheduler.travel("+1h")
    again = scheduler.runs.retry(failed.id)
    assert again.id != failed.id
    with pytest.raises(RunRefused):
        scheduler.runs.retry(failed.id)


@pytest.mark.parametrize("bound", [{"overlap": "skip"}, {"max_concurrent": 1}])
def test_a_retry_by_hand_keeps_to_a_policy_that_came_after_the_run(
    scheduler: VirtualScheduler, calls: list[Any], bound: dict[str, Any]
) -> None:
    scheduler.schedules.add("beat", every("1h"), "fails", retries=0)
    (failed,) = scheduler.travel("+1h")
    scheduler.schedules.update("beat", **bound)
    again = scheduler.runs.retry(failed.id)
    assert again.id != failed.id
    with pytest.raises(RunRefused, match="leave no room"):
        scheduler.runs.retry(failed.id)


def test_a_retry_by_hand_that_races_with_a_new_policy_keeps_to_it(
    scheduler: VirtualScheduler, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.schedules.add("beat", every("1h"), "fails", retries=0)
    (failed,) = scheduler.travel("+1h")
    settle = scheduler.store.settle_runs

    def changed_meanwhile(transitions: Any) -> list[bool]:
        monkeypatch.undo()
        scheduler.schedules.update("beat", overlap="skip")
        scheduler.schedules.run_now("beat")
        return settle(transitions)

    monkeypatch.setattr(scheduler.store, "settle_runs", changed_meanwhile)
    with pytest.raises(RunRefused, match="leave no room"):
        scheduler.runs.retry(failed.id)
    assert [run.state for run in scheduler.runs.list(schedule="beat")].count("queued") == 1


def test_a_retry_by_hand_goes_on_when_its_schedule_changed_in_other_ways(
    scheduler: VirtualScheduler, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.schedules.add("beat", every("1h"), "fails", retries=0)
    (failed,) = scheduler.travel("+1h")
    settle = scheduler.store.settle_runs

    def changed_meanwhile(transitions: Any) -> list[bool]:
        monkeypatch.undo()
        scheduler.schedules.update("beat", description="new")
        return settle(transitions)

    monkeypatch.setattr(scheduler.store, "settle_runs", changed_meanwhile)
    again = scheduler.runs.retry(failed.id)
    assert (again.id, again.state) == (failed.id, "queued")


def test_a_change_of_a_schedule_with_a_long_backlog_is_written_in_parts(
    scheduler: VirtualScheduler, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.schedules.add("beat", every("1s"), "work", catch_up="all", catch_up_limit=10_000)
    scheduler.down_for("1h")
    put, sizes = scheduler.store.put_schedules, list[int]()

    def watched(writes: Any) -> Any:
        sizes.append(sum(len(write.planned.runs) for write in writes))
        return put(writes)

    monkeypatch.setattr(scheduler.store, "put_schedules", watched)
    changed = scheduler.schedules.update("beat", description="new")
    assert changed.description == "new"
    assert sum(sizes) == 3_600
    assert max(sizes) <= 600
    assert scheduler.runs.count()["queued"] == 3_600


# -- enqueueing ----------------------------------------------------------------------------------------------


def test_a_run_starts_when_it_was_enqueued_for(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.enqueue("work", {"value": 3}, delay="30m")
    scheduler.enqueue("work", {"value": 2}, at=minute(20))
    scheduler.enqueue("work", {"value": 1})
    assert starts(scheduler.travel("+1h")) == [0, 20, 30]
    assert calls == [1, 2, 3]
    with pytest.raises(InvalidValue, match="delay and at"):
        scheduler.enqueue("work", delay="1m", at=minute(1))


def test_enqueueing_again_with_the_same_id_adds_nothing(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    first = scheduler.enqueue("work", {"value": 1}, id="order-7")
    assert scheduler.enqueue("work", {"value": 2}, id="order-7") == first
    scheduler.run_pending()
    assert scheduler.enqueue("work", {"value": 3}, id="order-7").state == "succeeded"
    scheduler.run_pending()
    assert calls == [1]


def test_many_runs_are_enqueued_in_order(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    work = scheduler.tasks.get("work")
    assert work is not None
    ids = scheduler.enqueue_many((work.bind(value=n) for n in range(1_200)), delay="1m")
    assert len(set(ids)) == 1_200
    assert [run.id for run in scheduler.travel("+1m")] == ids
    assert calls == list(range(1_200))
    pairs: list[tuple[str, dict[str, int]]] = [("work", {"value": 1}), ("work", {"value": 2})]
    assert scheduler.enqueue_many(pairs, ids=["a", "b"]) == ["a", "b"]
    with pytest.raises(InvalidValue, match="fewer ids"):
        scheduler.enqueue_many(pairs, ids=["a"])


def test_what_has_priority_goes_first(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    for value, priority in ((1, "low"), (2, "normal"), (3, "high"), (4, 9)):
        scheduler.enqueue("work", {"value": value}, priority=priority)
    scheduler.run_pending()
    assert calls == [4, 3, 2, 1]


def test_the_options_of_a_task_are_defaults_of_its_runs(scheduler: VirtualScheduler) -> None:
    @scheduler.task(retries=4, backoff="5s", queue="mail", priority="high")
    def send() -> None: ...

    run = scheduler.enqueue(send, retries=1)
    assert (run.retries, run.backoff, run.queue, run.priority) == (1, timedelta(seconds=5), "mail", 8)
    schedule = scheduler.schedules.add("daily", every("1d"), send, priority=0)
    assert (schedule.retries, schedule.queue, schedule.priority) == (4, "mail", 0)


def test_a_run_of_an_unknown_task_is_left_alone(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    run = scheduler.enqueue("elsewhere", {"anything": 1})
    assert scheduler.travel("+1d") == []
    assert scheduler.runs.get(run.id).state == "queued"


def test_a_queued_run_can_be_cancelled(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    run = scheduler.enqueue("work", delay="1h")
    assert scheduler.runs.cancel(run.id).state == "cancelled"
    assert scheduler.runs.cancel(run.id).state == "cancelled"
    assert scheduler.travel("+1d") == []
    with pytest.raises(RunNotFound):
        scheduler.runs.cancel("no-such-run")


def test_runs_are_found_by_what_they_are(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.enqueue("fails", retries=0)
    scheduler.travel("+20m")
    listed = scheduler.runs.list
    assert [run.task for run in listed()] == ["work", "work", "fails"]
    assert ticks(listed(schedule="beat")) == [20, 10]
    assert [run.task for run in listed(state="failed")] == ["fails"]
    assert listed(queue="other") == []
    assert len(listed(limit=1)) == 1


# -- tasks and their arguments -------------------------------------------------------------------------------


def test_a_payload_that_does_not_fit_is_refused_with_the_names(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def digest(team: str, urgent: bool = False) -> None: ...

    attempts: list[Callable[[], object]] = [
        lambda: scheduler.enqueue(digest, {"teem": "ops"}),
        lambda: scheduler.enqueue("digest"),
        lambda: scheduler.schedules.add("daily", every("1d"), digest),
        lambda: digest.bind(),  # type: ignore[call-arg]
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValue, match="team") as refused:
            attempt()
        assert refused.value.field == "payload"
        assert refused.value.hint == "it takes team, urgent"
    with pytest.raises(InvalidValue, match="already"):
        scheduler.enqueue(digest.bind("ops"), {"team": "ops"})
    with pytest.raises(InvalidValue, match="not an object"):
        scheduler.enqueue(digest, ["ops"])  # type: ignore[arg-type]


def test_bind_gives_positional_and_named_arguments_their_names(scheduler: VirtualScheduler) -> None:
    def function(run: RunContext, team: str, *, urgent: bool = False, **more: int) -> dict[str, Any]:
        return {"team": team, "urgent": urgent, **more}

    # mypy 2.4 does not take a run before **more out of the parameters.
    digest: Task[..., dict[str, Any]] = scheduler.task(name="digest")(function)
    call = digest.bind("ops", urgent=True, extra=1)
    assert (call.task, call.payload) == ("digest", {"team": "ops", "urgent": True, "extra": 1})
    scheduler.enqueue(call)
    (run,) = scheduler.run_pending()
    assert run.result == call.payload
    assert digest("ops", urgent=True, extra=1) == call.payload


def test_the_run_is_given_where_its_annotation_stands(scheduler: VirtualScheduler) -> None:
    # This module has ``from __future__ import annotations``: annotations are texts here.
    @contextlib.contextmanager
    def span() -> Iterator[None]:
        yield

    @scheduler.task
    def first(run: RunContext, value: int = 1) -> str:
        return f"{run.task} {value}"

    @scheduler.task
    def last(value: int = 1, *, current: evenbeat.RunContext) -> str:
        return f"{current.task} {value}"

    @scheduler.task
    @span()  # a wrapper of another module, where RunContext means nothing
    def wrapped(run: RunContext) -> str:
        return run.task

    # As in a module without it.
    def plain(run: Any) -> str:
        return str(run.task)

    plain.__annotations__["run"] = RunContext
    scheduler.task(plain)

    for name in ("first", "last", "wrapped", "plain"):
        scheduler.enqueue(name, id=name)
    results = {run.id: run.result for run in scheduler.run_pending()}
    assert results == {"first": "first 1", "last": "last 1", "wrapped": "wrapped", "plain": "plain"}


def test_what_a_run_says_of_itself(scheduler: VirtualScheduler) -> None:
    seen: list[RunContext] = []

    @scheduler.task
    def work(run: RunContext, value: int) -> None:
        run.log("by hand")
        logging.getLogger("myapp").warning("by logging")
        assert run.holds_lease()
        run.raise_if_cancelled()
        seen.append(run)

    scheduler.schedules.add("beat", every("10m"), work, {"value": 1}, tenant="acme", queue="q", priority=7)
    scheduler.down_for("25m")
    (info,) = scheduler.run_pending()
    (run,) = seen
    assert (run.id, run.task, run.tenant, run.schedule) == (info.id, "work", "acme", "beat")
    assert (run.tick, run.scheduled_at, run.coalesced, run.cause) == (minute(20), minute(20), 1, "tick")
    assert (run.attempt, run.attempt, run.failures) == (1, 1, 0)
    assert (run.payload, run.queue, run.priority) == ({"value": 1}, "q", 7)
    lines = scheduler.runs.logs(run.id, tenant="acme")
    assert [line.text for line in lines] == ["by hand", "WARNING myapp: by logging"]
    assert {line.at for line in lines} == {minute(25)}


def test_a_function_that_is_no_task_is_refused_with_what_to_do(scheduler: VirtualScheduler) -> None:
    with pytest.raises(InvalidValue, match=r"decorate the function with @app\.task"):
        scheduler.enqueue(minutes)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"is not registered"):
        scheduler.schedules.add("beat", every("1m"), minutes)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match=r"@app\.task\(name=…, schedule="):
        scheduler.task("digest")  # type: ignore[call-overload]


def test_two_functions_can_not_have_one_name(scheduler: VirtualScheduler) -> None:
    scheduler.task(name="work")(minutes)
    scheduler.task(name="work")(minutes)
    with pytest.raises(InvalidValue, match="registered already"):
        scheduler.task(name="work")(minute)


def test_a_misspelt_option_is_refused_with_those_there_are(scheduler: VirtualScheduler) -> None:
    refused: list[Callable[[], object]] = [
        lambda: scheduler.task(retry=3),  # type: ignore[call-overload]
        lambda: scheduler.enqueue("work", retry=3),  # type: ignore[call-arg]
        lambda: scheduler.schedules.add("beat", every("1m"), "work", retry=3),  # type: ignore[call-arg]
        lambda: Scheduler("memory://", threads=3),  # type: ignore[call-arg]
    ]
    for attempt in refused:
        with pytest.raises(InvalidValue, match="has no option") as error:
            attempt()
        assert re.search("did you mean (retries|thread_concurrency)", str(error.value))
    for theirs, ours in {
        "max_instances": "overlap",
        "misfire_grace_time": "grace",
        "jitter": "spread",
        "every": r"@app\.task\(schedule=every",
        "trigger": r"@app\.task\(schedule=",
    }.items():
        with pytest.raises(InvalidValue, match=f"did you mean .*{ours}"):
            scheduler.task(**{theirs: 1})  # type: ignore[call-overload]
    with pytest.raises(InvalidValue, match="there are retries, backoff"):
        scheduler.enqueue("work", zzz=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="there is none"):
        scheduler.task(overlap="skip")


# -- locks ---------------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_until_it_is_released_or_its_time_is_over(scheduler: VirtualScheduler) -> None:
    mine, theirs = scheduler.lock("import", ttl="1m"), scheduler.lock("import")
    with mine:
        with pytest.raises(LockHeld, match="import"), theirs:
            pass
        assert scheduler.lock("import", tenant="acme").try_acquire()
    assert theirs.try_acquire()
    scheduler.travel("+20s")
    assert theirs.extend()
    scheduler.travel("+29s")
    assert not mine.try_acquire()
    scheduler.travel("+1s")
    assert mine.try_acquire()
    assert not theirs.extend()
    assert not theirs.release()


def test_lock_held_names_the_holder_the_description_and_the_time(scheduler: VirtualScheduler) -> None:
    since = scheduler.now
    with scheduler.lock("import", ttl="1m", description="new prices"):
        scheduler.travel("+5s")
        with pytest.raises(LockHeld) as caught, scheduler.lock("import"):
            pass
    error = caught.value
    assert (error.holder, error.description, error.created_at) == (this_process(), "new prices", since)
    assert str(error) == (
        f'lock "import" of tenant "default" is held by {this_process()} '
        f'since {since.isoformat(timespec="seconds")}: "new prices"'
    )
    assert str(LockHeld("default", "import")) == 'lock "import" of tenant "default" is held by somebody'
    for wrong in ("x" * 1001, "\udc00", 7):
        with pytest.raises(InvalidValue, match="description"):
            scheduler.lock("import", description=wrong)  # type: ignore[arg-type]


def test_making_a_lock_opens_no_store() -> None:
    app = Scheduler("sqlite:////no/such/folder/evenbeat.db")
    lock = app.lock("import")
    with virtual(app), lock:
        assert not app.lock("import").try_acquire()


# -- hooks ---------------------------------------------------------------------------------------------------


def test_hooks_are_called_when_a_node_starts_and_stops() -> None:
    called: list[str] = []
    app = Scheduler("memory://", poll_interval="10ms")
    app.on_start(lambda: called.append("start"))
    app.on_stop(lambda: called.append("stop"))
    with app:
        assert app.is_running
        with pytest.raises(InvalidValue, match="started already"):
            app.start()
    app.stop()
    assert called == ["start", "stop"]
    assert not app.is_running


def test_on_idle_is_called_once_per_turn(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    idle: list[datetime] = []
    scheduler.on_idle(lambda: idle.append(scheduler.now))
    scheduler.run_pending()
    assert idle == []
    scheduler.enqueue("work")
    scheduler.enqueue("work")
    scheduler.enqueue("work", delay="10m")
    scheduler.travel("+1h")
    assert idle == [NOON, minute(10)]


def test_what_a_listener_enqueues_runs_in_the_same_stretch(
    scheduler: VirtualScheduler, calls: list[Any]
) -> None:
    left = [2, 1]
    scheduler.on_idle(lambda: scheduler.enqueue("work", {"value": left.pop()}) if left else None)
    scheduler.enqueue("work")
    scheduler.run_pending()
    assert calls == [0, 1, 2]


def test_on_error_is_called_with_the_run(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    received: list[Event] = []
    scheduler.on_error(received.append)
    scheduler.enqueue("work")
    scheduler.enqueue("fails", retries=1)
    scheduler.travel("+1h")
    assert [event.kind for event in received] == ["retrying", "failed"]
    assert received[0].run is not None
    assert (received[0].run.task, received[0].delay is not None) == ("fails", True)
    assert all(event.error is not None and "not today" in event.error for event in received)


def test_events_report_what_happens_and_a_listener_that_raises_harms_nobody(
    scheduler: VirtualScheduler, calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "evenbeat")
    received: list[tuple[str, int]] = []
    scheduler.on_event(lambda _: 1 / 0)
    scheduler.on_event(lambda event: received.append((event.kind, event.at.minute)))
    scheduler.schedules.add("beat", every("10m"), "work")
    scheduler.travel("+10m")
    scheduler.down_for("25m")
    scheduler.run_pending()
    assert received == [
        ("fired", 10),
        ("started", 10),
        ("succeeded", 10),
        ("idle", 10),
        ("fired", 35),
        ("skipped", 35),
        ("started", 35),
        ("succeeded", 35),
        ("idle", 35),
    ]
    assert "a listener raised" in caplog.text


def test_the_next_tick_is_not_moved_into_the_past(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("beat", every("1h"), "work")
    with pytest.raises(InvalidValue, match="is in the past; give a time to come, or run it now"):
        scheduler.schedules.reschedule("beat", "2020-01-01T00:00:00Z")


def test_a_name_that_was_copied_and_not_changed_is_refused(scheduler: VirtualScheduler) -> None:
    @scheduler.task
    def report() -> None: ...

    with pytest.raises(InvalidValue, match=r"registered already, by .*report \(line \d+\)"):

        @scheduler.task
        def report() -> None: ...


def test_a_task_with_a_schedule_and_arguments_that_nobody_gives_is_refused_where_it_stands(
    scheduler: VirtualScheduler,
) -> None:
    with pytest.raises(InvalidValue, match=r"gives it no arguments.*name.*; give them defaults, or"):

        @scheduler.task(schedule=every("1h"))
        def greet(name: str) -> None: ...


def test_no_way_of_adding_a_run_passes_the_overlap_policy_by(scheduler: VirtualScheduler) -> None:
    schedules, runs = scheduler.schedules, scheduler.runs
    schedules.add("a", every("1h"), "elsewhere")
    old = schedules.run_now("a")
    runs.cancel(old.id)
    schedules.update("a", overlap="skip")
    schedules.run_now("a")
    with pytest.raises(RunRefused, match="no room"):
        runs.retry(old.id)  # it was made before the policy was
    schedules.delete("a")
    with pytest.raises(RunRefused, match="run_now"):
        schedules.add("a", every("1h"), "elsewhere", overlap="skip", run_now=True)
    assert len(runs.list(schedule="a", state="queued")) == 1


def test_a_bound_of_many_runs_is_a_bound(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("b", every("1h"), "elsewhere", max_concurrent=501)
    for _ in range(501):
        scheduler.schedules.run_now("b")
    with pytest.raises(RunRefused, match="501 active"):
        scheduler.schedules.run_now("b")


def test_a_retry_by_way_of_the_schedule_has_the_payload_of_the_run(scheduler: VirtualScheduler) -> None:
    scheduler.schedules.add("c", every("1h"), "elsewhere", overlap="skip")
    run = scheduler.schedules.run_now("c")
    scheduler.runs.cancel(run.id)
    scheduler.schedules.update("c", payload={"new": 1})
    assert scheduler.runs.retry(run.id).payload is None


def test_what_a_run_is_meant_for_is_the_same_for_every_attempt(scheduler: VirtualScheduler) -> None:
    seen: list[tuple[int, object]] = []

    @scheduler.task(retries=2, backoff="1m")
    def fails(run: RunContext) -> None:
        seen.append((run.attempt, run.scheduled_at))
        raise ValueError("not today")

    due = scheduler.enqueue(fails, delay="10m").scheduled_at
    (run,) = scheduler.travel("+1h")
    assert seen == [(1, due), (2, due), (3, due)]
    assert (run.scheduled_at, run.lateness) == (due, None)


# -- twins ---------------------------------------------------------------------------------------------------

NOT_AWAITED = {
    # Nothing in them waits for a store,
    Scheduler: {"task", "lock", "on_start", "on_stop", "on_idle", "on_error", "on_event"}
    # they are for signals, for supervisors, or for tests.
    | {"run", "hurry", "node_settings", "stand_in"},
    Schedules: set(),
    Runs: set(),
    Lock: {"raise_if_lost"},
}


@pytest.mark.parametrize("kind", NOT_AWAITED, ids=lambda kind: kind.__name__)
def test_every_method_that_waits_has_a_twin_of_the_same_signature(kind: type) -> None:
    public = {name for name, value in vars(kind).items() if name[0] != "_" and callable(value)}
    twins = {name for name in public if inspect.iscoroutinefunction(getattr(kind, name))}
    assert {name.removeprefix("a") for name in twins} == public - twins - NOT_AWAITED[kind]
    for name in twins:
        original, awaited = getattr(kind, name.removeprefix("a")), getattr(kind, name)
        assert inspect.signature(awaited) == inspect.signature(original)
        assert awaited.__name__ == name
        assert awaited.__qualname__ == f"{kind.__name__}.{name}"


def test_twins_do_what_their_originals_do(scheduler: VirtualScheduler, calls: list[Any]) -> None:
    async def day() -> list[Run]:
        app = scheduler.app
        await app.schedules.aadd("beat", every("10m"), "work", {"value": 1})
        await app.schedules.apause("beat")
        await app.schedules.aresume("beat")
        run = await app.aenqueue("work", {"value": 2}, delay="5m")
        async with app.lock("import") as lock:
            assert not await app.lock("import").atry_acquire()
            assert await lock.aextend()
        done = await scheduler.atravel("+10m")
        assert (await app.runs.aget(run.id)).result == 4
        assert [s.name for s in await app.schedules.alist()] == ["beat"]
        with pytest.raises(ScheduleNotFound):
            await app.schedules.aget("other")
        return done

    assert starts(asyncio.run(day())) == [5, 10]
    assert calls == [2, 1]


def test_an_app_is_an_async_context_manager() -> None:
    async def live() -> str:
        app = Scheduler("memory://", poll_interval="10ms")

        @app.task
        async def work() -> str:
            return "done"

        async with app:
            run = await app.aenqueue(work)
            return str((await app.runs.ajoin(run.id, timeout="20s")).result)

    assert asyncio.run(live()) == "done"


# -- tasks that enqueue themselves ---------------------------------------------------------------------------


def test_a_task_enqueues_a_run_with_its_arguments(scheduler: VirtualScheduler) -> None:
    given: list[tuple[str, int]] = []

    @scheduler.task(queue="mail", retries=2)
    def send(to: str, copies: int = 1) -> None:
        given.append((to, copies))

    first = send.enqueue("anna", copies=3)
    second = asyncio.run(send.aenqueue(to="berta"))
    assert (first.task, first.payload, first.queue, first.retries) == (
        "send",
        {"to": "anna", "copies": 3},
        "mail",
        2,
    )
    assert scheduler.runs.get(second.id) == second
    scheduler.run_pending()
    assert given == [("anna", 3), ("berta", 1)]
    with pytest.raises(InvalidValue, match="does not fit"):
        send.enqueue()  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="has no scheduler"):
        Task(lambda: None, "alone").enqueue()


@pytest.mark.parametrize(
    ("kind", "wanted"), [("def", "async"), ("async def", "thread"), ("async def", "process"), ("def", "gpu")]
)
def test_an_executor_that_can_not_execute_the_function_is_refused(
    scheduler: VirtualScheduler, kind: str, wanted: str
) -> None:
    async def waits() -> None: ...

    def computes() -> None: ...

    with pytest.raises(InvalidValue, match="executor") as refused:
        scheduler.task(executor=wanted)(waits if kind == "async def" else computes)  # type: ignore[call-overload]
    assert (refused.value.field, refused.value.value) == ("executor", wanted)


def test_the_executor_defaults_to_what_fits_the_function(scheduler: VirtualScheduler) -> None:
    async def waits() -> None: ...

    def computes() -> None: ...

    assert scheduler.task(waits).executor == "async"
    assert scheduler.task(computes).executor == "thread"
    assert scheduler.task(name="a", executor="thread")(computes).executor == "thread"
    assert scheduler.task(name="b", executor="async")(waits).executor == "async"
    assert scheduler.task(name="c", executor="process")(computes).executor == "process"
