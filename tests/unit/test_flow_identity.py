"""Flows that have the same id, one after the other: neither gets arguments, results or ends of the other."""

from __future__ import annotations

import itertools
import json

import pytest
from msgspec.structs import replace

from evenbeat.core.ids import is_given_once, making_token, new_run_id
from evenbeat.core.records import RunRecord
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flows import Begin, FlowSettling
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import belongs_to, flow_part, step_name, step_run_id
from evenbeat.testing.clock import VirtualClock
from tests.unit.test_flow_settling import FaultyStore, begin, claim, described, row, success

ID = "order-42"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> FaultyStore:
    store = FaultyStore(clock)
    store.open()
    return store


def purge(store: FaultyStore, clock: VirtualClock) -> None:
    clock.advance("1s")
    while store.purge(clock.now, 100).deleted:
        pass


def run_to_the_end(store: FaultyStore, settling: FlowSettling, text: str) -> None:
    for number in itertools.count():
        if row(store, ID).state != "running":
            return
        ends = [success(run, store, json.dumps(f"{text} {number}")) for run in claim(store, {"work"})]
        settling.settle(ends, store.now())


def test_a_node_gives_no_step_the_results_of_an_earlier_flow_of_its_id(
    store: FaultyStore, clock: VirtualClock
) -> None:
    first, second = FlowSettling(store, "w1"), FlowSettling(store, "w2")
    begin(store, first, described(), ID)
    (top,) = claim(store, {"work"})
    first.settle([success(top, store, '"old"')], clock.now)
    run_to_the_end(store, second, "old")  # the first node does not learn that the flow has ended
    purge(store, clock)

    begin(store, second, described(), ID)
    (again,) = claim(store, {"work"})
    assert again.id != top.id, "the id of a step is never given twice"
    second.settle([success(again, store, '"new"')], clock.now)
    given = FlowArguments(first.rows).complete(claim(store, {"work"}))
    assert [json.loads(each.payload) for each in given if isinstance(each, RunRecord)] == [{"n": "new"}] * 2


def test_the_late_end_of_a_step_is_not_counted_for_a_later_flow(
    store: FaultyStore, clock: VirtualClock
) -> None:
    first, second = FlowSettling(store, "w1"), FlowSettling(store, "w2")
    begin(store, first, described(), ID)
    (top,) = claim(store, {"work"})
    run_to_the_end_of(store, second, top)
    purge(store, clock)
    begin(store, second, described(), ID)
    before = row(store, ID)
    settled = first.settle([success(top, store, '"old"')], clock.now)
    assert (settled.answers, settled.ended, settled.started) == ([False], [], [])
    assert row(store, ID) == before


def run_to_the_end_of(store: FaultyStore, settling: FlowSettling, step: RunRecord) -> None:
    settling.settle([success(step, store)], store.now())
    run_to_the_end(store, settling, "old")


def test_a_late_beginning_does_not_begin_a_later_flow(store: FaultyStore, clock: VirtualClock) -> None:
    flow = described()
    now = store.now()
    made = RunRecord(id=ID, task=flow.name, kind="flow", run_at=now, created_at=now)
    store.add_runs([made])
    (earlier,) = claim(store, {flow.name})
    late = FlowSettling(store, "w1")
    second = FlowSettling(store, "w2")
    second.settle((), now, [Begin(earlier, flow.graph, flows.graph_records([flow.graph]))])
    run_to_the_end(store, second, "old")
    purge(store, clock)
    store.add_runs([made])
    (later,) = claim(store, {flow.name})
    settled = late.settle((), now, [Begin(earlier, flow.graph, ())])
    assert settled.answers == [False]
    assert row(store, ID) == later


def test_a_step_that_an_earlier_flow_has_left_does_not_stand_in_for_a_new_one(
    store: FaultyStore, clock: VirtualClock
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described(), ID)
    run_to_the_end(store, settling, "old")
    store._runs.pop(ID)  # a retention rule may keep its steps for longer
    begin(store, settling, described(), ID)
    run_to_the_end(store, settling, "new")
    assert row(store, ID).result == '"new 2"'


def test_an_end_with_another_nonce_is_stale() -> None:
    graph = described().graph
    made = RunRecord(id=ID, task="diamond", kind="flow", state="running", attempt=1, claim="c1")
    change = flows.begin(made, graph, 0)
    flow = replace(made, flow=str(flows.going_on(made, change, "t", (), 0).flow))
    (top,) = change.starts
    member = flow_part(top).member
    assert member is not None
    assert belongs_to(top, flow)
    other = flows.begin(replace(made, claim="c2"), graph, 0).starts[0]
    assert not belongs_to(other, flow)
    end = flows.StepEnd(member, top.id, "succeeded", "1")
    assert len(flows.advance(flow, graph, [end], {}, 0).starts) == 2
    late = end._replace(member=replace(member, nonce="0123456789ab"))
    assert flows.advance(flow, graph, [late], {}, 0).is_stale


def test_ids_that_are_never_given_twice_need_no_nonce() -> None:
    graph = described().graph
    now = 1_772_366_400_000
    own = new_run_id(now)
    for run_id in (own, "default/nightly/1/1772366400000"):
        flow = RunRecord(id=run_id, task="diamond", kind="flow", claim="c1", created_at=now)
        assert [run.id for run in flows.begin(flow, graph, now).starts] == [f"{run_id}~top"]
        assert making_token(run_id, now) is None
    # A user who gives an id of ours again does so later.
    for run_id, created_at in ((own, now + 1), (ID, now), ("0" * 32, now)):
        flow = RunRecord(id=run_id, task="diamond", kind="flow", claim="c1", created_at=created_at)
        (step,) = flows.begin(flow, graph, now).starts
        assert step.id.startswith(f"{run_id}.")
        assert step_name(step) == "top"
        assert not is_given_once(run_id, created_at)
        assert making_token(run_id, created_at) != making_token(run_id, created_at)
    assert len(step_run_id("x" * 400, "s", nonce="0123456789ab")) <= 400
