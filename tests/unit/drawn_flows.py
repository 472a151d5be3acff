"""For tests of drawings: flows without code, and runs of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun

NOW = datetime(2026, 3, 2, 8, tzinfo=UTC)


def step(name: str, after: Iterable[str] = (), **fields: Any) -> FlowStepInfo:
    """Return a step that gets the results of all steps that it waits for, unless ``inputs`` is given."""
    before = tuple(after)
    plain: dict[str, Any] = {
        "task": name,
        "kind": "task",
        "inputs": before,
        "run_if": "all_succeeded",
        "is_map": False,
        "queue": "default",
    }
    return FlowStepInfo(name=name, after=before, **(plain | fields))


def flow(*steps: FlowStepInfo, name: str = "nightly") -> FlowInfo:
    return FlowInfo(name=name, steps=steps, result=None, version="v1")


def flow_run(of: FlowInfo, **states: dict[str, Any]) -> FlowRun:
    """Return a run of a flow; steps that are not named have succeeded."""
    done = {"state": "succeeded", "duration": timedelta(seconds=1.2)}
    steps = [
        FlowStepRun(name=each.name, task=each.task, run=f"r1~{each.name}", **states.get(each.name, done))
        for each in of.steps
    ]
    return FlowRun(
        id="r1",
        tenant="default",
        flow=of.name,
        schedule=None,
        state="failed",
        error=None,
        payload={},
        result=None,
        created_at=NOW,
        started_at=NOW,
        finished_at=None,
        duration=None,
        cancel_requested=False,
        outer=None,
        graph=of,
        steps=tuple(steps),
    )


EXAMPLE = flow(
    step("extract"),
    step("clean", ["extract"], is_map=True),
    step("summarise", ["clean"]),
    step("check"),
    step("load", ["summarise", "check"], inputs=("summarise",)),
    step("notify", ["extract", "clean", "summarise", "check", "load"], inputs=(), run_if="any_failed"),
)
EXAMPLE_RUN = flow_run(
    EXAMPLE,
    clean={"state": "succeeded", "duration": timedelta(seconds=185), "elements": 10_000},
    load={
        "state": "failed",
        "duration": timedelta(milliseconds=230),
        "error": "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'customer_id'",
    },
    notify={"state": "running", "started_at": NOW - timedelta(seconds=5)},
)
DIAMOND = flow(step("a"), step("b", "a"), step("c", "a"), step("d", "bc"))
