"""``evenbeat flows retry``."""

from __future__ import annotations

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.flow_input import flow_options
from evenbeat.cli.flow_runs import answer_about, given_place
from evenbeat.cli.output import json_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import opened


@click.command("retry")
@click.argument("run_id", metavar="ID")
@click.argument("step")
@wait_option
@flow_options
@json_option
def command(
    run_id: str,
    step: str,
    wait: bool,
    app_name: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> ExitCode:
    """Run a step again, and what came after it.

    Also a step that succeeded. ID is the id of the flow's run, STEP the name of the step. With --wait, the
    exit code is 1 unless the run has succeeded.
    """
    with opened(store, tenant, app_name=app_name) as app:
        run = app.flows.retry(run_id, step)
        return answer_about(
            app,
            run,
            f"step {step} of {run.id} runs again, and what came after it",
            wait=wait,
            as_json=as_json,
            place=given_place(app_name, store),
        )
