"""``evenbeat runs cancel``."""

from __future__ import annotations

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("cancel")
@click.argument("run_id", metavar="ID")
@store_options
@json_option
def command(run_id: str, store: str | None, tenant: str | None, as_json: bool) -> ExitCode:
    """Cancel a run: a queued one ends, a running one is told.

    What is over stays as it is, and the exit code is 1 unless it was cancelled.
    """
    with opened(store, tenant) as app:
        run = app.runs.cancel(run_id)

    def people() -> list[str]:
        if run.state == "cancelled":
            return [f"cancelled {run.id}"]
        if run.state == "running":
            return [f"asked {run.id} to stop; its worker {run.worker} is told with its next heartbeat"]
        return [f"{run.id} is over already: {run.state}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
    return ExitCode.OK if run.state in ("cancelled", "running") else ExitCode.FAILED
