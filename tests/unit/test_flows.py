"""Runs of flows in virtual time: what runs, with which arguments, and how the flow ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import (
    Event,
    Flow,
    FlowRun,
    InvalidValue,
    RunContext,
    RunRefused,
    Scheduler,
    Task,
    at,
    every,
    on_success_of,
)
from evenbeat.app.unique_runs import UniqueRuns
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record, RunRecord
from evenbeat.doctor.flows import flow_findings
from evenbeat.node import flow_arguments
from evenbeat.node.presence import NodeInfo, live_nodes
from evenbeat.stores.base import RunQuery, Store
from evenbeat.tasks.task import ExecutorKind
from evenbeat.testing import VirtualScheduler, virtual
from tests.lengths import LONG


class Work:
    """Tasks that note what they were called with, and fail when they are told to."""

    def __init__(self, app: Scheduler) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.broken: set[str] = set()
        """Names whose next calls fail."""

        @app.task
        def make(run: RunContext, value: Any = None, more: Any = None) -> Any:
            self.note(run, value if more is None else (value, more))
            return value

        @app.task
        def double(run: RunContext, n: int) -> int:
            self.note(run, n)
            return 2 * n

        @app.task
        def collect(run: RunContext, parts: Any) -> Any:
            self.note(run, parts)
            return parts

        self.make: Task[..., Any] = make
        self.double: Task[..., Any] = double
        self.collect: Task[..., Any] = collect

    def note(self, run: RunContext, value: Any) -> None:
        assert run.flow is not None
        name = run.flow.step if run.flow.index is None else f"{run.flow.step}.{run.flow.index}"
        self.calls.append((name, value))
        if name in self.broken:
            raise ValueError(f"{name} is broken")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


@pytest.fixture
def time() -> Iterator[VirtualScheduler]:
    with virtual() as time:
        yield time


@pytest.fixture
def work(time: VirtualScheduler) -> Work:
    return Work(time.app)


def start(time: VirtualScheduler, flow: Flow[..., Any], **payload: Any) -> FlowRun:
    run = time.app.enqueue(flow, payload or None)
    time.run_pending()
    return time.app.flows.show(run.id)


def states(run: FlowRun) -> dict[str, str]:
    return {step.name: step.state for step in run.steps}


def diamond(time: VirtualScheduler, work: Work) -> Flow[..., Any]:
    @time.app.flow
    def diamond() -> Any:
        top = work.make.step(1, step_name="top")
        left = work.double.step(top, step_name="left")
        right = work.make.step(top, step_name="right")
        return work.collect.step([left, right], step_name="join")

    return diamond


def test_steps_get_the_results_of_those_before_them(time: VirtualScheduler, work: Work) -> None:
    run = start(time, diamond(time, work))
    assert (run.state, run.result, run.error) == ("succeeded", [2, 1], None)
    assert work.calls == [("top", 1), ("left", 1), ("right", 1), ("join", [2, 1])]
    assert set(states(run).values()) == {"succeeded"}
    join = time.app.runs.get(f"{run.id}~join")
    assert join.flow is not None
    assert (join.flow.id, join.flow.step, join.flow.index, join.kind) == (run.id, "join", None, "task")
    assert time.app.runs.get(run.id).kind == "flow"
    assert run.graph is not None
    assert run.graph.version == time.app.flows.get("diamond").version


def test_parameters_are_given_where_the_flow_starts_or_have_their_defaults(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.flow
    def flow(day: str, factor: int = 3) -> None:
        work.make.step({"of": [day]}, more=factor, step_name="a")

    start(time, flow, day="mon")
    start(time, flow, day="tue", factor=5)
    assert [value for _, value in work.calls] == [({"of": ["mon"]}, 3), ({"of": ["tue"]}, 5)]
    with pytest.raises(InvalidValue, match="missing a required argument: 'day'"):
        time.app.enqueue("flow")


def test_a_map_has_a_run_for_each_element_and_its_result_is_the_list_of_theirs(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.flow
    def flow(values: list[int]) -> Any:
        doubled = work.double.map(values)
        again = work.double.map(doubled, step_name="again")
        return work.collect.step(again)

    run = start(time, flow, values=[5, 7])
    assert run.result == [20, 28]
    assert work.calls[:2] == [("double.0", 5), ("double.1", 7)]
    (doubled, again, _) = run.steps
    assert (doubled.elements, doubled.elements_open, doubled.elements_failed) == (2, 0, 0)
    assert again.elements == 2
    assert start(time, flow, values=[]).result == []


@LONG
def test_a_map_over_ten_thousand_elements_is_joined_once(time: VirtualScheduler, work: Work) -> None:
    @time.app.flow
    def flow(values: list[int]) -> Any:
        return work.collect.step(work.double.map(values))

    run = time.app.enqueue(flow, {"values": list(range(10_000))})
    time.travel("1s", limit=20_000)
    ended = time.app.runs.get(run.id)
    assert (ended.state, ended.result) == ("succeeded", [2 * n for n in range(10_000)])
    assert work.names.count("collect") == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1}, "the result of step source is not a list"),
        (None, "the result of step source is not a list"),
        (list(range(10_001)), "has 10,001 elements, a map takes 10,000 at most"),
    ],
)
def test_a_map_over_what_is_not_a_list_fails_with_the_reason(
    time: VirtualScheduler, work: Work, value: Any, words: str
) -> None:
    @time.app.flow
    def flow() -> None:
        source = work.make.step(value, step_name="source")
        work.collect.step(work.double.map(source))

    run = start(time, flow)
    assert run.state == "failed"
    assert states(run) == {"source": "succeeded", "double": "failed", "collect": "not_run"}
    assert words in str(run.steps[1].reason)
    assert run.error is not None
    assert run.error.startswith("step double failed: ")


def test_what_depends_on_a_failed_step_does_not_run_and_other_branches_go_on(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.flow
    def flow() -> None:
        bad = work.make.step(step_name="bad")
        after = work.make.step(bad, step_name="after")
        work.make.step(step_name="later", after=[after])
        good = work.make.step(step_name="good")
        work.make.step(good, step_name="other")

    work.broken = {"bad"}
    run = start(time, flow)
    assert (run.state, run.error) == ("failed", "step bad failed: ValueError: bad is broken")
    assert states(run) == {
        "bad": "failed",
        "good": "succeeded",
        "after": "not_run",
        "other": "succeeded",
        "later": "not_run",
    }
    reasons = {step.name: step.reason for step in run.steps}
    assert (reasons["after"], reasons["later"]) == ("bad failed", "after did not run")
    assert run.steps[0].error is not None


def test_a_step_retries_by_the_policy_of_its_task(time: VirtualScheduler, work: Work) -> None:
    tries: list[int] = []

    @time.app.task(retries=2, backoff="1m")
    def flaky(run: RunContext) -> int:
        tries.append(run.attempt)
        if run.attempt < 3:
            raise ValueError("not yet")
        return run.attempt

    @time.app.flow
    def flow() -> Any:
        return work.collect.step(flaky.step())

    run = start(time, flow)
    assert (run.state, states(run)) == ("running", {"flaky": "queued", "collect": "waiting"})
    time.travel("10m")
    assert time.app.flows.show(run.id).result == 3
    assert tries == [1, 2, 3]


@pytest.mark.parametrize("is_broken", [False, True])
def test_conditions_decide_what_runs_after_a_failure(
    time: VirtualScheduler, work: Work, is_broken: bool
) -> None:
    @time.app.flow
    def flow() -> None:
        bad = work.make.step("x", step_name="bad")
        work.make.step(bad, step_name="next")
        work.make.step(bad, step_name="alarm", run_if="any_failed")
        clean = work.make.step(bad, step_name="clean", run_if="always")
        work.make.step(clean, step_name="after_clean")
        quiet = work.make.step(step_name="quiet", run_if="any_failed", after=["next"])
        work.make.step(step_name="after_quiet", after=[quiet])

    work.broken = {"bad"} if is_broken else set()
    run = start(time, flow)
    found = states(run)
    expected = {
        "bad": "failed" if is_broken else "succeeded",
        "next": "not_run" if is_broken else "succeeded",
        "alarm": "succeeded" if is_broken else "not_needed",
        "clean": "succeeded",
        "after_clean": "succeeded",
        "quiet": "succeeded" if is_broken else "not_needed",
        "after_quiet": "succeeded",
    }
    assert found == expected
    assert run.state == ("failed" if is_broken else "succeeded")
    # What a failed step would have returned is None.
    assert ("clean", None if is_broken else "x") in work.calls


def test_a_failed_element_fails_its_map_and_a_join_that_always_runs_gets_none_for_it(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.flow
    def flow() -> None:
        doubled = work.double.map([1, 2, 3])
        work.collect.step(doubled, step_name="strict")
        work.collect.step(doubled, step_name="lenient", run_if="always")

    work.broken = {"double.1"}
    run = start(time, flow)
    assert states(run) == {"double": "failed", "strict": "not_run", "lenient": "succeeded"}
    assert ("lenient", [2, None, 6]) in work.calls
    assert run.steps[0].reason == "1 of 3 elements failed (first: 1)"
    assert run.error == "element 1 of step double failed: ValueError: double.1 is broken"


def test_resume_runs_again_what_failed_and_what_came_after_it(time: VirtualScheduler, work: Work) -> None:
    @time.app.flow
    def flow() -> Any:
        top = work.make.step(1, step_name="top")
        doubled = work.double.map([1, 2, 3])
        mid = work.make.step(top, more=doubled, step_name="mid")
        work.make.step(step_name="cleanup", run_if="always", after=[mid])
        work.make.step(step_name="apart")
        return work.collect.step(mid)

    work.broken = {"double.1", "mid"}
    run = start(time, flow)
    assert run.state == "failed"
    assert work.names.count("cleanup") == 1
    work.broken = {"mid"}
    work.calls.clear()
    resumed = time.app.flows.resume(run.id)
    assert (resumed.state, resumed.error, resumed.finished_at) == ("queued", None, None)
    time.run_pending()
    assert work.names == ["double.1", "mid", "cleanup"]
    work.broken = set()
    work.calls.clear()
    time.app.flows.resume(run.id)
    time.run_pending()
    ended = time.app.flows.show(run.id)
    assert sorted(work.names) == ["cleanup", "collect", "mid"]
    assert ("mid", (1, [2, 4, 6])) in work.calls
    assert (ended.state, ended.result) == ("succeeded", 1)
    assert {step.name: step.round for step in ended.steps} == {
        "top": 1,
        "double": 1,
        "apart": 1,
        "mid": 2,
        "cleanup": 3,
        "collect": 1,
    }
    with pytest.raises(RunRefused, match="is succeeded; only a failed or cancelled flow can be resumed"):
        time.app.flows.resume(run.id)


def test_retry_runs_a_step_again_with_what_came_after_it(time: VirtualScheduler, work: Work) -> None:
    run = start(time, diamond(time, work))
    work.calls.clear()
    time.app.flows.retry(run.id, "left")
    time.run_pending()
    assert work.names == ["left", "join"]
    assert time.app.flows.show(run.id).state == "succeeded"
    with pytest.raises(InvalidValue, match="has no step"):
        time.app.flows.retry(run.id, "nothing")
    with pytest.raises(RunRefused, match="is a step of a flow: resume its flow"):
        time.app.runs.retry(f"{run.id}~left@2")


def test_the_retry_of_a_failed_flow_resumes_it(time: VirtualScheduler, work: Work) -> None:
    work.broken = {"left"}
    run = start(time, diamond(time, work))
    work.broken = set()
    work.calls.clear()
    assert time.app.runs.retry(run.id).state == "queued"
    time.run_pending()
    assert work.names == ["left", "join"]
    assert time.app.runs.get(run.id).state == "succeeded"


def test_a_flow_within_a_flow_is_a_step(time: VirtualScheduler, work: Work) -> None:
    @time.app.flow
    def inner(n: int) -> Any:
        return work.double.step(work.make.step(n))

    @time.app.flow
    def outer() -> Any:
        one = inner.step(n=4)
        many = inner.map([1, 2], step_name="many")
        return work.collect.step([one, many])

    work.broken = {"double"}
    run = start(time, outer)
    assert (run.state, states(run)) == ("failed", {"inner": "failed", "many": "failed", "collect": "not_run"})
    nested = time.app.flows.show(f"{run.id}~inner")
    assert nested.outer is not None
    assert (nested.flow, nested.outer.id, nested.outer.step) == ("inner", run.id, "inner")
    with pytest.raises(RunRefused, match="is a step of a flow"):
        time.app.flows.resume(nested.id)
    work.broken = set()
    work.calls.clear()
    time.app.flows.resume(run.id)
    time.run_pending()
    # What succeeded inside is kept, too.
    assert sorted(work.names) == ["collect", "double", "double", "double"]
    assert time.app.flows.show(run.id).result == [8, [2, 4]]


def test_cancelling_a_flow_cancels_its_steps_also_those_of_flows_within(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.task(retries=5, backoff="1h")
    def slow() -> None:
        raise ValueError("again")

    @time.app.flow
    def inner() -> None:
        work.make.step(slow.step())

    @time.app.flow
    def outer() -> None:
        work.make.step(inner.step(), step_name="last")
        slow.step(step_name="own")
        work.make.step(step_name="cleanup", run_if="always")

    run = start(time, outer)
    assert run.state == "running"
    cancelled = time.app.flows.cancel(run.id)
    assert cancelled.state == "cancelled"
    assert states(cancelled) == {
        "inner": "cancelled",
        "own": "cancelled",
        "last": "not_run",
        "cleanup": "not_run",
    }
    assert time.app.runs.get(f"{run.id}~inner~slow").state == "cancelled"
    assert time.app.flows.show(f"{run.id}~inner").state == "cancelled"
    time.travel("2d")
    assert work.calls == []
    assert time.app.runs.cancel(run.id).state == "cancelled"


def test_cancelling_one_step_fails_the_flow(time: VirtualScheduler, work: Work) -> None:
    @time.app.task(retries=5, backoff="1h")
    def slow() -> None:
        raise ValueError("again")

    @time.app.flow
    def flow() -> None:
        work.make.step(slow.step())

    run = start(time, flow)
    time.app.runs.cancel(f"{run.id}~slow")
    ended = time.app.flows.show(run.id)
    assert (ended.state, ended.error) == ("failed", "step slow was cancelled")
    assert states(ended) == {"slow": "cancelled", "make": "not_run"}


def test_the_timeout_of_a_flow_ends_its_steps(time: VirtualScheduler, work: Work) -> None:
    @time.app.task(retries=50, backoff="1h", max_backoff="1h")
    def slow() -> None:
        raise ValueError("again")

    @time.app.flow(timeout="90m")
    def flow() -> None:
        work.make.step(slow.step())

    run = start(time, flow)
    time.travel("89m")
    assert time.app.flows.show(run.id).state == "running"
    time.travel("2m")
    ended = time.app.flows.show(run.id)
    assert (ended.state, ended.error, states(ended)) == (
        "failed",
        "timed out after 1h30m",
        {"slow": "cancelled", "make": "not_run"},
    )
    assert ended.duration == timedelta(minutes=90)
    # It has its whole timeout again.
    time.app.flows.resume(run.id)
    time.travel("80m")
    assert time.app.flows.show(run.id).state == "running"


def _held(time: VirtualScheduler, work: Work, **options: Any) -> Flow[..., Any]:
    """A flow that takes 25 minutes: its step waits for a retry."""

    @time.app.task(retries=1, backoff="25m")
    def slow(run: RunContext) -> None:
        if run.failures == 0:
            raise ValueError("again")

    @time.app.flow(schedule=every("10m"), **options)
    def held() -> None:
        work.make.step(slow.step())

    return held


def test_overlap_sees_a_flow_as_active_until_its_last_step_has_ended(
    time: VirtualScheduler, work: Work
) -> None:
    _held(time, work, overlap="skip")
    time.travel("65m")
    stats = time.app.schedules.stats("held")
    assert stats.run_count == 2
    skipped = time.app.schedules.skipped("held")
    assert sum(row.count for row in skipped if row.reason == "overlap") == 4


@pytest.mark.parametrize("policy", [{"overlap": "queue"}, {"overlap": "queue_all"}, {"max_concurrent": 1}])
def test_ticks_wait_until_a_flow_has_ended(
    time: VirtualScheduler, work: Work, policy: dict[str, Any]
) -> None:
    _held(time, work, **policy)
    # Ticks at 10, 20, 30 minutes; a flow takes 25.
    time.travel("36m")
    runs = time.app.runs.list(schedule="held")
    assert [run.state for run in runs] == ["running", "succeeded"]
    assert runs[0].started_at is not None
    assert runs[0].started_at == runs[1].finished_at


def test_steps_know_the_tick_of_the_outermost_flow(time: VirtualScheduler, work: Work) -> None:
    ticks: list[Any] = []

    @time.app.task
    def note(run: RunContext) -> None:
        assert run.flow is not None
        ticks.append(run.flow.tick)

    @time.app.flow
    def inner() -> None:
        note.step()

    @time.app.flow(schedule=every("10m"))
    def outer() -> None:
        note.step()
        inner.step()

    time.travel("10m")
    assert ticks == [time.now, time.now]
    outer.enqueue()
    time.run_pending()
    assert ticks[2:] == [None, None]


def test_a_flow_that_is_in_the_code_only_is_started_by_its_ticks(time: VirtualScheduler, work: Work) -> None:
    @time.app.flow(schedule=every("10m"), durable=False)
    def flow() -> None:
        work.make.step(step_name="a")

    time.travel("31m")
    assert work.names == ["a"] * 3
    assert {run.kind for run in time.app.runs.list(task="flow")} == {"flow"}


def test_a_flow_within_a_flow_keeps_the_graph_of_the_outer_start(time: VirtualScheduler, work: Work) -> None:
    inner = time.app.new_flow("inner")
    inner.add_step("old", work.make)
    outer = time.app.new_flow("outer")
    outer.add_step("in", inner)
    inner.begin_description()
    inner.add_step("new", work.make)
    start(time, outer)
    assert work.names == ["old"]
    start(time, inner)
    assert work.names == ["old", "new"]


def test_a_flow_that_is_replaced_by_the_next_tick_is_cancelled(time: VirtualScheduler, work: Work) -> None:
    _held(time, work, overlap="cancel_running")
    time.travel("35m")
    runs = time.app.runs.list(schedule="held")
    assert [run.state for run in runs] == ["running", "cancelled", "cancelled"]
    assert time.app.runs.get(f"{runs[1].id}~slow").state == "cancelled"


def test_a_limit_counts_a_flow_as_one_run(time: VirtualScheduler, work: Work) -> None:
    flow = _held(time, work, overlap="allow")
    time.app.limits.set(concurrency=1, task="held")
    for _ in range(3):
        flow.enqueue()
    time.run_pending()
    running = time.app.runs.list(task="held", state="running")
    assert len(running) == 1


@pytest.mark.parametrize("limit", [{"tenant": "default"}, {"queue": "default"}, {"task": "make"}])
def test_a_flow_does_not_take_the_slot_that_its_steps_need(
    time: VirtualScheduler, work: Work, limit: dict[str, str]
) -> None:
    time.app.limits.set(concurrency=1, **limit)  # type: ignore[arg-type]
    flow = diamond(time, work)
    ids = [flow.enqueue().id for _ in range(3)]
    time.run_pending()
    assert [time.app.runs.get(run_id).state for run_id in ids] == ["succeeded"] * 3
    usage = [each.running for each in time.app.limits.list()]
    assert usage == [0]


def test_other_schedules_follow_a_flow(time: VirtualScheduler, work: Work) -> None:
    _held(time, work)
    time.schedules.add("report", on_success_of("held"), "make")
    time.travel("36m")
    (followed,) = time.app.runs.list(schedule="report")
    assert followed.predecessor_schedule == "held"


def test_a_backfill_starts_flows(time: VirtualScheduler, work: Work) -> None:
    flow = diamond(time, work)
    time.app.schedules.add("nightly", every("1d"), flow)
    time.travel("4d")
    work.calls.clear()
    time.app.schedules.backfill("nightly", time.now - timedelta(days=3), time.now)
    time.travel("1h")
    assert work.names.count("join") == 3


def test_a_run_keeps_the_graph_that_it_was_started_with(time: VirtualScheduler, work: Work) -> None:
    @time.app.task(retries=1, backoff="25m")
    def slow(run: RunContext) -> None:
        if run.failures == 0:
            raise ValueError("again")

    made = time.app.new_flow("made")
    made.add_step("slow", slow)
    made.add_step("old", work.make, after=["slow"])
    run = start(time, made)
    made.begin_description()
    made.add_step("new", work.make)
    time.travel("1h")
    assert work.names == ["old"]
    assert states(time.app.flows.show(run.id)) == {"slow": "succeeded", "old": "succeeded"}
    start(time, made)
    assert work.names == ["old", "new"]


def test_listeners_hear_of_flows_and_steps(time: VirtualScheduler, work: Work) -> None:
    heard: list[tuple[str, str, str, Any]] = []

    @time.app.on_event
    def hear(event: Event) -> None:
        if event.run is not None:
            heard.append((event.kind, event.run.task, event.run.kind, event.result))

    start(time, diamond(time, work))
    assert heard[0] == ("started", "diamond", "flow", None)
    assert heard[-1] == ("succeeded", "diamond", "flow", [2, 1])
    assert [kind for kind, task, _, _ in heard if task != "diamond"] == ["started", "succeeded"] * 4


def test_a_result_that_other_steps_need_must_be_stored(time: VirtualScheduler, work: Work) -> None:
    @time.app.task(retries=3)
    def large() -> str:
        return "x" * 1_000_001

    @time.app.flow
    def flow() -> None:
        work.make.step(large.step())

    @time.app.flow
    def unused() -> None:
        work.make.step(step_name="next", after=[large.step()])

    run = start(time, flow)
    assert run.state == "failed"
    assert "store large data elsewhere" in str(run.steps[0].error)
    # Nobody needs this one.
    assert start(time, unused).state == "succeeded"


def test_a_payload_that_does_not_fit_the_flow_here_is_handed_back(time: VirtualScheduler, work: Work) -> None:
    diamond(time, work)
    run = time.app.enqueue("diamond")
    time.run_pending()
    assert time.app.runs.get(run.id).state == "succeeded"
    (row,) = time.app.store.find_runs(RunQuery(ids=(run.id,))).items
    time.app.store.add_runs(
        [replace(row, id="odd", payload='{"no":1}', state="queued", flow=None, attempt=0, finished_at=None)]
    )
    time.run_pending()
    odd = time.app.runs.get("odd")
    assert (odd.state, odd.attempts[-1].outcome) == ("queued", "handed back")


def test_a_flow_can_be_enqueued_for_later_and_expire(time: VirtualScheduler, work: Work) -> None:
    flow = diamond(time, work)
    later = time.app.flows.run(flow, delay="1h", id="later")
    assert time.app.flows.show("later").graph is not None
    assert states(time.app.flows.show("later")) == {}
    with pytest.raises(RunRefused, match="is queued"):
        time.app.flows.resume("later")
    time.travel("2h")
    assert time.app.runs.get(later.id).state == "succeeded"
    gone = time.app.flows.run(flow, expires="1m")
    time.down_for("1h")
    time.run_pending()
    assert time.app.runs.get(gone.id).state == "cancelled"
    time.app.schedules.add("once", at(time.now + timedelta(hours=1)), flow)
    time.travel("2h")
    assert time.app.schedules.stats("once").success_count == 1


def test_show_refuses_what_is_not_a_flow(time: VirtualScheduler, work: Work) -> None:
    run = start(time, diamond(time, work))
    with pytest.raises(RunRefused, match=f"is not a flow, but a run of task make; it is a step of {run.id}"):
        time.app.flows.show(f"{run.id}~top")


def test_why_says_what_a_flow_waits_for(time: VirtualScheduler, work: Work) -> None:
    def gone(part: Any) -> Any:
        return part

    flow = time.app.new_flow("made")
    flow.add_step("top", work.make, payload={"value": [1, 2]})
    flow.add_step("each", Task(gone, "gone"), map_over=[1, 2, 3], after=["top"])
    flow.add_step("last", work.make, after=["each"])
    run = start(time, flow)
    why = time.app.runs.why(run.id)
    assert why.sentence.endswith("; it waits for step each (queued)")
    facts = [fact.text for fact in why.evidence]
    assert "1 of 3 steps have ended" in facts
    assert "map each: 0 of 3 elements have ended" in facts
    assert any(
        text.startswith("step each waits for a worker: no live node executes runs") for text in facts
    ), facts
    step = time.app.runs.why(f"{run.id}~each~1")
    assert f"step each, element 1 of flow {run.id}" in [fact.text for fact in step.evidence]
    time.app.flows.cancel(run.id)
    assert time.app.runs.why(run.id).remedy == f"to run it after all: evenbeat flows resume {run.id}"


def test_why_says_why_a_flow_failed_and_how_to_go_on(time: VirtualScheduler, work: Work) -> None:
    work.broken = {"left"}
    run = start(time, diamond(time, work))
    why = time.app.runs.why(run.id)
    assert f"run {run.id} of diamond failed: step left failed: ValueError: left is broken" in why.sentence
    assert why.remedy == f"evenbeat flows resume {run.id}"
    step = time.app.runs.why(f"{run.id}~left")
    assert step.remedy == f"evenbeat flows resume {run.id}"


def announce(store: Store, tasks: dict[str, ExecutorKind]) -> None:
    """Write the record of a live node that has these tasks."""
    info = NodeInfo(
        name="n1",
        host="h",
        pid=1,
        version="",
        started_at=0,
        seen_at=0,
        ticker=True,
        worker=True,
        tasks=tasks,
        queues=["default"],
        slots={"thread": 1},
    )
    record = Record(kind="node", key="n1", body=encode(info), expires=store.now() + 86_400_000)
    assert store.put_record(record)


def test_doctor_names_steps_whose_task_no_node_has_and_flows_that_never_end(
    time: VirtualScheduler, work: Work
) -> None:
    gone: Task[..., Any] = Task(lambda: None, "gone")
    flow = time.app.new_flow("made")
    flow.add_step("top", gone)
    flow.add_step("last", gone, after=["top"])
    run = start(time, flow)
    store, now = time.app.store, time.app.store.now()
    assert list(flow_findings(store, [], now)) == []
    announce(store, {"made": "thread", "make": "thread"})
    (found,) = flow_findings(store, live_nodes(store), now)
    assert found.message == "1 flow has a step whose task no live node has"
    assert found.details == (f"gone, step top of {run.id}", f"gone, step last of {run.id}")
    (old,) = flow_findings(store, [], now + 31 * 86_400_000)
    assert "not ended for over 30 days" in old.message
    time.app.flows.cancel(run.id)
    assert list(flow_findings(store, live_nodes(store), now)) == []


def test_a_flow_that_fails_again_names_the_step_that_failed_before(
    time: VirtualScheduler, work: Work
) -> None:
    @time.app.flow
    def two() -> None:
        work.make.step(step_name="a")
        work.make.step(step_name="b")

    work.broken = {"a", "b"}
    run = start(time, two)
    work.broken = {"b"}
    time.app.flows.retry(run.id, "a")
    time.run_pending()
    assert time.app.flows.show(run.id).error == "step b failed"


def test_a_resume_takes_the_unique_key_of_a_flow(time: VirtualScheduler, work: Work) -> None:
    flow = diamond(time, work)
    work.broken = {"left"}
    first = time.app.enqueue(flow, unique="order")
    time.run_pending()
    work.broken = set()
    second = time.app.enqueue(flow, unique="order", delay="1h")
    for again in (time.app.flows.resume, time.app.runs.retry):
        with pytest.raises(RunRefused, match="is unique"):
            again(first.id)
    with pytest.raises(RunRefused, match="is unique"):
        time.app.flows.retry(first.id, "top")
    time.app.runs.cancel(second.id)
    time.app.flows.resume(first.id)
    assert time.app.enqueue(flow, unique="order").id == first.id
    time.run_pending()
    assert time.app.flows.show(first.id).state == "succeeded"
    assert time.app.enqueue(flow, unique="order").id not in (first.id, second.id)


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_resume_of_a_unique_flow_that_was_not_written_is_written_by_the_next_enqueue(
    time: VirtualScheduler, work: Work, is_readable: bool
) -> None:
    flow = diamond(time, work)
    work.broken = {"left"}
    first = time.app.enqueue(flow, unique="order")
    time.run_pending()
    work.broken = set()
    store = time.app.store
    (row,) = store.find_runs(RunQuery(ids=(first.id,))).items
    UniqueRuns(store).take_for_retry(row)  # the process dies here
    if not is_readable:
        (graph,) = store.find_records("flow_graph")
        assert store.delete_record(graph.kind, graph.tenant, graph.key, graph.version)
    second = time.app.enqueue(flow, unique="order")
    assert (second.id == first.id) == is_readable
    time.run_pending()
    assert work.names.count("top") == (1 if is_readable else 2)
    assert time.app.runs.get(second.id).state == "succeeded"


@pytest.mark.parametrize("payload", ["{", "", '{"p":1e400}', '{"p":"\\ud800"}', "[" * 100_000])
def test_a_payload_that_can_not_be_read_does_not_block_the_worker(
    time: VirtualScheduler, work: Work, payload: str
) -> None:
    flow = diamond(time, work)
    now = time.app.store.now()
    damaged = RunRecord(id="f", task=flow.name, kind="flow", payload=payload, run_at=now, created_at=now)
    time.app.store.add_runs([damaged])
    run = start(time, flow)
    assert run.state == "succeeded"
    assert time.app.runs.get("f").state == "queued"
    assert time.app.runs.get("f").error is not None


def test_a_wrong_graph_does_not_block_the_worker(time: VirtualScheduler, work: Work) -> None:
    flow = time.app.new_flow("wrong")
    flow.add_step("a", work.make, after=["b"])
    flow.add_step("b", work.make, after=["a"])
    now = time.app.store.now()
    time.app.store.add_runs([RunRecord(id="f", task="wrong", kind="flow", run_at=now, created_at=now)])
    run = start(time, diamond(time, work))
    assert run.state == "succeeded"
    assert time.app.runs.get("f").state == "queued"


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_resume_gives_what_it_runs_again_a_new_expiry(
    time: VirtualScheduler, work: Work, is_nested: bool
) -> None:
    @time.app.task(expires="1h")
    def part(n: int) -> int:
        work.calls.append(("part", n))
        if "part" in work.broken:
            raise ValueError("part is broken")
        return n

    @time.app.flow(expires="1h")
    def inner() -> None:
        work.make.step()

    @time.app.flow
    def outer() -> None:
        part.map([1, 2])
        inner.step(after=["part"])

    work.broken = {"part"}
    run = start(time, outer)
    work.broken = set()
    if is_nested:
        time.app.flows.resume(run.id)
        time.app.flows.cancel(run.id)
    time.travel("3h")
    time.app.flows.resume(run.id)
    time.run_pending()
    assert states(time.app.flows.show(run.id)) == {"part": "succeeded", "inner": "succeeded"}


def test_a_step_that_waits_for_another_attempt_says_why(time: VirtualScheduler, work: Work) -> None:
    @time.app.task(retries=2, backoff="1h")
    def flaky() -> None:
        raise ValueError("not yet")

    @time.app.task
    def total(parts: list[int]) -> int:
        return sum(parts)

    @time.app.flow
    def flow() -> None:
        flaky.step()
        total.step(work.make.step("text"))

    run = start(time, flow)
    reasons = {step.name: step.reason for step in run.steps}
    assert reasons["flaky"] == "waits for its next attempt: ValueError: not yet"
    assert str(reasons["total"]).startswith("its arguments do not fit the task, it waits for a node")
    assert "list" in str(reasons["total"])


def test_a_name_that_is_not_registered_is_refused_where_tasks_are(time: VirtualScheduler, work: Work) -> None:
    with pytest.raises(InvalidValue, match='flow "fll" is not registered; there are: none'):
        time.app.flows.run("fll")
    # A process without the code can start what others have.
    assert Scheduler("memory://").flows.run("elsewhere").task == "elsewhere"


def test_options_of_attempts_are_refused_for_flows(time: VirtualScheduler, work: Work) -> None:
    flow = diamond(time, work)
    with pytest.raises(InvalidValue, match="retries is an option of tasks"):
        time.app.enqueue(flow, retries=3)
    with pytest.raises(InvalidValue, match="backoff is an option of tasks"):
        time.app.flows.run(flow, backoff="1m")
    with pytest.raises(InvalidValue, match="max_crashes is an option of tasks"):
        time.app.schedules.add("s", every("1h"), flow, max_crashes=3)
    assert time.app.enqueue(flow, timeout="1h", priority="high").timeout == timedelta(hours=1)


def test_a_step_of_a_flow_that_is_being_stopped_is_not_retried(time: VirtualScheduler, work: Work) -> None:
    app = time.app
    refusals: list[str] = []

    @app.task(retries=1)
    def stops(run: RunContext) -> None:
        assert run.flow is not None
        if run.attempt == 1:
            raise ValueError("once: the other branch is over then")
        app.flows.cancel(run.flow.id)
        try:
            app.flows.retry(run.flow.id, "first")
        except RunRefused as error:
            refusals.append(str(error))

    @app.flow
    def both() -> None:
        work.make.step(step_name="first")
        stops.step()

    run = start(time, both)
    time.travel("1h")
    assert app.flows.show(run.id).state == "cancelled"
    assert work.names == ["first"]
    assert ["is being stopped" in each for each in refusals] == [True]


def test_the_arguments_of_a_step_are_bounded(
    time: VirtualScheduler, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_arguments, "MOST_CHARACTERS", 1_000)

    @time.app.task
    def text(n: int) -> str:
        return "x" * n

    @time.app.flow
    def flow(sizes: list[int]) -> None:
        work.collect.step(text.map(sizes))

    assert start(time, flow, sizes=[300, 300, 300]).state == "succeeded"
    run = start(time, flow, sizes=[300] * 4)
    assert run.state == "failed"
    assert "the results that it gets have more than 0.001 million characters together" in str(run.error)
