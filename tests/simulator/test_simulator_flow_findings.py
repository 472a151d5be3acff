"""What the simulator found about flows: the seeds, and each case reduced to the smallest one."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from evenbeat.app.flows import resume_flow
from evenbeat.app.session import AppSession
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition
from evenbeat.errors import RunRefused, StoreUnavailable
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flow_checks import check_flow
from evenbeat.node.flow_resuming import FlowResuming
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.rules.flow_parts import flow_part
from evenbeat.rules.flows import graph_records
from evenbeat.stores.base import Claim, Page, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.flow import Flow, all_graphs
from evenbeat.tasks.task import Task
from evenbeat.testing.clock import VirtualClock
from tests.simulator.__main__ import run_seed
from tests.simulator.trace import Trace

# Seeds that found a fault in memory when it was there. Later changes of the simulator may have moved them.
FOUND = {
    8: "the safety net reported a flow that had changed while it looked",
    9: "a node settled a step without its flow, which it remembered from before a retry",
    13: "a flow within a flow lost the results among its arguments",
    62: "a flow within a flow whose steps had succeeded was queued again, and stood still",
    109: "a flow was resumed beside the tick that had just fired",
    343: "a step got the arguments of a remembered flow, in which another step had not run yet",
    795: "a node remembered a change of a flow that the store had not applied",
}


@pytest.mark.parametrize("seed", FOUND)
def test_a_defect_that_a_seed_once_found_stays_repaired(seed: int) -> None:
    run_seed(seed, "memory", Trace(), flows=True)


def work(x: Any = None, y: Any = None) -> Any:
    """Stands for all tasks."""


TASK: Task[..., Any] = Task(work, "work")


def new_flow(name: str = "flow") -> Flow[..., Any]:
    flow: Flow[..., Any] = Flow(work, name)
    flow.begin_description()
    return flow


class LosesReplies(MemoryStore):
    """Applies one call of ``settle_runs``, and does not answer."""

    loses = False
    fails_to_read = False
    before_settling: Callable[[], object] | None = None

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.before_settling is not None:
            act, self.before_settling = self.before_settling, None
            act()
        answers = super().settle_runs(transitions)
        if self.loses:
            self.loses = False
            raise StoreUnavailable("the reply was lost")
        return answers

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        if self.fails_to_read:
            self.fails_to_read = False
            raise StoreUnavailable("the store went away")
        return super().find_runs(query)


class Bench:
    """Two nodes that work on one flow."""

    def __init__(self, flow: Flow[..., Any], schedule: str | None = None) -> None:
        self.clock = VirtualClock()
        self.store = LosesReplies(self.clock)
        self.first = FlowSettling(self.store, "first", pause=lambda _: None)
        self.second = FlowSettling(self.store, "second", pause=lambda _: None)
        if schedule is None:
            self.add("/f", flow)
        else:
            wanted = ScheduleRecord(
                name="s", task=flow.name, kind="flow", trigger=schedule, overlap="skip", payload="{}"
            )
            self.store.put_schedules([Write(changes.create(wanted, self.clock()), None)])
            self.clock.advance("10s")
            self.store.fire_due(self.clock(), 1, plan)
        self.begin(flow)

    def add(self, run_id: str, flow: Flow[..., Any]) -> None:
        self.store.add_runs([RunRecord(id=run_id, task=flow.name, kind="flow", run_at=0, payload="{}")])

    def begin(self, flow: Flow[..., Any]) -> str:
        """Begin the flow that is queued."""
        (run,) = (run for run in self.claim() if run.kind == "flow")
        (given,) = FlowArguments(self.first.rows).complete([run])
        assert isinstance(given, RunRecord)
        records = graph_records(all_graphs(flow))
        assert self.first.settle((), self.clock(), [Begin(given, flow.graph, records)]).answers == [True]
        return run.id

    def claim(self, tasks: frozenset[str] | None = None) -> tuple[RunRecord, ...]:
        token = f"claim-{self.clock()}"
        self.clock.advance("1ms")
        return self.store.claim_runs(
            Claim(worker="w", token=token, limit=100, now=self.clock(), lease=60_000, tasks=tasks)
        ).runs

    def success(self, run_id: str) -> End:
        run = self.run(run_id)
        return End(run, attempts.succeeded(run, "null", self.clock(), f"{run.id}.{run.attempt}.succeeded"))

    def end(self, settling: FlowSettling, run_id: str, state: str = "succeeded", result: Any = None) -> bool:
        """End a claimed run."""
        run = self.run(run_id)
        token = f"{run.id}.{run.attempt}.{state}"
        if state == "succeeded":
            transition = attempts.succeeded(run, json.dumps(result), self.clock(), token)
        else:
            transition = attempts.failed(run, "no luck", self.clock(), token)
        return settling.settle([End(run, transition)], self.clock()).answers[0]

    def run(self, run_id: str) -> RunRecord:
        return self.store.find_runs(RunQuery(ids=(run_id,))).items[0]

    def again(self, run_id: str = "/f", step: str | None = None) -> None:
        """Resume a flow, or retry a step, as ``app.flows`` does; and go on with it, and with the flows within
        it, as a worker does."""
        resume_flow(cast(AppSession, Session(self.store)), self.run(run_id), step)
        query = RunQuery(states=("queued",))
        while tasks := {run.task for run in self.store.find_runs(query).items if flow_part(run).state}:
            for run in self.claim(frozenset(tasks)):
                transition = FlowResuming(self.first.rows).go_on(run, self.clock())
                assert transition is not None
                assert self.store.settle_runs([transition]) == [True]

    def letters(self, run_id: str = "/f") -> str:
        state = flow_part(self.run(run_id)).state
        assert state is not None
        return state.steps


class Session:
    """The part of an app's session that resuming a flow needs."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def store(self) -> MemoryStore:
        return self._store

    def row(self, _: str, name: str) -> ScheduleRecord | None:
        return next(iter(self._store.find_schedules(ScheduleQuery(name=name)).items), None)


def test_a_step_that_was_retried_ends_with_its_flow_on_a_node_that_remembers_the_first_round() -> None:
    flow = new_flow()
    flow.add_step("a", TASK)
    flow.add_step("b", TASK)
    bench = Bench(flow)
    bench.claim()
    assert bench.end(bench.first, "/f~a")
    bench.again(step="a")
    bench.claim()
    assert bench.letters() == "oo"
    assert bench.end(bench.first, "/f~a@2")
    assert bench.letters() == "so"


def test_a_repeated_end_does_not_make_a_node_forget_the_end_of_another_one() -> None:
    flow = new_flow()
    flow.add_step("m", TASK, map_over=[1, 2, 3, 4])
    bench = Bench(flow)
    bench.claim()
    bench.store.loses = True
    ends = [bench.success("/f~m~0")]
    with pytest.raises(StoreUnavailable):
        bench.first.settle(ends, bench.clock())
    assert bench.first.settle(ends, bench.clock()).answers == [True]
    assert bench.end(bench.second, "/f~m~1", "failed")
    assert bench.end(bench.first, "/f~m~2")
    assert bench.end(bench.first, "/f~m~3")
    assert bench.run("/f").state == "failed"


def test_an_end_that_is_repeated_because_of_another_flow_is_not_counted_again() -> None:
    flow = new_flow()
    flow.add_step("m", TASK, map_over=[1, 2, 3, 4])
    bench = Bench(flow)
    bench.claim()
    bench.add("/g", flow)
    bench.begin(flow)
    bench.claim()
    assert bench.end(bench.second, "/g~m~0")
    ends = [bench.success("/f~m~0"), bench.success("/g~m~1")]
    # The first node remembers g as it was: the store refuses that change alone.
    bench.store.fails_to_read = True
    with pytest.raises(StoreUnavailable):
        bench.first.settle(ends, bench.clock())
    assert bench.first.settle(ends, bench.clock()).answers == [True, True]
    assert bench.end(bench.second, "/f~m~1", "failed")
    assert bench.end(bench.first, "/f~m~2")
    assert bench.end(bench.first, "/f~m~3")
    assert bench.run("/f").state == "failed"


def test_a_step_gets_the_result_of_a_step_that_had_not_run_when_the_node_last_saw_the_flow() -> None:
    flow = new_flow()
    first = flow.add_step("first", TASK)
    middle = flow.add_step("middle", TASK, after=[first])
    flow.add_step("last", TASK, payload={"x": middle})
    flow.add_step("other", TASK)
    bench = Bench(flow)
    bench.claim()
    assert bench.end(bench.first, "/f~first", "failed")
    bench.again(step="first")
    bench.claim()
    assert bench.end(bench.second, "/f~first@2")
    bench.claim()
    assert bench.end(bench.second, "/f~middle", result="found")
    (run,) = bench.claim()
    (given,) = FlowArguments(bench.first.rows).complete([run])
    assert isinstance(given, RunRecord)
    assert json.loads(given.payload) == {"x": "found"}


def test_a_flow_within_a_flow_keeps_the_results_among_its_arguments() -> None:
    inner = new_flow("inner")
    before = inner.add_step("before", TASK)
    inner.add_step("after", TASK, after=[before], payload={"x": inner.parameter("x")})
    outer = new_flow("outer")
    made = outer.add_step("made", TASK)
    outer.add_step("inner", inner, payload={"x": made})
    bench = Bench(outer)
    bench.claim()
    assert bench.end(bench.first, "/f~made", result=[1, 2])
    bench.begin(inner)
    bench.claim()
    assert bench.end(bench.second, "/f~inner~before")
    assert json.loads(bench.run("/f~inner~after").payload) == {"x": [1, 2]}


def test_a_flow_within_a_flow_that_was_cancelled_at_its_end_runs_again() -> None:
    inner = new_flow("inner")
    inner.add_step("only", TASK)
    outer = new_flow("outer")
    outer.add_step("inner", inner)
    bench = Bench(outer)
    bench.begin(inner)
    bench.claim()
    bench.first.stop(bench.run("/f~inner"), "cancelled", bench.clock())
    assert bench.end(bench.first, "/f~inner~only")
    assert (bench.run("/f~inner").state, bench.run("/f").state) == ("cancelled", "failed")
    bench.again()
    assert (bench.run("/f~inner").state, bench.run("/f").state) == ("running", "running")
    bench.claim()
    assert bench.end(bench.first, "/f~inner~only@2")
    assert (bench.run("/f~inner").state, bench.run("/f").state) == ("succeeded", "succeeded")


def test_a_flow_is_not_resumed_beside_a_tick_that_fires_meanwhile() -> None:
    flow = new_flow()
    flow.add_step("a", TASK)
    bench = Bench(flow, schedule="every 10s")
    (step,) = bench.claim()
    flow_id = step.id.removesuffix("~a")
    assert bench.end(bench.first, step.id, "failed")
    bench.clock.advance("10s")
    bench.store.before_settling = lambda: bench.store.fire_due(bench.clock(), 1, plan)
    with pytest.raises(RunRefused, match="bounds its active runs"):
        bench.again(flow_id)
    assert len(bench.store.find_runs(RunQuery(states=("queued", "running"))).items) == 1


def test_a_flow_that_changes_while_the_safety_net_looks_does_not_stand_still(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = new_flow()
    flow.add_step("a", TASK)
    flow.add_step("b", TASK)
    bench = Bench(flow)
    bench.claim()
    seen = bench.run("/f")
    assert bench.end(bench.second, "/f~a")
    with caplog.at_level(logging.ERROR, "evenbeat"):
        assert check_flow(bench.store, bench.first, seen, lambda: "token", bench.clock()) == []
    assert not caplog.records
    assert bench.letters() == "so"


def test_a_flow_is_cancelled_though_the_process_that_was_asked_for_it_died() -> None:
    flow = new_flow()
    steps = flow.add_step("a", TASK)
    steps = flow.add_step("b", TASK, after=[steps])
    flow.add_step("c", TASK, after=[steps])
    bench = Bench(flow)
    bench.claim()
    request = attempts.cancel(bench.run("/f"), bench.clock(), "asked")
    assert request is not None
    assert bench.store.settle_runs([request]) == [True]
    assert bench.end(bench.first, "/f~a")
    assert bench.run("/f").state == "cancelled"
    assert bench.run("/f~b").state == "cancelled"


def test_a_flow_within_a_flow_of_which_no_step_can_start_is_not_waited_for() -> None:
    inner = new_flow("inner")
    inner.add_step("none", TASK, map_over=inner.parameter("x"))
    outer = new_flow("outer")
    outer.add_step("inner", inner, payload={"x": "no list"})
    outer.add_step("other", TASK)
    bench = Bench(outer)
    bench.begin(inner)
    assert bench.run("/f~inner").state == "failed"
    bench.claim()
    assert bench.end(bench.first, "/f~other", "failed")
    bench.again()
    assert bench.letters() == "fo"
    bench.claim()
    assert bench.end(bench.first, "/f~other@2")
    assert bench.run("/f").state == "failed"
    with pytest.raises(RunRefused, match="no step that failed"):
        bench.again()


def test_an_element_that_retention_has_deleted_is_not_waited_for() -> None:
    flow = new_flow()
    flow.add_step("m", TASK, map_over=[1, 2, 3])
    bench = Bench(flow)
    bench.claim()
    assert bench.end(bench.first, "/f~m~0", "failed")
    bench.clock.advance("1s")
    assert bench.store.purge(bench.clock(), 10).deleted == 1
    assert bench.end(bench.first, "/f~m~1", "failed")
    assert bench.end(bench.first, "/f~m~2")
    bench.again()
    assert bench.letters() == "o"
    bench.claim()
    assert bench.end(bench.first, "/f~m~1")
    assert bench.run("/f").state == "failed"
    with pytest.raises(RunRefused, match="no step that failed"):
        bench.again()


def test_ends_of_one_claim_are_looked_up_one_by_one() -> None:
    flow = new_flow()
    flow.add_step("m", TASK, map_over=[1, 2, 3, 4])
    bench = Bench(flow)
    bench.claim()
    # A worker derives the tokens of all runs of a claim from the token of the claim.
    ends = [
        End(bench.run(run_id), attempts.succeeded(bench.run(run_id), "null", bench.clock(), "claim.returned"))
        for run_id in ("/f~m~0", "/f~m~1")
    ]
    bench.store.loses = True
    with pytest.raises(StoreUnavailable):
        bench.first.settle(ends, bench.clock())
    assert [bench.first.settle([end], bench.clock()).answers for end in ends] == [[True], [True]]
    assert bench.end(bench.second, "/f~m~2", "failed")
    assert bench.end(bench.first, "/f~m~3")
    assert bench.run("/f").state == "failed"
