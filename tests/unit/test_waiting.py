"""Why a queued run has not started yet."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.records import RunRecord, Transition
from evenbeat.rules import attempts
from evenbeat.rules.limits import Limit
from evenbeat.rules.waiting import Hold, Taker, Waiting, why_waiting

NOW = 1_000_000


def queued(**fields: Any) -> RunRecord:
    return RunRecord(id="r", **{"task": "mail", "run_at": NOW, **fields})


def node(name: str = "box-1", **fields: Any) -> Taker:
    usual = {"worker": True, "tasks": frozenset({"mail", "report"}), "queues": ("default",)}
    return Taker(name, **{**usual, **fields})


def why(
    run: RunRecord, *nodes: Taker, busy: tuple[str, ...] = (), hold: Hold | None = None
) -> Waiting | None:
    return why_waiting(run, NOW, nodes, frozenset(busy), hold)


@pytest.mark.parametrize("state", ["running", "succeeded", "failed", "cancelled"])
def test_a_run_that_is_not_queued_does_not_wait(state: Any) -> None:
    assert why(queued(state=state), node()) is None


def test_a_run_that_is_not_due_waits_until_it_is() -> None:
    assert why(queued(run_at=NOW + 1), node()) == Waiting("later", NOW + 1, ("box-1",))
    assert why(queued(run_at=NOW + 1)) == Waiting("later", NOW + 1)
    assert why(queued(run_at=NOW), node()) == Waiting("next", None, ("box-1",))


def test_a_run_that_failed_waits_for_its_next_attempt_until_that_is_due() -> None:
    assert why(queued(run_at=NOW + 1, failures=2), node()) == Waiting("retry", NOW + 1, ("box-1",))
    assert why(queued(run_at=NOW, failures=2), node()) == Waiting("next", None, ("box-1",))


def test_a_run_that_was_handed_back_waits_for_a_node_that_its_payload_fits() -> None:
    held = queued(state="running", attempt=1, worker="box-1", started_at=NOW - 1)

    def again(change: Transition, **fields: Any) -> RunRecord:
        assert isinstance(change.earlier, str)
        return queued(earlier=change.earlier, attempt=1, **fields)

    unfit = again(attempts.unfit(held, "no such argument", NOW, "a"), run_at=NOW + 1_000)
    assert why(unfit, node()) == Waiting("unfit", NOW + 1_000, ("box-1",))
    assert why(replace(unfit, failures=1)) == Waiting("unfit", NOW + 1_000)
    assert why(replace(unfit, run_at=NOW), node()) == Waiting("next", None, ("box-1",))
    # A worker that stopped handed it back, for any other worker.
    released = again(attempts.released(held, NOW, "a"), run_at=NOW + 1_000)
    assert why(released, node()) == Waiting("later", NOW + 1_000, ("box-1",))


def test_a_run_waits_for_a_node_that_executes_runs() -> None:
    assert why(queued()) == Waiting("no_worker")
    assert why(queued(), node(worker=False, tasks=frozenset())) == Waiting("no_worker")
    # A node without a worker has no tasks, whatever its record lists.
    assert why(queued(), node(worker=False)) == Waiting("no_worker")


def test_a_run_waits_for_a_node_that_has_its_task() -> None:
    assert why(queued(task="other"), node(), node("box-2", queues=("slow",))) == Waiting("no_task")
    assert why(queued(task="other"), node("ticker", worker=False), node()) == Waiting("no_task")


def test_a_run_waits_for_a_node_that_has_its_task_and_takes_its_queue() -> None:
    other = node("box-2", tasks=frozenset({"report"}), queues=("slow",))
    assert why(queued(queue="slow"), node(), other) == Waiting("no_queue")
    assert why(queued(queue="slow"), node("box-3", queues=("default", "slow"))) == Waiting(
        "next", None, ("box-3",)
    )


def test_a_node_without_a_list_of_tasks_may_have_the_task() -> None:
    assert why(queued(task="other"), node(tasks=None)) == Waiting("next", None, ("box-1",))


def test_a_run_waits_for_a_free_slot_only_if_no_node_has_one() -> None:
    nodes = (node(), node("box-2"), node("box-3", tasks=frozenset()))
    both = ("box-1", "box-2")
    assert why(queued(), *nodes, busy=both) == Waiting("busy", None, both)
    assert why(queued(), *nodes, busy=("box-1", "box-3")) == Waiting("next", None, both)


@pytest.mark.parametrize("opens", [None, NOW + 5])
def test_a_due_run_that_a_node_could_take_may_wait_for_a_limit(opens: int | None) -> None:
    hold = Hold(Limit(task="mail", concurrency=1), "task=mail", 1, opens)
    limited = Waiting("limited", opens, ("box-1",), hold)
    assert why(queued(), node(), hold=hold) == limited
    assert why(queued(), node(), hold=hold, busy=("box-1",)) == limited, "a free slot would not help"
    assert why(queued(), hold=hold) == Waiting("no_worker"), "without a node, no limit matters"
    assert why(queued(run_at=NOW + 1), node(), hold=hold) == Waiting("later", NOW + 1, ("box-1",))
