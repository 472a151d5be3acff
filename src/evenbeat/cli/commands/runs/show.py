"""``evenbeat runs show``: one run, its attempts, and why it waits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.flow_runs import drawn_run
from evenbeat.cli.layout import Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import one_line, printable
from evenbeat.cli.states import OUTCOMES, elapsed, priority_words, run_state, waiting
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.flows import FlowPlace
from evenbeat.core.json_form import json_form
from evenbeat.core.records import ACTIVE_STATES, EARLIER_KEPT, FINAL_STATES
from evenbeat.core.results import Run, RunAttempt, RunProgress, RunWait
from evenbeat.observe.phrases import count, measured
from evenbeat.observe.run_progress import amount

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@click.argument("run_id", metavar="ID")
@store_options
@json_option
def command(run_id: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show a run in full: when it ran, for how long, its result or error.

    A run of a flow is drawn, with the state, duration and error of each step.
    """
    with opened(store, tenant) as app:
        run = app.runs.get(run_id)
        wait = app.runs.why_waiting(run_id)
        lines = len(app.runs.logs(run_id))
        flow = app.flows.show(run_id) if run.kind == "flow" else None
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((run.id, "bold"))
        yield ""
        yield listed([*_what(run, local), *_when(run, wait, local), *_how(run, lines)])
        if flow is not None:
            yield from drawn_run(flow, local)
        # The lines above show the attempt that ended the run.
        if len(run.attempts) > (run.state in FINAL_STATES):
            yield ""
            yield _attempt_table(run, local)
        if run.error:
            yield ""
            yield styled((printable(run.error.rstrip()), "red"))

    times = {"lateness": json_form(run.lateness), "duration": json_form(run.duration), "log_lines": lines}
    document = {"run": json_form(run) | times, "waits": json_form(wait), "flow_run": json_form(flow)}
    answer(document, people, as_json=as_json)


def _what(run: Run, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "state", styled(run_state(run))
    yield "flow" if run.kind == "flow" else "task", run.task
    if run.flow is not None:
        yield "step", _place(run.flow)
    if run.schedule is not None:
        cause = {"tick": "", "run_now": ", run by hand", "backfill": ", backfilled"}
        fired = "" if run.fired_by is None else f", fired by {run.fired_by}"
        yield "schedule", run.schedule + cause.get(run.cause, "") + fired
    if run.predecessor is not None:
        of = "" if run.predecessor_schedule is None else f"of {run.predecessor_schedule}, "
        tick = "" if run.tick is None else f", tick {local.full(run.tick)}"
        yield "after", f"the success {of}run {run.predecessor}{tick}"
    if run.coalesced:
        yield "", f"stands for {count(run.coalesced, 'earlier tick')} as well"
    if run.tenant != "default":
        yield "tenant", run.tenant
    if run.unique_key is not None:
        yield "unique", run.unique_key
    if run.payload is not None:
        yield "payload", _json(run.payload)


def _when(run: Run, wait: RunWait | None, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    if run.tick is not None or not run.is_retrying:
        yield "due", f"{local.full(run.scheduled_at)}, {local.away(run.scheduled_at)}"
    if run.started_at is not None:
        late = f", {measured(run.lateness)} late" if run.lateness else ""
        yield "started", local.full(run.started_at) + late
    if run.is_retrying:
        yield "again", f"{local.full(run.run_at)}, {local.away(run.run_at)}"
    if wait is not None:
        yield "waits", waiting(run, wait, local)
    if run.finished_at is not None:
        yield "ended", local.full(run.finished_at)
    if run.state == "running" and run.started_at is not None:
        yield "took", f"{measured(elapsed(run.started_at, local))} so far"
    elif run.duration is not None:
        yield "took", measured(run.duration)
    if run.progress is not None:
        yield "progress" if run.state == "running" else "progress at the end", _progress(run.progress, local)
    if run.expires_at is not None and run.state in ACTIVE_STATES:
        yield "expires", f"{local.full(run.expires_at)}, {local.away(run.expires_at)}, unless it has started"


def _how(run: Run, lines: int) -> Iterator[tuple[str, RenderableType]]:
    if run.kind != "flow":
        words = _attempts(run)
        if run.retries:
            words += f"; up to {count(run.retries, 'retry', 'retries')}"
        yield "attempts", words
    if run.worker is not None:
        yield "worker", run.worker
    yield "queue", f"{run.queue}, priority {priority_words(run)}"
    if lines:
        yield "log", f"{count(lines, 'line')}: evenbeat runs logs {run.id}"
    if run.state == "succeeded":
        yield "result", _json(run.result)


def _place(place: FlowPlace) -> str:
    """Return ``load, in the flow n1``, or ``element 3 of clean, in the flow n1``."""
    element = "" if place.index is None else f"element {place.index:,} of "
    return f"{element}{place.step}, in the flow {place.id}"


def _attempts(run: Run) -> str:
    """Return the number of attempts and their outcomes, like ``10: 6 failures, 4 handed back``."""
    ended = Counter(attempt.outcome for attempt in run.attempts)
    # A run keeps only its latest attempts; a retry by hand skips a number.
    is_whole = len(run.attempts) < EARLIER_KEPT
    number = len(run.attempts) + (run.state == "running") if is_whole else run.attempt
    outcomes = [
        count(ended["failed"], "failure") if ended["failed"] else "",
        count(ended["lost"], "lost worker") if ended["lost"] else "",
        f"{ended['handed back']:,} handed back" if ended["handed back"] else "",
    ]
    known = ", ".join(filter(None, outcomes))
    words = f"{number:,}"
    if known:
        words += f": {known}" if is_whole else f"; of the last {len(run.attempts)}: {known}"
    return words


def _attempt_table(run: Run, local: LocalTime) -> Fitted:
    rows = run.attempts

    def took_of(attempt: RunAttempt) -> str:
        if attempt.started_at is None or attempt.ended_at is None:
            return ""
        return measured(attempt.ended_at - attempt.started_at)

    return Fitted(
        [
            Column("#", [str(attempt.number) for attempt in rows], justify="right"),
            Column("attempt", [(attempt.outcome, OUTCOMES[attempt.outcome]) for attempt in rows]),
            Column("started", ["" if a.started_at is None else local.near(a.started_at) for a in rows]),
            Column("took", [took_of(attempt) for attempt in rows], drop=1, justify="right"),
            Column("worker", [attempt.worker or "" for attempt in rows], drop=2, wraps=16),
            Column("error", [_error_of(attempt, local) for attempt in rows], wraps=24),
        ]
    )


def _error_of(attempt: RunAttempt, local: LocalTime) -> str:
    refused = ""
    if attempt.refused_at is not None:
        refused = f"its late result was refused at {local.near(attempt.refused_at)}"
    return "; ".join(filter(None, (one_line(attempt.error or ""), refused)))


def _progress(progress: RunProgress, local: LocalTime) -> str:
    """Return ``4,312 of 10,000 (43 %), sending, 2 s ago``."""
    words = amount(progress.done, progress.total)
    note = f", {printable(progress.note)}" if progress.note else ""
    return f"{words}{note}, {local.away(progress.at)}"


def _json(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))
