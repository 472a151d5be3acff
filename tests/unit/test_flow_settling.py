"""The ends of steps and what follows: with several nodes, lost replies, and deaths between any two calls."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import Event, Flow, RunContext, Scheduler
from evenbeat.core.records import Execution, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.node.flow_arguments import FlowArguments
from evenbeat.node.flow_checks import check_flow
from evenbeat.node.flow_rows import FlowRows
from evenbeat.node.flows import Begin, End, FlowSettling
from evenbeat.node.pruner import Pruner
from evenbeat.node.reaper import Reaper
from evenbeat.observe.events import Events
from evenbeat.rules import attempts, flows
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.stores.base import Claim, RunQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.supervision.dead_child_runs import DeadChildRuns, HandBack
from evenbeat.tasks.flow import all_graphs
from evenbeat.testing.clock import VirtualClock

CALLS = ("settle_runs", "find_runs", "get_record")


class Died(BaseException):
    """The process ends here."""


class FaultyStore(MemoryStore):
    """A store in memory whose n-th call from now fails, before or after it took effect."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.fails_in: int | None = None
        self.is_after = False
        self.error: type[BaseException] = StoreUnavailable
        self.has_failed = False

    def _faulty(self, call: Callable[[], Any]) -> Any:
        if self.fails_in is None:
            return call()
        self.fails_in -= 1
        if self.fails_in > 0:
            return call()
        self.fails_in = None
        self.has_failed = True
        if self.is_after:
            call()
        raise self.error("no answer")

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        done: list[bool] = self._faulty(lambda: MemoryStore.settle_runs(self, transitions))
        return done

    def find_runs(self, query: RunQuery) -> Any:
        return self._faulty(lambda: MemoryStore.find_runs(self, query))

    def get_record(self, kind: str, tenant: str, key: str) -> Any:
        return self._faulty(lambda: MemoryStore.get_record(self, kind, tenant, key))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Iterator[FaultyStore]:
    store = FaultyStore(clock)
    store.open()
    yield store
    store.close()


def described(shape: str = "diamond") -> Flow[..., Any]:
    app = Scheduler("memory://")

    @app.task
    def work(n: Any = None) -> Any: ...

    @app.flow
    def inner() -> Any:
        return work.step(work.step(1, step_name="x"), step_name="y")

    def diamond() -> Any:
        top = work.step(1, step_name="top")
        return work.step([work.step(top, step_name="a"), work.step(top, step_name="b")], step_name="join")

    def mapped() -> Any:
        return work.step(work.map(work.step(step_name="list"), step_name="each"), step_name="join")

    def nested() -> Any:
        return work.step([inner.step(step_name="in1"), inner.step(step_name="in2")], step_name="join")

    return app.flow(name=shape)({"diamond": diamond, "mapped": mapped, "nested": nested}[shape])


def begin(store: FaultyStore, settling: FlowSettling, flow: Flow[..., Any], run_id: str = "/f") -> RunRecord:
    now = store.now()
    store.add_runs([RunRecord(id=run_id, task=flow.name, kind="flow", run_at=now, created_at=now)])
    (run,) = claim(store, {flow.name})
    records = flows.graph_records(all_graphs(flow))
    settled = settling.settle((), now, [Begin(run, flow.graph, records)])
    assert settled.answers == [True]
    return row(store, run_id)


def claim(store: Store, tasks: set[str], limit: int = 100) -> list[RunRecord]:
    number = next(_tokens)
    wanted = Claim(
        worker=f"w{number}",
        token=f"c{number}",
        limit=limit,
        now=store.now(),
        lease=30_000,
        tasks=frozenset(tasks),
    )
    return list(store.claim_runs(wanted).runs)


_tokens = itertools.count()


def row(store: FaultyStore, run_id: str) -> RunRecord:
    (found,) = MemoryStore.find_runs(store, RunQuery(ids=(run_id,))).items
    return found


def letters(store: FaultyStore, run_id: str = "/f") -> str:
    state = flow_part(row(store, run_id)).state
    assert state is not None
    return state.steps


def reap(reaper: Reaper, clock: VirtualClock, seconds: int) -> None:
    """Let time pass, with a step of the reaper every ten seconds."""
    for _ in range(0, seconds, 10):
        reaper.step(clock.now)
        clock.advance("10s")
    reaper.step(clock.now)


def success(run: RunRecord, store: FaultyStore, result: str = "1") -> End:
    return End(run, attempts.succeeded(run, result, store.now(), f"end.{run.id}.{run.attempt}"))


def test_two_nodes_that_end_the_steps_before_a_join_start_it_once(
    store: FaultyStore, clock: VirtualClock
) -> None:
    first, second = FlowSettling(store, "w1"), FlowSettling(store, "w2")
    begin(store, first, described())
    (top,) = claim(store, {"work"})
    first.settle([success(top, store)], clock.now)
    a, b = sorted(claim(store, {"work"}), key=lambda run: run.id)
    # Both know the flow as it is now: the second one to write must not believe it.
    second.settle([], clock.now)
    second.rows._flows["/f"] = first.rows._flows["/f"]
    assert first.settle([success(a, store)], clock.now).started == []
    settled = second.settle([success(b, store)], clock.now)
    assert settled.answers == [True]
    assert [run.id for run in settled.started] == ["/f~join"]
    assert letters(store) == "ssso"
    (join,) = claim(store, {"work"})
    assert first.settle([success(join, store, "9")], clock.now).ended[0].run.id == "/f"
    assert (row(store, "/f").state, row(store, "/f").result) == ("succeeded", "9")


def test_an_end_that_another_worker_has_made_is_refused_and_the_others_count(
    store: FaultyStore, clock: VirtualClock
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store)], clock.now)
    a, b = sorted(claim(store, {"work"}), key=lambda run: run.id)
    late = replace(a, attempt=7)
    assert settling.settle([success(late, store), success(b, store)], clock.now).answers == [False, True]
    assert letters(store) == "sos."
    # A gate or a heartbeat of another run in the same batch does not matter.
    beat = End(a, attempts.heartbeat(a, 60_000, "h"))
    assert settling.settle([beat, success(a, store)], clock.now).answers == [True, True]
    assert letters(store) == "ssso"


class Node:
    """A node without threads: claims, ends what it claimed, and takes over what dead ones held."""

    def __init__(self, store: FaultyStore, clock: VirtualClock, flow: Flow[..., Any]) -> None:
        self._store = store
        self._clock = clock
        self._flow = flow
        self._settling = FlowSettling(store, "node")
        self._nested = {graph.name: graph for graph in all_graphs(flow)}
        self.ran: list[str] = []
        """The runs whose function was called."""

    def step(self) -> bool:
        """Do one round; return whether there was anything to do."""
        store, now = self._store, self._clock.now
        runs = claim(store, {"work", *self._nested}, limit=3)
        given = FlowArguments(self._settling.rows).complete(runs)
        ends: list[End] = []
        begins: list[Begin] = []
        for run in given:
            assert isinstance(run, RunRecord), run
            if run.task in self._nested:
                records = flows.graph_records(self._nested.values())
                begins.append(Begin(run, self._nested[run.task], records))
                continue
            self.ran.append(run.id)
            is_list = run.id.partition("@")[0].endswith("~list")
            ends.append(success(run, store, "[1,2,3]" if is_list else run.payload))
        for tries in itertools.count():
            try:
                self._settling.settle(ends, now, begins)
                break
            except StoreUnavailable:
                assert tries < 3
        return bool(runs)

    def reap(self) -> None:
        self._clock.advance("31s")
        lost = self._store.lost_runs(self._clock.now, 100).runs
        for run in lost:
            if is_begun(run):
                check_flow(self._store, self._settling, run, lambda: f"t{next(_tokens)}", self._clock.now)
        ends = [
            End(run, attempts.crashed(run, self._clock.now, f"x{next(_tokens)}"))
            for run in lost
            if not is_begun(run)
        ]
        self._settling.settle(ends, self._clock.now)


@pytest.mark.parametrize("shape", ["diamond", "mapped", "nested"])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("error", [StoreUnavailable, Died])
def test_a_death_or_a_lost_reply_at_any_call_leaves_nothing_standing_still_and_nothing_twice(
    shape: str, is_after: bool, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    flow = described(shape)
    expected: set[str] | None = None
    for at in itertools.count():
        clock = VirtualClock()
        store = FaultyStore(clock)
        store.open()
        store.add_runs([RunRecord(id="/f", task=shape, kind="flow", execution=Execution(max_crashes=50))])
        node = Node(store, clock, flow)
        if at:
            store.fails_in, store.is_after, store.error = at, is_after, error
        for _ in range(60):
            try:
                if not node.step():
                    if row(store, "/f").state not in ("queued", "running"):
                        break
                    node.reap()
            except StoreUnavailable:
                continue
            except Died:
                node = Node(store, clock, flow)
        found = MemoryStore.find_runs(store, RunQuery(limit=100)).items
        assert {run.state for run in found} == {"succeeded"}, (at, letters(store))
        ids = {run.id for run in found}
        expected = expected or ids
        assert ids == expected, at
        if at and not store.has_failed:
            break
        store.close()
    assert at > 3
    assert "stood still" not in caplog.text


def test_a_flow_that_stands_still_is_found_when_its_lease_ends(
    store: FaultyStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described("mapped"))
    (made,) = claim(store, {"work"})
    settling.settle([success(made, store, "[1,2]")], clock.now)
    one, two = claim(store, {"work"})
    # Somebody ends an element without its flow.
    assert store.settle_runs([success(one, store).transition]) == [True]
    settling.settle([success(two, store)], clock.now)
    assert letters(store) == "so."
    reaper = Reaper(store, Events(), 30_000, clock=lambda: clock.now / 1000)
    reap(reaper, clock, 290)
    assert letters(store) == "so."
    with caplog.at_level(logging.ERROR):
        reap(reaper, clock, 30)
    assert "a flow stood still" in caplog.text
    assert letters(store) == "sso"
    (join,) = claim(store, {"work"})
    (given,) = FlowArguments(FlowRows(store)).complete([join])
    assert isinstance(given, RunRecord)
    assert given.payload == '{"n":[1,1]}'
    # All is well: it is looked at again five minutes later.
    caplog.clear()
    assert store.settle_runs([attempts.heartbeat(join, 1_000_000, "h")]) == [True]
    reap(reaper, clock, 320)
    assert "stood still" not in caplog.text
    assert (row(store, "/f").lease_until or 0) > clock.now + 200_000


def test_an_end_that_can_not_be_written_does_not_block_the_others(
    store: FaultyStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described("mapped"))
    (made,) = claim(store, {"work"})
    settling.settle([success(made, store, "[1,2,3]")], clock.now)
    ends = [success(run, store, "poison" if run.id.endswith("~1") else "1") for run in claim(store, {"work"})]
    write = store.settle_runs

    def refusing(transitions: Sequence[Transition]) -> list[bool]:
        if "poison" in str(transitions):
            raise ValueError("can't be written")
        return write(transitions)

    monkeypatch.setattr(store, "settle_runs", refusing)
    settled = settling.settle(ends, clock.now)
    assert settled.answers == [True, False, True]
    assert caplog.text.count("the end of a step can't be written") == 1
    states = {run.id: run.state for run in MemoryStore.find_runs(store, RunQuery()).items}
    assert (states["/f~each~0"], states["/f~each~1"], states["/f~each~2"]) == (
        "succeeded",
        "running",
        "succeeded",
    )
    state = flow_part(row(store, "/f")).state
    assert state is not None
    assert state.maps["1"].open == 1


def test_a_step_whose_run_is_gone_has_failed(store: FaultyStore, clock: VirtualClock) -> None:
    settling = FlowSettling(store, "w1")
    flow = begin(store, settling, described())
    store._runs.pop("/f~top")
    ended = settling.recount(flow, clock.now)
    assert ended is not None
    assert [each.run.id for each in ended] == ["/f"]
    assert row(store, "/f").state == "failed"


def test_a_small_result_is_not_read_again_by_the_process_that_wrote_it(
    store: FaultyStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store, '"kept"')], clock.now)
    a, b = claim(store, {"work"})
    read: list[tuple[str, ...] | None] = []
    find = store.find_runs

    def noting(query: RunQuery) -> Any:
        read.append(query.ids)
        return find(query)

    monkeypatch.setattr(store, "find_runs", noting)
    given = FlowArguments(settling.rows).complete([a, b])
    assert [run.payload for run in given if isinstance(run, RunRecord)] == ['{"n":"kept"}'] * 2
    assert read == []
    settling.settle([success(a, store, f'"{"x" * 20_000}"')], clock.now)
    settling.settle([success(b, store, "2")], clock.now)
    (join,) = claim(store, {"work"})
    read.clear()
    (whole,) = FlowArguments(settling.rows).complete([join])
    assert isinstance(whole, RunRecord)
    # The large one alone is read.
    assert read == [(a.id,)]
    assert len(whole.payload) > 20_000


def test_a_result_that_was_deleted_is_named(store: FaultyStore, clock: VirtualClock) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store)], clock.now)
    store._runs.pop("/f~top")
    a, _ = claim(store, {"work"})
    (why,) = FlowArguments(FlowRows(store)).complete([a])
    assert isinstance(why, str)
    assert "the result of step top was deleted" in why


def test_the_pruner_keeps_the_results_of_flows_under_way_for_a_month(
    store: FaultyStore, clock: VirtualClock
) -> None:
    settling = FlowSettling(store, "w1")
    begin(store, settling, described())
    (top,) = claim(store, {"work"})
    settling.settle([success(top, store)], clock.now)
    pruner = Pruner(store, retention=3_600_000)

    def prune() -> bool:
        clock.advance("1m")
        for _ in range(5):
            pruner.step(clock.now)
        return not MemoryStore.find_runs(store, RunQuery(ids=("/f~top",))).items

    clock.advance("1d")
    assert not prune()
    clock.advance("28d")
    assert not prune()
    clock.advance("2d")
    assert prune()


def test_a_worker_that_dies_with_a_step_fails_the_flow_by_the_policy_of_the_step(
    store: FaultyStore, clock: VirtualClock
) -> None:
    app = Scheduler("memory://")

    @app.task(on_crash="fail")
    def work(run: RunContext) -> None: ...

    @app.flow
    def flow() -> None:
        work.step()

    events = Events()
    heard: list[str] = []
    events.listen(lambda event: heard.append(f"{event.kind} {event.run.task if event.run else ''}"))
    settling = FlowSettling(store, "w1")
    begin(store, settling, flow)
    claim(store, {"work"})
    reaper = Reaper(store, events, 30_000, clock=lambda: clock.now / 1000)
    reap(reaper, clock, 50)
    assert (row(store, "/f").state, row(store, "/f~work").state) == ("failed", "failed")
    assert heard == ["failed flow", "crashed work"]


def test_the_supervisor_reports_a_flow_that_ends_with_a_step_of_a_dead_child() -> None:
    app = Scheduler("memory://")

    @app.task(on_crash="fail")
    def work() -> None: ...

    flow = app.new_flow("flow")
    flow.add_step("only", work)
    heard: list[tuple[str, str]] = []

    @app.on_event
    def note(event: Event) -> None:
        assert event.run is not None
        heard.append((event.kind, event.run.id))

    store = app.store
    store.add_runs([RunRecord(id="/f", task="flow", kind="flow", run_at=store.now())])
    (claimed,) = claim(store, {"flow"})
    start = Begin(claimed, flow.graph, flows.graph_records([flow.graph]))
    FlowSettling(store, "worker").settle((), store.now(), [start])
    (step,) = claim(store, {"work"})
    assert step.worker is not None
    HandBack(app).add(DeadChildRuns(step.worker, "crashed", "signal 9"))
    assert heard == [("crashed", "/f~only"), ("failed", "/f")]
