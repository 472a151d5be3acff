"""Flows in virtual time: what ``travel`` and ``run_pending`` return."""

from __future__ import annotations

from typing import Any

from evenbeat.testing import virtual


def test_the_runs_that_ended_include_the_steps_of_flows_before_their_flow() -> None:
    with virtual() as time:

        @time.task
        def double(n: int) -> int:
            return 2 * n

        @time.task
        def total(parts: list[int]) -> int:
            return sum(parts)

        @time.flow
        def inner(n: int) -> Any:
            return double.step(n)

        @time.flow
        def outer() -> Any:
            return total.step([inner.step(5), double.step(1)])

        outer.enqueue()
        runs = time.run_pending()

    assert sorted(run.task for run in runs[:3]) == ["double", "double", "inner"]
    assert [run.task for run in runs].index("double") < [run.task for run in runs].index("inner")
    assert [(run.task, run.result) for run in runs[3:]] == [("total", 12), ("outer", 12)]
    assert [run.id for run in runs] == [run.id for run in time.finished]
