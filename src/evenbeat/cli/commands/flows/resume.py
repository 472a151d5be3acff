"""``evenbeat flows resume``."""

from __future__ import annotations

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.flow_input import flow_options
from evenbeat.cli.flow_runs import answer_about, given_place
from evenbeat.cli.output import json_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import opened


@click.command("resume")
@click.argument("run_id", metavar="ID")
@wait_option
@flow_options
@json_option
def command(
    run_id: str, wait: bool, app_name: str | None, store: str | None, tenant: str | None, as_json: bool
) -> ExitCode:
    """Run again what failed and what came after it.

    Keeps what succeeded; of a map, only the elements that failed run again. With --wait, the exit code is 1
    unless the run has succeeded.
    """
    with opened(store, tenant, app_name=app_name) as app:
        run = app.flows.resume(run_id)
        again = sum(step.state in ("waiting", "queued", "running") for step in run.steps)
        said = f"resumed {run.id}: {again:,} of {len(run.steps):,} steps to run"
        return answer_about(app, run, said, wait=wait, as_json=as_json, place=given_place(app_name, store))
