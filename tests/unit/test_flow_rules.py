"""The rules of flows, state by state: leases and deadlines, resets, counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Flow, Scheduler
from evenbeat.core.flow_graphs import FlowGraph
from evenbeat.core.records import Execution, RunRecord, RunState
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import (
    Elements,
    FlowState,
    Member,
    flow_part,
    part_text,
    step_name,
    step_run_id,
)

NOW = 1_000_000
CHECK = flows.CHECK_EVERY


def described(shape: str = "chain") -> FlowGraph:
    app = Scheduler("memory://")

    @app.task
    def work(n: Any = None) -> Any: ...

    def chain() -> Any:
        one = work.step(step_name="one")
        return work.step(work.step(one, step_name="two"), step_name="three")

    def mapped() -> Any:
        each = work.map(work.step(step_name="list"), step_name="each")
        return work.step(each, step_name="join")

    def branches() -> None:
        bad = work.step(step_name="bad")
        work.map([1, 2], step_name="after", after=[bad])
        work.step(step_name="apart")

    flow: Flow[..., Any] = app.flow(name=shape)(
        {"chain": chain, "mapped": mapped, "branches": branches}[shape]
    )
    return flow.graph


def row(graph: FlowGraph, timeout: int | None = None, **state: Any) -> RunRecord:
    """A flow that has begun."""
    given = FlowState(graph=graph.key, **{"steps": "." * len(graph.steps), **state})
    return RunRecord(
        id="f",
        task=graph.name,
        kind="flow",
        state="running",
        attempt=3,
        execution=Execution(timeout=timeout),
        flow=part_text(None, given),
    )


def end(graph: FlowGraph, step: str, state: RunState = "succeeded", **rest: Any) -> flows.StepEnd:
    index, number = rest.pop("index", None), rest.pop("number", 1)
    member = Member("f", graph.key, graph.positions[step], index, number)
    return flows.StepEnd(member, step_run_id("f", step, number, index), state, **rest)


def ids(change: flows.Change) -> list[str]:
    return [run.id for run in change.starts]


@pytest.mark.parametrize(
    ("left", "lease"),
    [(None, CHECK), (CHECK + 1, CHECK), (CHECK, CHECK), (60_000, 60_000), (1, 1), (0, 1), (-5, 1)],
)
def test_a_flow_is_looked_at_at_its_deadline_and_every_five_minutes(left: int | None, lease: int) -> None:
    graph = described()
    flow = row(graph, steps="o..", deadline=None if left is None else NOW + left)
    change = flows.advance(flow, graph, [end(graph, "one")], {}, NOW)
    going_on = flows.going_on(flow, change, "t", (), NOW)
    assert (going_on.lease, going_on.worker, going_on.state) == (lease, None, "running")
    assert (going_on.run, going_on.attempt, going_on.expect, going_on.renews) == ("f", 3, ("running",), True)
    checked = flows.checked(flow, "t", NOW)
    assert (checked.lease, checked.lease_ended, checked.renews) == (lease, True, False)
    assert (checked.attempt, checked.expect) == (3, ("running",))


def test_a_flow_that_is_stopped_is_not_looked_at_at_its_deadline_again() -> None:
    graph = described()
    flow = row(graph, steps="o..", deadline=NOW - 5, stop="timeout")
    assert flows.checked(flow, "t", NOW).lease == CHECK


def test_the_deadline_counts_from_the_beginning_and_from_a_resume() -> None:
    graph = described()
    fresh = RunRecord(id="f", task="chain", execution=Execution(timeout=70))
    assert flows.begin(fresh, graph, NOW).state.deadline == NOW + 70
    failed = replace(row(graph, timeout=70, steps="sfn", deadline=5), state="failed")
    assert flows.resume(failed, graph, {}, NOW).change.state.deadline == NOW + 70
    untimed = replace(failed, execution=Execution())
    assert flows.resume(untimed, graph, {}, NOW).change.state.deadline is None


def test_the_first_failure_is_the_one_that_is_told() -> None:
    graph = described("branches")
    # The steps are bad, apart, after: each comes after its predecessors.
    flow = row(graph, steps="oo.")
    first = flows.advance(flow, graph, [end(graph, "bad", "failed", error="one\ntwo")], {}, NOW)
    assert first.state.problem == "step bad failed: one"
    flow = row(graph, steps=first.state.steps, problem=first.state.problem)
    second = flows.advance(flow, graph, [end(graph, "apart", "cancelled")], {}, NOW)
    assert (second.outcome, second.state.problem) == ("failed", "step bad failed: one")
    stopped = flows.stop(row(graph, timeout=60_000, steps="oo.", problem="x"), graph, "timeout", {}, NOW)
    assert (stopped.state.problem, stopped.state.stop, stopped.state.steps) == ("x", "timeout", "oon")
    fresh = flows.stop(row(graph, timeout=60_000, steps="oo."), graph, "timeout", {}, NOW)
    assert fresh.state.problem == "timed out after 1m"
    cancelled = flows.stop(row(graph, steps="oo."), graph, "cancelled", {}, NOW)
    assert (cancelled.state.problem, cancelled.state.stop, cancelled.outcome) == ("", "cancelled", None)
    # The first reason counts.
    again = flows.stop(row(graph, steps="oon", stop="cancelled"), graph, "timeout", {}, NOW)
    assert (again.state.stop, again.state.problem) == ("cancelled", "")


def test_a_flow_without_an_error_text_says_which_step_failed() -> None:
    graph = described()
    change = flows.advance(row(graph, steps="o.."), graph, [end(graph, "one", "failed")], {}, NOW)
    assert (change.state.problem, change.state.steps, change.outcome) == ("step one failed", "fnn", "failed")
    long = flows.advance(
        row(graph, steps="o.."), graph, [end(graph, "one", "failed", error="x" * 900)], {}, NOW
    )
    assert len(long.state.problem) == 500


def test_an_end_of_an_earlier_round_or_of_a_step_that_is_over_does_not_count() -> None:
    graph = described()
    flow = row(graph, steps="o..", rounds={"0": 2})
    assert flows.advance(flow, graph, [end(graph, "one")], {}, NOW).is_stale
    assert not flows.advance(flow, graph, [end(graph, "one", number=2)], {}, NOW).is_stale
    assert flows.advance(row(graph, steps="so."), graph, [end(graph, "one")], {}, NOW).is_stale
    both = flows.advance(flow, graph, [end(graph, "one"), end(graph, "one", number=2)], {}, NOW)
    assert ids(both) == ["f~two"]


def test_the_elements_of_a_map_are_counted() -> None:
    graph = described("mapped")
    flow = row(graph, steps="o..")
    change = flows.advance(flow, graph, [end(graph, "list", result="[7,8,9]")], {}, NOW)
    assert ids(change) == ["f~each~0", "f~each~1", "f~each~2"]
    assert [run.payload for run in change.starts] == ['{"n":7}', '{"n":8}', '{"n":9}']
    assert change.state.maps == {"1": Elements(3, 3)}
    places = [flow_part(run).member for run in change.starts]
    assert [(place.step, place.index, place.used) for place in places if place] == [
        (1, 0, True),
        (1, 1, True),
        (1, 2, True),
    ]
    flow = row(graph, steps=change.state.steps, maps=change.state.maps)
    some = [end(graph, "each", index=0), end(graph, "each", "cancelled", index=2)]
    change = flows.advance(flow, graph, some, {}, NOW)
    assert (change.state.maps["1"], change.state.steps, change.starts) == (Elements(3, 1, 0, 1), "so.", ())
    assert change.state.problem == "element 2 of step each was cancelled"
    flow = row(graph, steps="so.", maps=change.state.maps)
    done = flows.advance(flow, graph, [end(graph, "each", index=1)], {}, NOW)
    assert (done.state.steps, done.outcome) == ("scn", "failed")
    failed = flows.advance(flow, graph, [end(graph, "each", "failed", index=1)], {}, NOW)
    assert (failed.state.steps, failed.state.maps["1"]) == ("sfn", Elements(3, 0, 1, 1))


def test_a_resume_forgets_what_came_after_and_keeps_the_rest() -> None:
    graph = described("branches")
    maps = {"2": Elements(2, 0, 1, 0)}
    failed = replace(row(graph, steps="fsf", maps=maps, rounds={"1": 4}, problem="x"), state="failed")
    reset = flows.resume(failed, graph, {}, NOW)
    # The map comes after the step that failed: all of it runs again.
    assert (reset.again, ids(reset.change)) == ((), ["f~bad@2"])
    assert reset.change.state == FlowState(graph=graph.key, steps="os.", rounds={"0": 2, "1": 4, "2": 2})
    only_map = replace(row(graph, steps="ssf", maps={"2": Elements(5, 0, 2, 1)}), state="failed")
    reset = flows.resume(only_map, graph, {}, NOW)
    assert (reset.again, ids(reset.change)) == ((2,), [])
    assert reset.change.state == FlowState(graph=graph.key, steps="sso", maps={"2": Elements(5, 3)})


def test_a_resume_starts_a_map_anew_that_had_no_list() -> None:
    graph = described("mapped")
    failed = replace(row(graph, steps="sfn", notes={"1": "not a list"}), state="failed")
    reset = flows.resume(failed, graph, {"f~list": "[1]"}, NOW)
    assert (reset.again, ids(reset.change)) == ((), ["f~each@2~0"])
    assert reset.change.state.notes == {}
    missing = flows.resume(failed, graph, {}, NOW)
    assert missing.change.missing == ("f~list",)


def test_a_cancelled_flow_goes_on_with_what_had_not_run() -> None:
    graph = described("branches")
    stopped = replace(row(graph, steps="scn", stop="cancelled"), state="cancelled")
    reset = flows.resume(stopped, graph, {}, NOW)
    assert ids(reset.change) == ["f~apart@2", "f~after~0", "f~after~1"]
    assert (reset.change.state.stop, reset.change.state.steps) == ("", "soo")


def test_a_retry_needs_a_step_that_has_ended_and_nothing_open_after_it() -> None:
    graph = described()
    for steps, step in (("o..", 0), ("so.", 0), ("so.", 1), ("fnn", 1), ("...", 0)):
        assert flows.retry(row(graph, steps=steps), graph, step, {}, NOW) is None
    reset = flows.retry(row(graph, steps="sss"), graph, 1, {}, NOW)
    assert reset is not None
    assert (ids(reset.change), reset.change.state.steps) == (["f~two@2"], "so.")
    assert reset.change.state.rounds == {"1": 2, "2": 2}


def test_a_recount_finds_what_was_not_counted() -> None:
    graph = described("mapped")
    flow = row(graph, steps="so.", maps={"1": Elements(3, 3)})
    states: tuple[RunState, ...] = ("succeeded", "queued", "running")
    runs = {
        f"f~each~{index}": RunRecord(id=f"f~each~{index}", task="work", state=state)
        for index, state in enumerate(states)
    }
    counted = row(graph, steps="so.", maps={"1": Elements(3, 2)})
    assert flows.recount(counted, graph, runs, {}, NOW).is_stale
    change = flows.recount(flow, graph, runs, {}, NOW)
    assert (change.state.maps["1"], change.state.problem, change.outcome) == (Elements(3, 2), "", None)
    runs["f~each~1"] = replace(runs["f~each~1"], state="cancelled")
    runs["f~each~2"] = replace(runs["f~each~2"], state="succeeded")
    change = flows.recount(flow, graph, runs, {}, NOW)
    assert (change.state.steps, change.state.problem) == ("scn", "step each was cancelled")
    del runs["f~each~0"]
    change = flows.recount(flow, graph, runs, {}, NOW)
    assert (change.state.steps, change.state.problem, change.state.maps["1"]) == (
        "sfn",
        "step each failed",
        Elements(3, 0, 1, 1),
    )


def test_the_end_of_a_flow_has_its_result_or_its_problem() -> None:
    graph = described()
    flow = row(graph, steps="sso")
    change = flows.advance(flow, graph, [end(graph, "three", result="5")], {}, NOW)
    final = flows.ending(flow, change, "t", (), NOW)
    assert (final.state, final.result, final.error, final.renews) == ("succeeded", "5", None, True)
    failing = flows.advance(flow, graph, [end(graph, "three", "failed", error="boom")], {}, NOW)
    final = flows.ending(flow, failing, "t", (), NOW)
    assert (final.state, final.error) == ("failed", "step three failed: boom")
    assert flow_part(replace(flow, flow=str(final.flow))).state == failing.state
    stopped = flows.stop(row(graph, steps="ss."), graph, "cancelled", {}, NOW)
    assert stopped.outcome == "cancelled"
    assert flows.ending(flow, stopped, "t", (), NOW).error is None


def test_a_flow_that_goes_on_after_its_end_is_as_new() -> None:
    graph = described()
    failed = replace(row(graph, steps="sfn"), state="failed", error="x", finished_at=5)
    reset = flows.resume(failed, graph, {}, NOW)
    change = flows.continuing(failed, reset.change, "t", (), NOW)
    assert (change.expect, change.state, change.finished_at, change.error) == (
        ("failed",),
        "running",
        None,
        None,
    )
    assert (change.result, change.cancel_requested, change.renews) == (None, False, True)


@pytest.mark.parametrize("flow", ["f", "default/nightly/1/1772366400000", "x" * 400, "f~inner@2~7"])
@pytest.mark.parametrize(("number", "index"), [(1, None), (1, 0), (2, None), (12, 9_999)])
def test_ids_of_steps_name_their_step(flow: str, number: int, index: int | None) -> None:
    run_id = step_run_id(flow, "load-all.v2:x", number, index)
    assert len(run_id) <= 400
    member = Member(flow, "g", 0, index, number)
    assert step_name(RunRecord(id=run_id, task="work", flow=part_text(member))) == "load-all.v2:x"
    assert step_name(RunRecord(id=run_id, task="work")) is None
    others = {step_run_id(flow, "load-all.v2:x", n, i) for n in (1, 2, 3) for i in (None, 0, 1)}
    assert len(others) == 9


def test_a_text_that_was_edited_by_hand_is_no_flow() -> None:
    assert flow_part(RunRecord(id="f", task="work", flow="{")).state is None
    assert flow_part(RunRecord(id="f", task="work", flow='{"state":5}')).member is None


def test_the_runs_of_steps_have_the_options_of_their_tasks_and_the_tenant_of_the_flow() -> None:
    app = Scheduler("memory://")

    @app.task(queue="io", priority="high", retries=4)
    def work(n: Any) -> Any: ...

    @app.flow
    def inner() -> None:
        work.step(1)

    @app.flow
    def outer(n: int = 3) -> Any:
        inner.step()
        return work.step(n)

    flow = RunRecord(id="f", task="outer", tenant="acme", trace="t-1", tick=77, schedule="s", payload="null")
    nested, plain = flows.begin(flow, outer.graph, NOW).starts
    assert (plain.id, plain.task, plain.kind, plain.payload) == ("f~work", "work", "task", '{"n":3}')
    assert (plain.tenant, plain.queue, plain.priority, plain.execution.retries) == ("acme", "io", 8, 4)
    assert (plain.scheduled_at, plain.run_at, plain.created_at, plain.trace) == (NOW, NOW, NOW, "t-1")
    assert (plain.schedule, plain.tick, plain.cause, plain.state) == (None, None, "enqueue", "queued")
    assert flow_part(plain).member == Member("f", outer.graph.key, 1, None, 1, True, 77)
    assert (nested.kind, nested.task, flow_part(nested).state) == ("flow", "inner", None)
    inside = flows.begin(replace(nested, state="running"), inner.graph, NOW).starts
    assert [(flow_part(run).member or Member("", "", 0)).tick for run in inside] == [77]


def test_a_flow_has_no_result_if_nothing_is_returned_or_the_step_was_not_needed() -> None:
    graph = described()
    done = flows.advance(row(graph, steps="sso"), graph, [end(graph, "three")], {}, NOW)
    assert (done.outcome, done.result) == ("succeeded", "null")
    nothing = replace(graph, result="")
    done = flows.advance(row(nothing, steps="sso"), nothing, [end(nothing, "three", result="5")], {}, NOW)
    assert (done.outcome, done.result) == ("succeeded", "null")
    early = replace(graph, result="one")
    missing = flows.advance(row(early, steps="sso"), early, [end(early, "three")], {}, NOW)
    assert (missing.missing, missing.outcome) == (("f~one",), None)
    known = flows.advance(row(early, steps="sso"), early, [end(early, "three")], {"f~one": "[1]"}, NOW)
    assert (known.outcome, known.result) == ("succeeded", "[1]")


def test_a_flow_that_timed_out_has_failed_whatever_its_steps_did() -> None:
    graph = described()
    flow = row(graph, timeout=1_000, steps="so.", stop="timeout", problem="timed out after 1s")
    done = flows.advance(flow, graph, [end(graph, "two")], {}, NOW)
    assert (done.outcome, done.state.steps, done.starts) == ("failed", "ssn", ())


def test_a_map_over_a_map_that_did_not_run_has_no_list() -> None:
    app = Scheduler("memory://")

    @app.task
    def work(n: Any = None) -> Any: ...

    @app.flow
    def flow() -> None:
        bad = work.step(step_name="bad")
        work.map(bad, step_name="each", run_if="always")

    graph = flow.graph
    change = flows.advance(row(graph, steps="o."), graph, [end(graph, "bad", "failed", error="x")], {}, NOW)
    assert (change.missing, change.state.steps) == (("f~bad",), "f.")
    change = flows.advance(
        row(graph, steps="o."), graph, [end(graph, "bad", "failed", error="x")], {"f~bad": None}, NOW
    )
    assert (change.state.steps, change.state.problem) == ("ff", "step bad failed: x")
    assert change.state.notes["1"].startswith("the result of step bad is not a list")
    full = [end(graph, "bad", result=str(list(range(10_000))))]
    assert len(flows.advance(row(graph, steps="o."), graph, full, {}, NOW).starts) == 10_000


def test_a_map_over_an_empty_map_is_empty_in_the_same_change() -> None:
    app = Scheduler("memory://")

    @app.task
    def work(n: Any = None) -> Any: ...

    @app.flow
    def flow() -> None:
        empty = work.map([], step_name="empty")
        work.step(work.map(empty, step_name="again"), step_name="last")

    change = flows.begin(RunRecord(id="f", task="flow"), flow.graph, NOW)
    assert (change.missing, change.state.steps, ids(change)) == ((), "sso", ["f~last"])
    assert change.state.maps == {"0": Elements(0, 0), "1": Elements(0, 0)}
    (record,) = flows.graph_records([flow.graph])
    assert (record.kind, record.tenant, record.key) == ("flow_graph", "default", flow.graph.key)


def test_a_resume_keeps_the_notes_of_other_maps_and_a_recount_the_first_problem() -> None:
    graph = described("mapped")
    state: dict[str, Any] = {"maps": {"1": Elements(2, 2)}, "problem": "first", "notes": {"9": "kept"}}
    flow = row(graph, steps="so.", **state)
    gone = flows.recount(flow, graph, {}, {}, NOW)
    assert (gone.state.problem, gone.state.steps) == ("first", "sfn")
    only_failed = {"f~each~0": RunRecord(id="f~each~0", task="work", state="failed")}
    only_failed["f~each~1"] = replace(only_failed["f~each~0"], id="f~each~1", state="queued")
    some = flows.recount(row(graph, steps="so.", maps={"1": Elements(2, 2)}), graph, only_failed, {}, NOW)
    assert (some.state.problem, some.state.maps["1"]) == ("step each failed", Elements(2, 1, 1))
    failed = replace(
        row(graph, steps="sfn", maps={"1": Elements(2, 0, 1)}, notes={"9": "kept"}), state="failed"
    )
    assert flows.resume(failed, graph, {}, NOW).change.state.notes == {"9": "kept"}
