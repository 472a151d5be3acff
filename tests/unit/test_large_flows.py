"""Large flows: their description and their changes take time in proportion to what changes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Flow, Scheduler
from evenbeat.core.flow_graphs import MOST_STEPS
from evenbeat.core.records import RunRecord
from evenbeat.rules import flows
from evenbeat.rules.flow_parts import Member, part_text


def _flow(steps: dict[str, list[str]]) -> Flow[..., Any]:
    """Return a flow with these steps, each after others."""
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    flow = app.new_flow("flow")
    for name, after in steps.items():
        flow.add_step(name, work, after=after)
    return flow


def test_steps_are_ordered_by_layers_and_in_a_layer_as_described() -> None:
    flow = _flow({"c": ["b"], "b": ["a"], "e": ["a", "c"], "a": [], "d": [], "f": ["d", "a"]})
    assert [step.name for step in flow.graph.steps] == ["a", "d", "b", "f", "c", "e"]


def test_a_chain_of_as_many_steps_as_there_may_be_is_described_at_once() -> None:
    flow = _flow({f"s{at}": [f"s{at - 1}"] if at else [] for at in range(MOST_STEPS)})
    begin = time.thread_time()
    assert len(flow.graph.steps) == MOST_STEPS
    assert time.thread_time() - begin < 5  # takes 0.1 s; in a time that grows with the square, 49 s


def test_a_join_is_looked_at_once_for_all_ends_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    consider = flows._Progress._consider

    def counted(self: flows._Progress, at: int) -> None:
        looks.append(at)
        consider(self, at)

    before = {f"s{at}": list[str]() for at in range(10)}
    graph = _flow({**before, "join": list(before)}).graph
    run = RunRecord(id="flow", task="flow", kind="flow", run_at=1, state="running", attempt=1)
    run = replace(run, flow=part_text(state=flows.begin(run, graph, 1).state))
    ends = [
        flows.StepEnd(Member("flow", graph.key, at), f"flow~s{at}", "succeeded", "null") for at in range(10)
    ]
    monkeypatch.setattr(flows._Progress, "_consider", counted)
    assert flows.advance(run, graph, ends[:4], {}, 2).starts == ()
    assert looks == [10]
    change = flows.advance(run, graph, ends, {}, 2)
    assert [started.id for started in change.starts] == ["flow~join"]
