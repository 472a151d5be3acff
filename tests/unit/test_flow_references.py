"""References to values of a flow that are not known yet: what can be done with them."""

from __future__ import annotations

from typing import Any

import pytest

from evenbeat import InvalidValue, Scheduler, Task


@pytest.fixture
def app() -> Scheduler:
    return Scheduler("memory://")


@pytest.fixture
def work(app: Scheduler) -> Task[..., Any]:
    @app.task
    def work(n: Any = 0) -> Any:
        return n

    return work


def test_a_comparison_with_a_value_is_refused_instead_of_being_false(
    app: Scheduler, work: Task[..., Any]
) -> None:
    with pytest.raises(InvalidValue, match="parameter day is not known while flow flow is described"):

        @app.flow
        def flow(day: str = "monday") -> None:
            if day == "monday":
                work.step()

    with pytest.raises(InvalidValue, match="the result of step work is not known"):

        @app.flow
        def other() -> None:
            if work.step() != 3:
                work.step(step_name="two")


def test_steps_can_be_compared_with_each_other(app: Scheduler, work: Task[..., Any]) -> None:
    @app.flow
    def flow() -> None:
        steps = [work.step(step_name=name) for name in ("a", "b", "c")]
        assert len(set(steps)) == 3
        assert steps.index(steps[2]) == 2
        work.step(step_name="last", after=[each for each in steps if each != steps[1]])

    last = app.flows.get("flow").steps[-1]
    assert (last.name, last.after) == ("last", ("a", "c"))
