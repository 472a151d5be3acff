"""``evenbeat runs show``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.layout import listed, styled
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import count, printable
from evenbeat.cli.states import priority_words, run_state
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.wall import Wall, took
from evenbeat.views import RunInfo

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@click.argument("run_id", metavar="ID")
@store_options
@json_option
def command(run_id: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show all about a run: when, how long, with what result or error."""
    with opened(store, tenant) as app:
        run = app.runs.get(run_id)
        lines = len(app.runs.logs(run_id))
        wall = Wall.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((run.id, "bold"))
        yield ""
        yield listed([*_what(run), *_when(run, wall), *_how(run, lines)])
        if run.error:
            yield ""
            yield styled((printable(run.error.rstrip()), "red"))

    times = {"lateness": run.lateness, "duration": run.duration, "log_lines": lines}
    answer({"run": json_form(run) | times}, people, as_json=as_json)


def _what(run: RunInfo) -> Iterator[tuple[str, RenderableType]]:
    yield "state", styled(run_state(run))
    yield "task", run.task
    if run.schedule is not None:
        cause = {"tick": "", "trigger": ", triggered by hand", "backfill": ", backfilled"}
        yield "schedule", run.schedule + cause.get(run.cause, "")
    if run.coalesced:
        yield "", f"stands for {count(run.coalesced, 'missed tick')} as well"
    if run.tenant != "default":
        yield "tenant", run.tenant
    if run.payload is not None:
        yield "payload", _json(run.payload)


def _when(run: RunInfo, wall: Wall) -> Iterator[tuple[str, RenderableType]]:
    waiting = run.state == "queued" and run.failures > 0
    if run.tick is not None or not waiting:
        yield "due", f"{wall.full(run.scheduled_at)}, {wall.away(run.scheduled_at)}"
    if run.started_at is not None:
        late = run.lateness or 0
        yield "started", wall.full(run.started_at) + (f", {took(late)} late" if late > 0 else "")
    if waiting:
        yield "again", f"{wall.full(run.run_at)}, {wall.away(run.run_at)}"
    if run.finished_at is not None:
        yield "ended", wall.full(run.finished_at)
    if run.duration is not None:
        yield "took", took(run.duration)


def _how(run: RunInfo, lines: int) -> Iterator[tuple[str, RenderableType]]:
    words = f"{run.attempt}"
    if run.failures or run.crashes:
        words += f": {count(run.failures, 'failure')}"
        words += f", {count(run.crashes, 'lost worker')}" if run.crashes else ""
    if run.execution.retries:
        words += f"; up to {count(run.execution.retries, 'retry', 'retries')}"
    yield "attempts", words
    if run.worker is not None:
        yield "worker", run.worker
    yield "queue", f"{run.queue}, priority {priority_words(run)}"
    if lines:
        yield "log", f"{count(lines, 'line')}: evenbeat runs logs {run.id}"
    if run.state == "succeeded":
        yield "result", _json(run.result)


def _json(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))
