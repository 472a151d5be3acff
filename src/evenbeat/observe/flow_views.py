"""Flows and their runs as users see them, from graphs and rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from evenbeat.core.flow_graphs import FlowGraph, FlowStep
from evenbeat.core.flows import FlowInfo, FlowRun, FlowStepInfo, FlowStepRun
from evenbeat.core.instants import from_ms
from evenbeat.core.records import FINAL_STATES, RunRecord
from evenbeat.observe.views import run_view
from evenbeat.rules.attempts import is_retrying, was_unfit
from evenbeat.rules.error_groups import error_line
from evenbeat.rules.flow_parts import (
    NOT_NEEDED,
    NOT_RUN,
    OPEN,
    STEP_STATES,
    UNSUCCESSFUL,
    Elements,
    FlowState,
    flow_part,
)
from evenbeat.tasks.task import Tasks

# How many failed elements of a map a reason names.
_NAMED = 3


def flow_info(graph: FlowGraph) -> FlowInfo:
    """Return a graph for users."""
    return FlowInfo(
        name=graph.name,
        steps=tuple(_step_info(graph, step) for step in graph.steps),
        result=graph.result or None,
        version=graph.key,
    )


def _step_info(graph: FlowGraph, step: FlowStep) -> FlowStepInfo:
    inputs = [each.name for each in (*step.inputs, step.over) if each and each.source == "result"]
    return FlowStepInfo(
        name=step.name,
        task=step.task,
        kind=step.kind,
        after=tuple(graph.steps[at].name for at in step.predecessors),
        inputs=tuple(dict.fromkeys(inputs)),
        run_if=step.run_if,
        is_map=step.is_map,
        queue=step.queue,
    )


def flow_run_view(
    run: RunRecord,
    graph: FlowGraph | None,
    found: Mapping[int, Sequence[RunRecord]],
    tasks: Tasks | None = None,
) -> FlowRun:
    """Return a run of a flow for users. ``found`` has runs of its steps, by position; of a map, those that
    have begun and those that failed are enough."""
    view = run_view(run, tasks)
    state = flow_part(run).state
    steps = () if graph is None or state is None else _steps(graph, state, found)
    return FlowRun(
        id=run.id,
        tenant=run.tenant,
        flow=run.task,
        schedule=run.schedule,
        state=run.state,
        error=run.error,
        payload=view.payload,
        result=view.result,
        created_at=view.created_at,
        started_at=view.started_at,
        finished_at=view.finished_at,
        duration=view.duration,
        cancel_requested=run.cancel_requested,
        outer=view.flow,
        graph=None if graph is None else flow_info(graph),
        steps=steps,
    )


def _steps(
    graph: FlowGraph, state: FlowState, found: Mapping[int, Sequence[RunRecord]]
) -> tuple[FlowStepRun, ...]:
    return tuple(_step_run(graph, state, at, step, found.get(at, ())) for at, step in enumerate(graph.steps))


def _step_run(
    graph: FlowGraph, state: FlowState, at: int, step: FlowStep, runs: Sequence[RunRecord]
) -> FlowStepRun:
    counted = state.maps.get(str(at))
    begun = [run.started_at for run in runs if run.started_at is not None]
    ended = [run.finished_at for run in runs if run.finished_at is not None]
    is_open = state.steps[at] == OPEN
    started_at = from_ms(min(begun)) if begun else None
    finished_at = from_ms(max(ended)) if ended and not is_open else None
    return FlowStepRun(
        name=step.name,
        task=step.task,
        state=_state(state.steps[at], runs),
        run=runs[0].id if runs and not step.is_map else None,
        started_at=started_at,
        finished_at=finished_at,
        duration=_duration(started_at, finished_at),
        error=next((run.error for run in runs if run.state == "failed" and run.error), None),
        reason=_reason(graph, state, at, counted, runs),
        elements=None if counted is None else counted.total,
        elements_open=0 if counted is None else counted.open,
        elements_failed=0 if counted is None else counted.failed,
        elements_cancelled=0 if counted is None else counted.cancelled,
        failed_runs=tuple(run.id for run in runs if run.state == "failed")[:_NAMED] if step.is_map else (),
        attempt=runs[0].attempt if runs and not step.is_map else 0,
        round=state.round(at),
    )


def _state(letter: str, runs: Sequence[RunRecord]) -> str:
    if letter != OPEN:
        return STEP_STATES[letter]
    has_begun = any(run.state == "running" or run.state in FINAL_STATES for run in runs)
    return "running" if has_begun else "queued"


def _duration(started_at: datetime | None, finished_at: datetime | None) -> timedelta | None:
    return None if started_at is None or finished_at is None else max(finished_at - started_at, timedelta())


def _reason(
    graph: FlowGraph, state: FlowState, at: int, counted: Elements | None, runs: Sequence[RunRecord]
) -> str | None:
    """Return why a step is in its state, where that needs words."""
    letter = state.steps[at]
    if str(at) in state.notes:
        return state.notes[str(at)]
    if letter == NOT_NEEDED:
        return "no step before it failed"
    if letter == NOT_RUN:
        causes = [
            f"{graph.steps[each].name} {_HOW[state.steps[each]]}"
            for each in graph.steps[at].predecessors
            if state.steps[each] in UNSUCCESSFUL
        ]
        # A step with another condition would have run after a failure.
        if causes and graph.steps[at].run_if == "all_succeeded":
            return ", ".join(causes[:_NAMED])
        return "the flow timed out" if state.stop == "timeout" else "the flow was cancelled"
    if counted is not None and counted.failed:
        failed = [flow_part(run).member for run in runs if run.state == "failed"]
        places = [str(each.index) for each in failed if each is not None][:_NAMED]
        which = f" (first: {', '.join(places)})" if places else ""
        return f"{counted.failed} of {counted.total} elements failed{which}"
    if letter == OPEN:
        return _waiting_words(runs)
    return None


def _waiting_words(runs: Sequence[RunRecord]) -> str | None:
    """Return why a run of an open step is queued again; None if none is."""
    for run in runs:
        if run.state == "queued" and run.error:
            line = error_line(run.error)
            if was_unfit(run):
                return f"its arguments do not fit the task, it waits for a node with other code: {line}"
            if is_retrying(run):
                return f"waits for its next attempt: {line}"
    return None


_HOW = {"f": "failed", "c": "was cancelled", "n": "did not run"}
