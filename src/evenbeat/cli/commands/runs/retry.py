"""``evenbeat runs retry``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.app.runs import Runs
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.run_bulk import RunAction, act, run_bulk_options
from evenbeat.cli.run_table import run_table
from evenbeat.core.results import Run
from evenbeat.observe.phrases import command_line


def _report(run: Run, asked: str) -> tuple[str, ExitCode]:
    if run.id == asked and run.kind == "flow":
        return f"queued {run.id} again: what failed runs again, and what came after it", ExitCode.OK
    if run.id == asked:
        return f"queued {run.id} again", ExitCode.OK
    show = command_line(f"runs show {run.id}", run.tenant)
    return f"queued a new run with the same payload: {show}", ExitCode.OK


_RETRY = RunAction(
    words=BulkAction("retry", "run", "queued {items} again", run_table),
    states=("failed", "cancelled"),
    default_states="failed",
    one=Runs.retry,
    every=Runs.retry_all,
    report=_report,
    by_error=True,
)


@click.command("retry")
@run_bulk_options(_RETRY)
def command(**given: Any) -> ExitCode:
    """Retry a failed or cancelled run now; or all that match.

    The run gets all its retries again. If its schedule limits the active runs, the schedule gets a new run
    with the same payload. A flow is resumed: what failed runs again, and what came after it.

    --all counts the runs that match and asks first; add --yes in a script. The exit code is 1 if any of them
    could not be retried.
    """
    return act(_RETRY, **given)
