"""Runs of flows in the terminal: what ``flows show`` prints of one, and the bar that follows it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.flow_drawing import FlowDrawing
from evenbeat.cli.layout import Cell, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer
from evenbeat.cli.phrases import one_line, printable
from evenbeat.cli.progress import bar, followed
from evenbeat.cli.states import STYLES, elapsed
from evenbeat.core.flows import FlowRun
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form
from evenbeat.core.records import FINAL_STATES
from evenbeat.observe.phrases import command_line, count, measured
from evenbeat.stores.urls import without_password

if TYPE_CHECKING:
    from rich.console import RenderableType

    from evenbeat.app.scheduler import Scheduler

_UNENDED = ("waiting", "queued", "running")


def progress_line(run: FlowRun) -> str:
    """Return ``[####....] 3 of 6 steps ended, 1 failed, 2 running``."""
    if not run.steps:
        return f"{run.state}: no node has begun it" if run.state == "queued" else run.state
    states = Counter(step.state for step in run.steps)
    ended = len(run.steps) - sum(states[state] for state in _UNENDED)
    parts = [f"{ended:,} of {count(len(run.steps), 'step')} ended"]
    parts += [f"{states[state]:,} {state}" for state in ("failed", "running", "queued") if states[state]]
    return f"{bar(ended, len(run.steps))} {', '.join(parts)}"


def follow(app: Scheduler, run: FlowRun) -> FlowRun:
    """Show the progress on stderr until the run is over."""

    def again(run: FlowRun) -> FlowRun:
        return app.flows.show(run.id, tenant=run.tenant)

    return followed(run, again, progress_line, lambda run: run.state in FINAL_STATES)


def answer_about(
    app: Scheduler, run: FlowRun, said: str, *, wait: bool, as_json: bool, place: str = ""
) -> ExitCode:
    """Print what was done to a run; with ``wait``, follow it and show it. The exit code is then 1 unless it
    has succeeded."""
    if wait:
        run = follow(app, run)
    local = LocalTime.at(app.store.now())

    def people() -> Iterator[RenderableType]:
        if wait:
            yield from report(run, local, place)
            return
        yield said
        yield f"to follow it: {command_line(f'flows show {run.id} --wait', run.tenant)}{place}"

    answer({"run": json_form(run)}, people, as_json=as_json)
    return ExitCode.FAILED if wait and run.state != "succeeded" else ExitCode.OK


def state_cell(run: FlowRun) -> Cell:
    if run.state == "running" and run.cancel_requested:
        return "stopping", STYLES["cancelled"]
    return run.state, STYLES[run.state]


def given_place(app_name: str | None, store: str | None) -> str:
    """Return the options that name the store, as they were given: a command that is printed needs them."""
    words = "" if store is None else f" --store {shlex.quote(without_password(store))}"
    return words + ("" if app_name is None else f" --app {shlex.quote(app_name)}")


def report(run: FlowRun, local: LocalTime, place: str = "") -> Iterator[RenderableType]:
    """Yield what ``flows show`` prints of a run. ``place`` are options for the commands in it."""
    yield styled((run.id, "bold"))
    yield ""
    yield listed(_lines(run, local))
    yield from drawn_run(run, local)
    if run.state in ("failed", "cancelled") and run.steps and run.outer is None:
        yield ""
        why = "run again what failed" if run.state == "failed" else "go on with it"
        yield f"to {why}: {command_line(f'flows resume {run.id}', run.tenant)}{place}"


def drawn_run(run: FlowRun, local: LocalTime) -> Iterator[RenderableType]:
    """Yield the graph of a run with the state of each step, below an empty line; nothing before it began."""
    if run.graph is not None and run.graph.steps:
        yield ""
        yield FlowDrawing(run.graph, run if run.steps else None, from_ms(local.now))


def _lines(run: FlowRun, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "flow", run.flow
    yield "state", styled(state_cell(run))
    if run.error:
        yield "error", styled((one_line(run.error), "red"))
    if run.schedule is not None:
        yield "schedule", run.schedule
    if run.outer is not None:
        yield "within", f"step {run.outer.step} of {run.outer.id}"
    if run.tenant != "default":
        yield "tenant", run.tenant
    if run.payload:
        yield "payload", printable(json.dumps(run.payload, ensure_ascii=False))
    if run.started_at is None:
        yield "created", f"{local.full(run.created_at)}; no node has begun it"
        return
    yield "started", f"{local.full(run.started_at)}, {local.away(run.started_at)}"
    if run.finished_at is not None:
        yield "ended", local.full(run.finished_at)
    if run.duration is not None:
        yield "took", measured(run.duration)
    elif run.state == "running":
        yield "took", f"{measured(elapsed(run.started_at, local))} so far"
    if run.state == "succeeded" and run.result is not None:
        yield "result", printable(json.dumps(run.result, ensure_ascii=False))
