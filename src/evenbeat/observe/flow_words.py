"""Steps of flows in words and signs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun
from evenbeat.observe.phrases import count, measured, some
from evenbeat.rules.error_groups import error_line

SIGNS = {
    "waiting": "○",
    "queued": "◌",
    "running": "▶",
    "succeeded": "✓",
    "failed": "✗",
    "cancelled": "⊘",
    "not_run": "–",
    "not_needed": "·",
}
ASCII_SIGNS = {
    "waiting": "o",
    "queued": "o",
    "running": ">",
    "succeeded": "*",
    "failed": "x",
    "cancelled": "-",
    "not_run": "-",
    "not_needed": ".",
}
STEP_SIGN, ASCII_STEP_SIGN = "●", "*"

# How many of the steps that a step waits for are named.
NAMED = 3
_RUN_IF = {"all_succeeded": "", "any_failed": "if any failed", "always": "runs always"}


def state_word(step: FlowStepRun) -> str:
    return step.state.replace("_", " ")


def kind_words(step: FlowStepInfo, run: FlowStepRun | None = None) -> Iterator[str]:
    """Yield what is special about a step: ``map of 3``, ``flow``, ``if any failed``."""
    if step.is_map:
        elements = None if run is None else run.elements
        yield "map" if elements is None else f"map of {elements:,}"
    if step.kind == "flow":
        yield "flow"
    if step.run_if != "all_succeeded":
        yield _RUN_IF[step.run_if]


def without_data(step: FlowStepInfo) -> str:
    """Return which steps it waits for without getting their results: ``after check``."""
    names = [name for name in step.after if name not in step.inputs]
    return f"after {some(names, NAMED)}" if names and step.run_if == "all_succeeded" else ""


def took(step: FlowStepRun, now: datetime | None = None) -> timedelta | None:
    """Return how long a step took, or, at ``now``, has been running."""
    if step.duration is None and step.started_at is not None and step.state == "running" and now is not None:
        return max(now - step.started_at, timedelta())
    return step.duration


def took_words(step: FlowStepRun, now: datetime | None = None) -> str:
    length = took(step, now)
    return "" if length is None else measured(length)


def state_line(step: FlowStepRun) -> str:
    """Return ``✓ succeeded, 1.2 s``."""
    return ", ".join(filter(None, (f"{SIGNS[step.state]} {state_word(step)}", took_words(step))))


def problem_words(step: FlowStepRun) -> str:
    """Return the error of a step in a line, else why it is in its state; empty: nothing needs words."""
    error = error_line(step.error) if step.error else ""
    return ": ".join(filter(None, (step.reason, error)))


def progress_words(step: FlowStepRun) -> Iterator[str]:
    """Yield how far a map is, and which round of a step this is: ``resume`` and ``retry`` begin a new one."""
    if step.elements and step.elements_open:
        yield f"{step.elements - step.elements_open:,} of {count(step.elements, 'element')} ended"
    if step.round > 1 and step.state not in ("waiting", "not_run", "not_needed"):
        yield f"round {step.round}"


def flow_words(flow: FlowInfo, run: FlowRun | None = None) -> str:
    """Return what a drawing shows: ``flow nightly, 6 steps``, ``run 42 of flow nightly: failed``."""
    if run is None:
        return f"flow {flow.name}, {count(len(flow.steps), 'step')}"
    return f"run {run.id} of flow {flow.name}: {run.state}"
