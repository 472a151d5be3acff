"""``evenbeat flows cancel``."""

from __future__ import annotations

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.flow_input import flow_options
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened
from evenbeat.core.flows import FlowRun
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count


@click.command("cancel")
@click.argument("run_id", metavar="ID")
@flow_options
@json_option
def command(
    run_id: str, app_name: str | None, store: str | None, tenant: str | None, as_json: bool
) -> ExitCode:
    """Cancel a run of a flow, with its steps.

    Queued steps are over at once, running ones are asked to stop, and no other step starts. A run that is
    over stays as it is, and the exit code is 1 unless it was cancelled.
    """
    with opened(store, tenant, app_name=app_name) as app:
        run = app.flows.cancel(run_id)
    answer({"run": json_form(run)}, lambda: [_said(run)], as_json=as_json)
    return ExitCode.OK if run.state in ("cancelled", "running") else ExitCode.FAILED


def _said(run: FlowRun) -> str:
    if run.state == "cancelled":
        return f"cancelled {run.id}"
    if run.state == "running":
        asked = sum(step.state == "running" for step in run.steps)
        return f"asked {run.id} to stop: {count(asked, 'running step')} left"
    return f"{run.id} is over already: {run.state}"
