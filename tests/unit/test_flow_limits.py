"""Flows under limits: what they count as, and that their steps never wait for their own slots."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from evenbeat.app.limits import read_usage
from evenbeat.core.records import RunRecord
from evenbeat.doctor.flows import flow_findings
from evenbeat.errors import RunRefused
from evenbeat.rules import attempts, flows
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.testing import VirtualScheduler, virtual


def add_flows(time: VirtualScheduler, number: int, **fields: Any) -> None:
    """Add runs of a flow as the command line does, which does not know that it is a flow."""
    now = time.app.store.now()
    runs = [
        RunRecord(id=f"flow-{at}", task="outer", run_at=now, scheduled_at=now, created_at=now, **fields)
        for at in range(number)
    ]
    assert time.app.store.add_runs(runs) == [True] * number


def read_payload(run: RunRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.payload)
    return found


def states(time: VirtualScheduler) -> dict[str, str]:
    return {run.id: run.state for run in time.app.store.find_runs(RunQuery()).items}


def make_outer(time: VirtualScheduler) -> None:
    @time.task
    def work(n: int) -> int:
        return n

    @time.flow
    def inner(n: int) -> Any:
        return work.step(n)

    @time.flow
    def outer() -> Any:
        return work.step(inner.step(work.step(1, step_name="first")), step_name="last")


def test_flows_that_were_stored_as_tasks_do_not_hold_the_slots_of_their_steps() -> None:
    with virtual() as time:
        make_outer(time)

        @time.task
        def innocent() -> None: ...

        time.app.limits.set(tenant="default", concurrency=1)
        add_flows(time, 5)
        innocent.enqueue()
        time.run_pending()
        assert set(states(time).values()) == {"succeeded"}
        (first,) = time.app.store.find_runs(RunQuery(ids=("flow-0",))).items
        assert first.kind == "flow"
        assert list(flow_findings(time.app.store, [], time.app.store.now(), read_usage(time.app.store))) == []


def test_doctor_names_flows_that_stand_still_and_the_next_check_moves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node of an earlier version leaves flows as tasks."""
    with virtual() as time:
        make_outer(time)
        store = time.app.store
        time.app.limits.set(tenant="default", concurrency=1)
        add_flows(time, 3)
        with monkeypatch.context() as earlier:
            earlier.setattr(flows, "_corrected_kind", lambda _: UNSET)
            time.run_pending()
        assert sorted(states(time).values()) == ["queued", "queued", "queued", "running"]
        (found,) = flow_findings(store, [], store.now(), read_usage(store))
        assert found.level == "fail"
        assert found.message.startswith("1 flow waits for ever, for slots of limits")
        assert found.details == ("flow-0, for tenant=default",)
        time.travel("6m")
        assert set(states(time).values()) == {"succeeded"}


def test_a_task_that_was_stored_as_a_flow_waits_for_the_limits_of_tasks() -> None:
    with virtual() as time:
        most: list[int] = []

        @time.task
        def outer() -> None:
            running = time.app.store.find_runs(RunQuery(states=("running",))).items
            most.append(sum(run.kind == "task" for run in running))

        time.app.limits.set(tenant="default", concurrency=1)
        add_flows(time, 3, kind="flow")
        time.run_pending()
        assert set(states(time).values()) == {"succeeded"}
        assert most == [1, 1, 1]


def test_a_limit_by_key_holds_for_steps_that_get_the_key_from_another_step() -> None:
    with virtual() as time:
        running: list[int] = []
        most: list[int] = []

        @time.task
        def find(customer: int) -> int:
            return customer

        @time.task
        def charge(customer: int, of: list[int]) -> int:
            held = time.app.store.find_runs(RunQuery(states=("running",), task="charge")).items
            running.append(customer)
            most.append(sum(customer == read_payload(run)["customer"] for run in held))
            assert of == [customer, 1]
            return customer

        @time.flow
        def bill(customer: int) -> Any:
            found = find.step(customer)
            return charge.step(found, [found, 1])

        time.app.limits.set(task="charge", key="customer", concurrency=1)
        for customer in (7, 7, 8, 9, 7):
            bill.enqueue(customer)
        time.run_pending()
        assert sorted(running) == [7, 7, 7, 8, 9]
        assert most == [1] * 5
        assert set(states(time).values()) == {"succeeded"}
        (limit,) = time.app.limits.list()
        assert (limit.running, limit.waiting) == (0, 0)


def test_without_limits_by_key_steps_are_claimed_once() -> None:
    with virtual() as time:

        @time.task
        def work(n: int) -> int:
            return n

        @time.flow
        def outer() -> Any:
            return work.step(work.step(1, step_name="first"), step_name="last")

        time.app.limits.set(task="work", concurrency=1)
        run = outer.enqueue()
        time.run_pending()
        (last,) = time.app.store.find_runs(RunQuery(ids=(f"{run.id}~last",))).items
        assert (last.state, last.attempt, last.payload) == ("succeeded", 1, "{}")


def test_a_resumed_flow_waits_for_a_slot_of_its_limit_and_so_do_the_flows_within_it() -> None:
    with virtual() as time:
        broken = {"inner"}

        @time.task
        def work(name: str) -> str:
            if name in broken:
                raise ValueError(name)
            return name

        @time.flow
        def inner(name: str) -> Any:
            return work.step(name)

        @time.flow(expires="1m")
        def outer() -> Any:
            return inner.step("inner")

        run = outer.enqueue()
        time.run_pending()
        assert set(states(time).values()) == {"failed"}
        broken.clear()
        time.travel("5m")
        time.app.limits.set(task="outer", concurrency=1)
        time.app.limits.set(task="inner", concurrency=1)
        store = time.app.store
        now = store.now()
        other = [RunRecord(id=name, task=name, kind="flow", run_at=now) for name in ("outer", "inner")]
        store.add_runs(other)
        claim = Claim(worker="elsewhere", token="t", limit=2, now=now, lease=60_000)
        held = store.claim_runs(claim).runs
        assert len(held) == 2
        assert time.app.flows.resume(run.id).state == "queued"
        with pytest.raises(RunRefused, match="waits in the queue to be resumed"):
            time.app.flows.retry(run.id, "inner")
        time.run_pending()
        assert states(time)[run.id] == "queued"
        for task in ("outer", "inner"):
            (each,) = (found for found in held if found.task == task)
            assert store.settle_runs([attempts.succeeded(each, None, store.now(), f"end-{task}")]) == [True]
            time.run_pending()
            running = store.find_runs(RunQuery(states=("running",))).items
            assert len({found.task for found in running}) == len(running)
        assert set(states(time).values()) == {"failed", "succeeded"}  # the first run of the step failed
        assert (states(time)[run.id], states(time)[f"{run.id}~inner"]) == ("succeeded", "succeeded")


def test_a_resumed_flow_is_cancelled_and_resumed_again_while_it_waits() -> None:
    with virtual() as time:
        broken = {1}

        @time.task
        def work(n: int) -> int:
            if n in broken:
                raise ValueError(n)
            return n

        @time.flow
        def outer() -> Any:
            return work.step(1)

        run = outer.enqueue()
        time.run_pending()
        broken.clear()
        time.app.flows.resume(run.id)
        assert time.app.flows.cancel(run.id).state == "cancelled"
        time.run_pending()
        assert states(time)[run.id] == "cancelled"
        assert time.app.runs.retry(run.id).state == "queued"
        time.run_pending()
        assert (states(time)[run.id], states(time)[f"{run.id}~work@2"]) == ("succeeded", "succeeded")
