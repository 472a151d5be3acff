"""``evenbeat runs cancel``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.app.runs import Runs
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.run_bulk import RunAction, act, run_bulk_options
from evenbeat.cli.run_table import run_table
from evenbeat.core.results import Run


def _report(run: Run, _: str) -> tuple[str, ExitCode]:
    if run.state == "cancelled":
        return f"cancelled {run.id}", ExitCode.OK
    if run.state == "running" and run.kind == "flow":
        return (
            f"asked {run.id} to stop; no other step starts, and running ones are asked to stop",
            ExitCode.OK,
        )
    if run.state == "running":
        words = f"asked {run.id} to stop; its worker {run.worker} is notified with its next heartbeat"
        return words, ExitCode.OK
    return f"{run.id} is over already: {run.state}", ExitCode.FAILED


_CANCEL = RunAction(
    words=BulkAction("cancel", "run", "cancelled {items}; running ones are asked to stop", run_table),
    states=("queued", "retrying", "running"),
    default_states="queued and running",
    one=Runs.cancel,
    every=Runs.cancel_all,
    report=_report,
)


@click.command("cancel")
@run_bulk_options(_CANCEL)
def command(**given: Any) -> ExitCode:
    """Cancel a queued run, or ask a running one to stop; or all that match.

    A run that is over stays as it is, and the exit code is 1 unless it was cancelled.

    --all counts the runs that match and asks first; add --yes in a script. --since and --until match the time
    in which runs ran, so they never match a run that has not started.
    """
    return act(_CANCEL, **given)
