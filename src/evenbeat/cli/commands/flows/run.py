"""``evenbeat flows run``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.failures import ExitCode
from evenbeat.cli.flow_input import complete_flow, flow_of, flow_options, needed_app
from evenbeat.cli.flow_runs import answer_about, given_place
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import opened
from evenbeat.core.instants import from_ms


@click.command("run")
@click.argument("name", shell_complete=complete_flow)
@payload_option
@click.option("--at", "at", metavar="WHEN", help="Not before this: 09:30, 2026-03-01T09:30, or +2h from now.")
@click.option("--id", "run_id", metavar="ID", help="An id of your own: starting it again adds nothing.")
@wait_option
@flow_options
@json_option
def command(
    name: str,
    payload: dict[str, Any] | None,
    at: str | None,
    run_id: str | None,
    wait: bool,
    app_name: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> ExitCode:
    """Start a flow, now or later.

    Nodes execute its steps. With --wait, the exit code is 1 unless the run has succeeded.
    """
    flow_of(needed_app(app_name), name)  # refuses a name that is not a flow, before a store is opened
    with opened(store, tenant, tasks=True, app_name=app_name) as app:
        local = LocalTime.at(app.store.now())
        moment = None if at is None else from_ms(local.read(at, "--at"))
        run = app.flows.run(name, payload, at=moment, id=run_id)
        when = "" if moment is None else f", due {local.full(moment)}"
        found = app.flows.show(run.id)
        return answer_about(
            app,
            found,
            f"started {name}: {run.id}{when}",
            wait=wait,
            as_json=as_json,
            place=given_place(app_name, store),
        )
