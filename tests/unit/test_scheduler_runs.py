"""The runs of a scheduler in virtual time: overlap, failures, runs by hand."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest

from evenbeat import InvalidValue, RunContext, RunNotFound, RunRefused, Task, every
from evenbeat.testing import VirtualScheduler
from tests.unit import virtual_time
from tests.unit.virtual_time import NOON, minute, minutes, starts, ticks

calls = virtual_time.calls


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
