"""Flows whose rows were edited by hand, or whose ids others have taken: they fail, and block nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.records import RunRecord, Transition
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flow_rows import FlowRows
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.node.reaper import Reaper
from evenbeat.observe.events import Events
from evenbeat.rules import attempts, flows
from evenbeat.testing import virtual
from evenbeat.testing.clock import VirtualClock
from tests.unit.test_flow_settling import FaultyStore, begin, claim, described, reap, row, success

_LATER = 310


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> FaultyStore:
    store = FaultyStore(clock)
    store.open()
    return store


def _edit(store: FaultyStore, run_id: str, old: str, new: str) -> None:
    run = row(store, run_id)
    assert run.flow is not None
    assert old in run.flow
    edit = Transition(
        run=run_id,
        attempt=run.attempt,
        claim=run.claim,
        expect=(run.state,),
        token=f"edit.{run_id}",
        flow=run.flow.replace(old, new),
    )
    assert store.settle_runs([edit]) == [True]


def _edit_graph(store: FaultyStore, body: str) -> None:
    (record,) = store.find_records(flows.GRAPH)
    assert store.put_record(replace(record, body=body, version=record.version + 1), record.version)


@pytest.mark.parametrize("damage", ["short", "long", "letters", "graph"])
def test_a_flow_that_can_not_be_read_fails_and_its_steps_end_alone(
    store: FaultyStore, clock: VirtualClock, damage: str
) -> None:
    begin(store, FlowSettling(store, "worker"), described())
    if damage == "graph":
        _edit_graph(store, "{")
    else:
        text = {"short": "", "long": "o.....", "letters": "o.?."}[damage]
        _edit(store, "/f", '"steps":"o..."', f'"steps":"{text}"')
    reaper = Reaper(store, Events(), clock=lambda: clock.now / 1000)
    lost = RunRecord(id="other", task="other", run_at=store.now(), created_at=store.now())
    store.add_runs([lost])
    claim(store, {"other"})
    settling = FlowSettling(store, "worker")
    held = claim(store, {"work"})
    FlowArguments(settling.rows).complete(held)
    assert settling.settle([success(held[0], store)], store.now()).answers == [True]
    reap(reaper, clock, _LATER)
    flow = row(store, "/f")
    assert flow.state == "failed"
    assert flow.error is not None
    assert "its graph is not in the store, or its state was edited by hand" in flow.error
    assert row(store, "other").state == "queued"


def test_a_cancel_ends_a_flow_that_can_not_be_read(store: FaultyStore) -> None:
    begin(store, FlowSettling(store, "worker"), described())
    _edit_graph(store, "{")
    flow = row(store, "/f")
    wish = attempts.cancel(flow, store.now(), "wish")
    assert wish is not None
    assert FlowSettling(store, "app").settle([End(flow, wish)], store.now()).answers == [True]
    assert row(store, "/f").state == "failed"
    assert FlowResuming(FlowRows(store)).resume(row(store, "/f"), None, store.now()) is None


def test_a_step_without_its_graph_does_not_run_with_empty_arguments(store: FaultyStore) -> None:
    settling = FlowSettling(store, "worker")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store)], store.now())
    _edit_graph(store, "{")
    given = FlowArguments(FlowRows(store)).complete(claim(store, {"work"}))
    assert [isinstance(each, str) and "the graph of flow /f" in each for each in given] == [True, True]


def test_a_place_that_the_graph_lacks_ends_the_step_alone(store: FaultyStore) -> None:
    begin(store, FlowSettling(store, "worker"), described())
    _edit(store, "/f~top", '"step":0', '"step":77')
    settling = FlowSettling(store, "worker")
    (top,) = claim(store, {"work"})
    assert [isinstance(each, str) for each in FlowArguments(settling.rows).complete([top])] == [True]
    assert settling.settle([success(top, store)], store.now()).answers == [True]


def test_a_result_that_can_not_be_read_fails_the_steps_that_need_it(store: FaultyStore) -> None:
    settling = FlowSettling(store, "worker")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store, "{{")], store.now())
    given = FlowArguments(settling.rows).complete(claim(store, {"work"}))
    assert [isinstance(each, str) and "can't be read" in each for each in given] == [True, True]


def test_a_map_over_a_result_that_can_not_be_read_fails(store: FaultyStore) -> None:
    settling = FlowSettling(store, "worker")
    begin(store, settling, described("mapped"))
    (first,) = claim(store, {"work"})
    assert settling.settle([success(first, store, "{{")], store.now()).answers == [True]
    flow = row(store, "/f")
    assert flow.state == "failed"
    assert flow.error is not None
    assert "the result of step list can't be read" in flow.error


def test_a_flow_that_is_said_to_be_within_itself_does_not_block_a_worker(store: FaultyStore) -> None:
    flow = begin(store, FlowSettling(store, "worker"), described())
    assert flow.flow is not None
    _edit(store, "/f", '{"state"', '{"member":{"flow":"/f","graph":"/g","step":0},"state"')
    (top,) = claim(store, {"work"})
    assert FlowSettling(store, "worker").settle([success(top, store)], store.now()).answers == [True]


def test_a_flow_uses_and_stops_no_run_of_others_that_has_the_id_of_a_step() -> None:
    app = Scheduler("memory://")

    @app.task
    def load(whose: str = "others") -> str:
        return f"of {whose}"

    @app.task
    def first() -> None: ...

    @app.flow
    def nightly() -> Any:
        return load.step(whose="ours", after=[first.step()])

    with virtual(app) as time:
        app.enqueue(load, id="one~load", tenant="others")
        time.run_pending()
        app.enqueue(load, id="two~load", tenant="others", delay="1d")
        for run_id in ("one", "two"):
            app.enqueue(nightly, id=run_id)
        time.run_pending()
        for run_id in ("one", "two"):
            assert (app.runs.get(run_id).state, app.runs.get(run_id).result) == ("succeeded", "of ours")
        assert app.runs.get("one~load", tenant="others").result == "of others"
        assert app.runs.get("two~load", tenant="others").state == "queued"


def test_a_cancel_between_the_claim_and_the_beginning_of_a_flow_stops_it(store: FaultyStore) -> None:
    flow = described()
    now = store.now()
    store.add_runs([RunRecord(id="/f", task=flow.name, kind="flow", run_at=now, created_at=now)])
    (run,) = claim(store, {flow.name})
    wish = attempts.cancel(run, now, "wish")
    assert wish is not None
    assert FlowSettling(store, "app").settle([End(run, wish)], now).answers == [True]
    settling = FlowSettling(store, "worker")

    settled = settling.settle((), now, [Begin(run, flow.graph, flows.graph_records([flow.graph]))])
    assert [end.run.id for end in settled.ended] == ["/f"]
    assert row(store, "/f").state == "cancelled"
    assert claim(store, {"work"}) == []


def test_a_flow_that_is_cancelled_before_it_begins_ends_with_its_dead_worker(
    store: FaultyStore, clock: VirtualClock
) -> None:
    flow = described()
    now = store.now()
    store.add_runs([RunRecord(id="/f", task=flow.name, kind="flow", run_at=now, created_at=now)])
    (run,) = claim(store, {flow.name})
    wish = attempts.cancel(run, now, "wish")
    assert wish is not None
    assert FlowSettling(store, "app").settle([End(run, wish)], now).answers == [True]
    reap(Reaper(store, Events(), clock=lambda: clock.now / 1000), clock, 90)
    assert row(store, "/f").state == "cancelled"
