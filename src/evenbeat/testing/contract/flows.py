"""Flows: the ends of steps, and what follows from them, are one step of the store."""

from __future__ import annotations

import itertools
import threading

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, RunState, Transition
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import PENDING
from evenbeat.rules.firing import Planned
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import RunQuery, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import BIG, Contract, Handles, run, schedule

_CHECK = 300_000


def _advance(
    flow: RunRecord, token: str, ends: tuple[Transition, ...], text: str, adds: tuple[RunRecord, ...] = ()
) -> Transition:
    """A change of a flow that goes on: by compare-and-set on its attempt."""
    return Transition(
        run=flow.id,
        attempt=flow.attempt,
        claim=flow.claim,
        expect=("running",),
        token=token,
        state="running",
        worker=None,
        lease=_CHECK,
        flow=text,
        renews=True,
        ends=ends,
        adds=adds,
    )


class FlowsContract(Contract):
    def _held(self, store: Store, *steps: str, schedule: str | None = None) -> tuple[RunRecord, ...]:
        """Return a flow that has begun, then running steps of it."""
        now = store.now()
        tick = {} if schedule is None else {"schedule": schedule, "tick": now, "generation": 1}
        store.add_runs([run("f", run_at=now, kind="flow", task="nightly", **tick)])
        (flow,) = self.claim(store, "claim-flow", tasks=frozenset({"nightly"}))
        added = tuple(run(f"f~{step}", run_at=now, flow=f'{{"member":"{step}"}}') for step in steps)
        begun = _advance(flow, "begun", (), '{"steps":"."}', added)
        assert store.settle_runs([begun]) == [True]
        held = {found.id: found for found in self.claim(store, "claim-steps")}
        return (self._get(store, "f"), *(held[f"f~{step}"] for step in steps))

    def _get(self, store: Store, run_id: str) -> RunRecord:
        (found,) = self.runs(store, ids=(run_id,))
        return found

    def test_a_flow_that_has_begun_runs_without_a_worker_until_its_lease_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        flow, step = self._held(store, "a")
        assert (flow.state, flow.worker, flow.flow, flow.kind) == ("running", None, '{"steps":"."}', "flow")
        assert flow.attempt == 2
        assert step.flow == '{"member":"a"}'
        assert step.kind == "task"
        clock.advance("60s")
        assert [found.id for found in store.lost_runs(store.now(), 10).runs] == ["f~a"]
        clock.advance("300s")
        lost = store.lost_runs(store.now(), 10).runs
        assert sorted(found.id for found in lost) == ["f", "f~a"]
        assert {found.flow for found in lost} == {'{"steps":"."}', '{"member":"a"}'}

    def test_the_ends_of_steps_the_flow_and_what_follows_are_one_step(
        self, store: Store, clock: VirtualClock
    ) -> None:
        flow, first, second = self._held(store, "a", "b")
        ends = (
            attempts.succeeded(first, "1", clock.now, "a1"),
            attempts.failed(second, "boom", clock.now, "b1"),
        )
        note = Record(kind="audit", key="1", body="noted")
        after = run("f~c", run_at=clock.now, payload='{"n":2}', flow='{"member":"c"}')
        change = replace(_advance(flow, "x1", ends, '{"steps":"sf"}', (after,)), records=(note,))
        assert store.settle_runs([change]) == [True]
        rows = {found.id: found for found in self.runs(store)}
        assert (rows["f~a"].state, rows["f~a"].result) == ("succeeded", "1")
        assert (rows["f~b"].state, rows["f~b"].error) == ("failed", "boom")
        assert (rows["f~c"].state, rows["f~c"].payload) == ("queued", '{"n":2}')
        assert (rows["f"].state, rows["f"].flow, rows["f"].attempt) == ("running", '{"steps":"sf"}', 3)
        assert store.find_records("audit") == [note]

    def test_the_text_of_a_flow_is_kept_as_it_is(self, store: Store, clock: VirtualClock) -> None:
        text = '{"a":"\\u0000 \u2400 \u241b \u00e9 \U0001f600 \\" \\\\ \\n"}'
        flow, step = self._held(store, "a")
        end = attempts.succeeded(step, "1", clock.now, "a1")
        change = _advance(flow, "x1", (end,), text, (run("f~b", run_at=clock.now, flow=text),))
        assert store.settle_runs([change]) == [True]
        assert self._get(store, "f").flow == text
        (held,) = self.claim(store, "claim-b")
        assert held.flow == text
        assert store.settle_runs([replace(attempts.succeeded(held, "1", clock.now, "b1"), flow="{}")]) == [
            True
        ]
        assert self._get(store, "f~b").flow == "{}"

    def test_two_parts_of_one_run_are_refused(self, store: Store, clock: VirtualClock) -> None:
        # The store remembers only the last token of a run, so it could not recognize a repetition.
        flow, step = self._held(store, "a")
        before = self.runs(store)
        release = attempts.released(step, clock.now, "a1")
        end = attempts.succeeded(step, "1", clock.now, "a2")
        own = attempts.succeeded(flow, "1", clock.now, "f1")
        assert store.settle_runs([_advance(flow, "x1", (release, end), "1")]) == [False]
        assert store.settle_runs([_advance(flow, "x2", (own, end), "1")]) == [False]
        assert self.runs(store) == before
        assert store.count_runs() == {"running": 2}

    def test_if_one_part_is_refused_nothing_changes(self, store: Store, clock: VirtualClock) -> None:
        flow, first, second = self._held(store, "a", "b")
        before = self.runs(store)
        note = Record(kind="audit", key="1", body="noted")
        after = run("f~c", run_at=clock.now)
        good = attempts.succeeded(first, "1", clock.now, "a1")
        stale = attempts.succeeded(replace(second, attempt=7), "2", clock.now, "b1")
        missing = attempts.succeeded(replace(second, id="f~z"), "2", clock.now, "z1")
        gated = replace(attempts.succeeded(second, "2", clock.now, "b2"), gate=("default", "none", 3, 3))
        refused = [
            replace(_advance(flow, f"x{at}", (good, bad), "{}", (after,)), records=(note,))
            for at, bad in enumerate((stale, missing, gated))
        ]
        late = _advance(replace(flow, attempt=1), "x9", (good,), "{}", (after,))
        assert store.settle_runs([*refused, late]) == [False] * 4
        assert [store.settle_runs([one]) for one in (*refused, late)] == [[False]] * 4
        assert self.runs(store) == before
        assert store.find_records("audit") == []

    def test_a_repetition_is_accepted_also_when_the_flow_has_gone_on(
        self, store: Store, clock: VirtualClock
    ) -> None:
        flow, first, second = self._held(store, "a", "b")
        one = _advance(
            flow,
            "x1",
            (attempts.succeeded(first, "1", clock.now, "a1"),),
            "1",
            (run("f~c", run_at=clock.now),),
        )
        assert store.settle_runs([one]) == [True]
        assert store.settle_runs([one]) == [True]
        again = _advance(
            replace(flow, attempt=3), "x2", (attempts.succeeded(second, "2", clock.now, "b1"),), "2"
        )
        assert store.settle_runs([again]) == [True]
        after = self.runs(store)
        assert store.settle_runs([one]) == [True]
        assert store.settle_runs([one, again]) == [True, True]
        assert self.runs(store) == after
        assert self._get(store, "f").attempt == 4

    def test_changes_of_one_flow_in_one_call_build_on_each_other(
        self, store: Store, clock: VirtualClock
    ) -> None:
        flow, first, second = self._held(store, "a", "b")
        one = _advance(flow, "x1", (attempts.succeeded(first, "1", clock.now, "a1"),), "1")
        late = _advance(flow, "x2", (attempts.succeeded(second, "2", clock.now, "b1"),), "2")
        assert store.settle_runs([one, late]) == [True, False]
        assert self._get(store, "f~b").state == "running"
        two = _advance(replace(flow, attempt=3), "x3", late.ends, "2")
        plain = attempts.heartbeat(second, 60_000, "h1")
        # The heartbeat comes after the end of its run, and is refused.
        assert store.settle_runs([two, plain]) == [True, False]
        assert (self._get(store, "f").flow, self._get(store, "f~b").state) == ("2", "succeeded")

    def test_the_end_of_a_flow_counts_wakes_and_ends_like_that_of_any_run(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule("nightly", "every 1h", task="nightly", kind="flow", overlap="skip"))
        flow, step = self._held(store, "a", schedule="nightly")
        clock.advance("1s")
        ends = (attempts.succeeded(step, "1", clock.now, "a1"),)
        final = replace(
            attempts.succeeded(flow, "9", clock.now, "x1"), ends=ends, flow='{"steps":"s"}', renews=True
        )
        assert store.settle_runs([final]) == [True]
        assert store.settle_runs([final]) == [True]
        ended = self._get(store, "f")
        assert (ended.state, ended.result, ended.flow, ended.lease_until) == (
            "succeeded",
            "9",
            '{"steps":"s"}',
            None,
        )
        (figures,) = store.statistics([("default", "nightly")])
        assert (figures.run_count, figures.success_count, figures.last_success) == (1, 1, clock.now)
        assert store.lost_runs(store.now() + 10 * _CHECK, 10).runs == ()

    def test_the_end_of_a_flow_fires_its_followers_and_wakes_a_schedule_that_waits(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = self.add(store, schedule("nightly", "every 1h", task="nightly", kind="flow", overlap="queue"))
        self.put(store, row, Planned(replace(row, followers="report", revision=row.revision + 1)))
        self.add(store, schedule("report", "on success of nightly"))
        flow, step = self._held(store, "a", schedule="nightly")
        clock.advance("1h")
        self.fire(store)
        ends = (attempts.succeeded(step, "1", clock.now, "a1"),)
        stale = replace(attempts.succeeded(replace(flow, attempt=1), "9", clock.now, "x1"), ends=ends)
        assert store.settle_runs([stale]) == [False]
        assert store.find_records(PENDING) == []
        final = replace(attempts.succeeded(flow, "9", clock.now, "x2"), ends=ends, renews=True)
        assert store.settle_runs([final, final]) == [True, True]
        assert [record.key for record in store.find_records(PENDING)] == [f"report/f@{clock.now}"]
        woken = {name: found.wake_at for name in ("nightly", "report") if (found := self.get(store, name))}
        assert all(at is not None and at <= clock.now for at in woken.values()), woken

    def test_an_end_has_a_gate_statistics_and_followers_like_any_transition(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = self.add(store, schedule("load", "every 1h"))
        row = replace(row, followers="report", revision=row.revision + 1)
        assert self.put(store, replace(row, revision=row.revision - 1), Planned(row)).accepted
        self.add(store, schedule("report", "on success of load"))
        (flow,) = self._held(store)
        store.add_runs([run("s", run_at=clock.now, schedule="load", tick=clock.now, generation=1)])
        (step,) = self.claim(store, "claim-s")
        end = attempts.succeeded(step, "1", clock.now, "s1")
        late = replace(end, gate=("default", "load", row.generation, row.revision + 1))
        assert store.settle_runs([_advance(flow, "x1", (late,), "1")]) == [False]
        assert store.find_records(PENDING) == []
        end = replace(end, gate=("default", "load", row.generation, row.revision))
        change = _advance(flow, "x2", (end,), "1")
        assert store.settle_runs([change, change]) == [True, True]
        assert [record.key for record in store.find_records(PENDING)] == [f"report/s@{clock.now}"]
        (figures,) = store.statistics([("default", "load")])
        assert (figures.run_count, figures.success_count) == (1, 1)
        found = self.get(store, "report")
        assert found is not None
        assert found.wake_at == clock.now

    def test_the_end_of_a_step_frees_its_slot_of_a_limit(self, store: Store, clock: VirtualClock) -> None:
        assert store.put_record(limit_record(Limit(task="work", concurrency=1)))
        flow, step = self._held(store, "a")
        store.add_runs([run("f~b", run_at=clock.now)])
        assert self.claim(store, "claim-b") == []
        ends = (attempts.succeeded(step, "1", clock.now, "a1"),)
        assert store.settle_runs([_advance(replace(flow, attempt=1), "x1", ends, "1")]) == [False]
        assert self.claim(store, "claim-c") == []
        assert store.settle_runs([_advance(flow, "x2", ends, "1")]) == [True]
        assert [found.id for found in self.claim(store, "claim-d")] == ["f~b"]

    def test_a_flow_within_a_flow_ends_with_its_last_step_and_changes_the_outer_one(
        self, store: Store, clock: VirtualClock
    ) -> None:
        outer, inner, step = self._held(store, "inner", "x")
        begun = replace(_advance(inner, "inner-begun", (), '{"steps":"o"}'), payload='{"n":[1,"\u00e9"]}')
        assert store.settle_runs([begun]) == [True]
        inner = self._get(store, "f~inner")
        assert inner.payload == '{"n":[1,"\u00e9"]}'
        end = attempts.succeeded(step, "1", clock.now, "s1")
        inner_end = replace(attempts.succeeded(inner, "1", clock.now, "i1"), ends=(end,), renews=True)
        stale = _advance(replace(outer, attempt=1), "o1", (inner_end,), "2")
        assert store.settle_runs([stale]) == [False]
        assert self._get(store, "f~x").state == "running"
        change = _advance(outer, "o2", (inner_end,), "2", (run("f~last", run_at=clock.now),))
        assert store.settle_runs([change]) == [True]
        states = {found.id: found.state for found in self.runs(store)}
        assert states == {"f": "running", "f~inner": "succeeded", "f~x": "succeeded", "f~last": "queued"}

    def test_a_flow_that_has_failed_goes_on(self, store: Store, clock: VirtualClock) -> None:
        flow, step = self._held(store, "a")
        failed = replace(
            attempts.failed(flow, "step a failed", clock.now, "x1"),
            ends=(attempts.failed(step, "boom", clock.now, "a1"),),
            renews=True,
        )
        assert store.settle_runs([failed]) == [True]
        ended = self._get(store, "f")
        expect: tuple[RunState, ...] = ("failed",)
        resumed = replace(
            _advance(ended, "x2", (), "again", (run("f~a@2", run_at=clock.now),)),
            expect=expect,
            finished_at=None,
            error=None,
        )
        assert store.settle_runs([resumed]) == [True]
        found = self._get(store, "f")
        assert (found.state, found.finished_at, found.error, found.flow) == ("running", None, None, "again")
        assert [each.id for each in self.claim(store, "claim-again")] == ["f~a@2"]
        clock.advance("301s")
        assert "f" in [lost.id for lost in store.lost_runs(store.now(), 10).runs]

    def test_ten_nodes_that_end_steps_at_once_change_the_flow_one_after_the_other(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        names = [f"s{number}" for number in range(10)]
        _, *steps = self._held(store, *names)
        left = list(steps)
        lock = threading.Lock()

        def end_one(handle: Store) -> None:
            with lock:
                step = left.pop()
            for turn in range(1_000):
                (flow,) = handle.find_runs(RunQuery(ids=("f",))).items
                counted = int(flow.flow or "0") if (flow.flow or "0").isdigit() else 0
                after = (run("f~join", run_at=clock.now),) if counted == 9 else ()
                end = attempts.succeeded(step, "1", clock.now, f"e-{step.id}")
                change = _advance(flow, f"t-{step.id}-{turn}", (end,), str(counted + 1), after)
                if handle.settle_runs([change])[0]:
                    return
            raise AssertionError("never accepted")

        self.in_threads(handles, end_one)
        assert self._get(store, "f").flow == "10"
        assert [found.id for found in self.runs(store, states=("queued",))] == ["f~join"]

    def test_nodes_that_change_the_same_runs_in_different_orders_all_get_their_turn(
        self, handles: Handles, store: Store
    ) -> None:
        held = self._held(store, "a", "b", "c")
        orders = itertools.cycle(itertools.permutations(held))
        numbers = itertools.count()
        lock = threading.Lock()

        def extend(handle: Store) -> None:
            for _ in range(5):
                with lock:
                    number, (first, *others) = next(numbers), next(orders)
                own = attempts.heartbeat(first, 60_000, f"{number}-{first.id}")
                ends = tuple(attempts.heartbeat(run, 60_000, f"{number}-{run.id}") for run in others)
                assert handle.settle_runs([replace(own, ends=ends)]) == [True]

        self.in_threads(handles, extend)
        tokens = {(found.settled or "").partition("-")[0] for found in self.runs(store)}
        assert len(tokens) == 1  # of the last one, which changed all runs

    def test_a_change_adds_ten_thousand_runs_at_once(self, store: Store, clock: VirtualClock) -> None:
        flow, step = self._held(store, "a")
        text = "x" * 300
        many = tuple(
            run(
                f"f~m~{number}", run_at=clock.now, payload=f'{{"part":"{text}{number}"}}', flow='{"member":1}'
            )
            for number in range(10_000)
        )
        change = _advance(flow, "x1", (attempts.succeeded(step, "[]", clock.now, "a1"),), "1", many)
        assert store.settle_runs([change]) == [True]
        now: Instant = store.now()
        assert store.count_runs()["queued"] == BIG
        assert store.settle_runs([change]) == [True]
        assert store.count_runs()["queued"] == BIG
        assert len(self.claim(store, "claim-many", limit=500, now=now)) == 500

    def test_a_change_ends_ten_thousand_steps_at_once(self, store: Store, clock: VirtualClock) -> None:
        (flow,) = self._held(store)
        store.add_runs([run(f"f~m~{number}", run_at=clock.now) for number in range(BIG)])
        held = self.claim(store, "claim-many", limit=BIG)
        assert len(held) == BIG
        ends = tuple(attempts.cancelled(step, clock.now, f"end-{step.id}") for step in held)
        refused = (*ends, attempts.cancelled(replace(held[0], id="missing"), clock.now, "end-missing"))
        assert store.settle_runs([_advance(flow, "x1", refused, "1")]) == [False]
        assert store.count_runs() == {"running": BIG + 1}
        change = _advance(flow, "x2", ends, "2")
        assert store.settle_runs([change]) == [True]
        assert store.count_runs() == {"running": 1, "cancelled": BIG}
        assert store.settle_runs([change]) == [True]
        assert store.lost_runs(store.now() + 10 * _CHECK, 10).runs == ()
