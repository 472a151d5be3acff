"""Flows that ``new_flow`` and ``add_step`` make: a wrong graph is refused where the flow is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evenbeat import InvalidValue, Scheduler
from evenbeat.testing import virtual


def circle(app: Scheduler, **options: Any) -> None:
    @app.task
    def work() -> None: ...

    flow = app.new_flow("made", **options)
    flow.add_step("a", work, after=["b"])
    flow.add_step("b", work, after=["a"])


@pytest.mark.parametrize(
    "use",
    [
        lambda app: app.tasks.get("made").enqueue(),
        lambda app: app.enqueue("made"),
        lambda app: app.enqueue_many([("made", {})]),
        lambda app: app.flows.run("made"),
        lambda app: app.schedules.add("nightly", "0 3 * * *", "made"),
    ],
)
def test_a_wrong_graph_is_refused_where_the_flow_is_started(use: Callable[[Scheduler], object]) -> None:
    with virtual() as time:
        circle(time.app)
        with pytest.raises(InvalidValue, match="wait for each other"):
            use(time.app)


def test_a_node_does_not_start_with_a_scheduled_flow_whose_graph_is_wrong() -> None:
    app = Scheduler("memory://")
    circle(app, schedule="0 3 * * *")
    with pytest.raises(InvalidValue, match="wait for each other"):
        app.start()
    app.close()


def test_a_worker_hands_a_flow_back_whose_graph_is_wrong_here() -> None:
    with virtual() as time:

        @time.task
        def work() -> None: ...

        flow = time.new_flow("made")
        flow.add_step("a", work)
        run = flow.enqueue()
        flow.begin_description()  # stands for a node with other code
        assert time.run_pending() == []
        found = time.app.runs.get(run.id)
        assert (found.state, found.attempts[-1].outcome) == ("queued", "handed back")
        assert "has no steps" in str(found.attempts[-1].error)
