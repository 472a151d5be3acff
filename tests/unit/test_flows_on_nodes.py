"""Steps of one flow that end on several nodes: each process remembers the flow as it last wrote it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from evenbeat import Scheduler
from evenbeat.core.records import RunRecord
from evenbeat.node.flows import Begin, End, FlowSettling, Settled
from evenbeat.rules import attempts
from evenbeat.rules.flow_parts import flow_part
from evenbeat.rules.flows import graph_records
from evenbeat.stores.base import Claim, RunQuery, Store
from evenbeat.stores.memory.store import MemoryStore
from evenbeat.tasks.flow import Flow


def _chain(steps: int) -> Flow[..., Any]:
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    flow = app.new_flow("chain")
    for at in range(steps):
        flow.add_step(f"s{at}", work, after=[f"s{at - 1}"] if at else [])
    return flow


def _claim(store: Store, limit: int = 1) -> list[RunRecord]:
    claim = Claim(worker="w", token=uuid4().hex, limit=limit, now=store.now(), lease=60_000)
    return list(store.claim_runs(claim).runs)


def _begin(store: Store, settling: FlowSettling, flow: Flow[..., Any]) -> None:
    store.add_runs([RunRecord(id="f", task=flow.name, kind="flow", run_at=store.now())])
    (run,) = _claim(store)
    begin = Begin(run, flow.graph, graph_records([flow.graph]))
    assert settling.settle((), store.now(), [begin]).answers == [True]


def _end_next(store: Store, settling: FlowSettling) -> Settled:
    """Claim the next step and end it on a node."""
    (run,) = _claim(store)
    now = store.now()
    return settling.settle([End(run, attempts.succeeded(run, "null", now, uuid4().hex))], now)


def _letters(store: Store) -> str:
    (row,) = store.find_runs(RunQuery(ids=("f",))).items
    state = flow_part(row).state
    assert state is not None
    return state.steps


def test_a_node_that_remembers_an_older_flow_goes_on_with_it() -> None:
    store = MemoryStore()
    store.open()
    first, second = FlowSettling(store, "worker"), FlowSettling(store, "worker")
    _begin(store, first, _chain(4))
    assert _end_next(store, first).answers == [True]
    # The second node ends the next step; the first one remembers that the one after it waits.
    assert _end_next(store, second).answers == [True]
    assert _letters(store) == "sso."
    assert _end_next(store, first).answers == [True]
    assert _letters(store) == "ssso"
    assert [end.run.id for end in _end_next(store, second).ended] == ["f"]


def test_a_node_that_is_alone_with_a_flow_does_not_read_it() -> None:
    store = MemoryStore()
    store.open()
    settling = FlowSettling(store, "worker")
    _begin(store, settling, _chain(3))
    read = store.find_runs
    store.find_runs = None  # type: ignore[assignment,method-assign]  # not called
    for _ in range(3):
        assert _end_next(store, settling).answers == [True]
    store.find_runs = read  # type: ignore[method-assign]  # for the check alone
    assert _letters(store) == "sss"
