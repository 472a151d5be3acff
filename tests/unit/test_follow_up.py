"""Follow-ups: runs that a task adds with its own end."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from evenbeat import FollowUp, InvalidValue, Run, RunContext, Scheduler, follow_up
from evenbeat.testing import virtual


def test_a_task_adds_runs_with_its_own_end() -> None:
    with virtual() as time:
        sent: list[tuple[str, date, int]] = []

        @time.app.task(queue="default", priority="high", retries=2)
        def send(to: str, on: date, number: int = 1) -> None:
            sent.append((to, on, number))

        @time.app.task
        def invoice(fails: bool = False) -> FollowUp:
            if fails:
                raise ValueError("no")
            day = date(2026, 3, 1)
            return follow_up(send.bind("ann", day), send.bind("bob", day, number=2), result={"sent": 2})

        run = invoice.enqueue()
        failed = invoice.enqueue(fails=True)
        time.run_pending()
        assert sorted(sent) == [("ann", date(2026, 3, 1), 1), ("bob", date(2026, 3, 1), 2)]
        assert time.app.runs.get(run.id).result == {"sent": 2}
        assert time.app.runs.get(failed.id).state == "failed"
        followed = time.app.runs.list(task="send")
        assert sorted(each.id for each in followed) == [f"{run.id}+1.0", f"{run.id}+1.1"]
        assert {(each.priority, each.retries, each.state) for each in followed} == {(8, 2, "succeeded")}


def test_a_task_may_follow_itself_and_start_flows() -> None:
    with virtual() as time:
        seen: list[Any] = []

        @time.app.task
        def note(run: RunContext, n: int) -> int:
            seen.append((n, run.flow is not None))
            return n

        @time.app.flow
        def flow(n: int) -> None:
            note.step(n)

        @time.app.task
        def count(left: int) -> FollowUp | None:
            return follow_up(count.bind(left - 1), flow.bind(n=left)) if left else None

        count.enqueue(3)
        time.run_pending()
        assert sorted(seen) == [(1, True), (2, True), (3, True)]


def test_a_step_of_a_flow_may_add_runs_for_which_the_flow_does_not_wait() -> None:
    with virtual() as time:
        seen: list[str] = []

        @time.app.task
        def later(run: RunContext) -> None:
            seen.append("none" if run.flow is None else run.flow.step)

        @time.app.task
        def first() -> FollowUp:
            return follow_up(later.bind(), result=[1, 2])

        @time.app.task
        def last(values: list[int]) -> int:
            return sum(values)

        @time.app.flow
        def flow() -> Any:
            return last.step(first.step())

        run = flow.enqueue()
        time.run_pending()
        assert time.app.flows.show(run.id).result == 3
        assert seen == ["none"]


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"give task.bind\(…\)"):
        follow_up(print)  # type: ignore[arg-type]  # that is the point
    app = Scheduler("memory://")

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidValue, match="10,000 are the most"):
        follow_up(*[work.bind()] * 10_001)


def test_a_follow_up_of_a_process_is_added(tmp_path: Any) -> None:
    # Real time: the function runs in a process of its own.
    from tests.unit import process_follow_ups as module

    app = module.app
    run: Run = module.parent.enqueue(3)
    with app:
        assert app.runs.join(run.id, "30s").result == 3
        followed = app.runs.join(f"{run.id}+1.0", "30s")
    assert (followed.task, followed.result) == ("child", 4)
