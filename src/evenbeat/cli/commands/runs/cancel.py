"""``evenbeat runs cancel``."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from evenbeat.cli.bulk import Verb, act_on_all, all_option, check_one_of_them, limit_option, yes_option
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.run_filter import read_filter, run_filter_options
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.wall import Wall

_CANCEL = Verb("cancel", "cancelled", "; running ones are asked to stop")


@click.command("cancel")
@click.argument("run_id", metavar="[ID]", required=False)
@all_option
@click.option(
    "--state",
    type=click.Choice(("queued", "retrying", "running")),
    help="With --all: queued and running ones unless told.",
)
@run_filter_options
@limit_option
@yes_option
@store_options
@json_option
def command(
    run_id: str | None,
    every: bool,
    state: Any,
    limit: int,
    yes: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Cancel a run: a queued one ends, a running one is told; or all that match.

    What is over stays as it is, and the exit code is 1 unless it was cancelled.

    --all counts the runs that match and asks first; add --yes in a script. --since and --until match when
    runs ran: they never match a run that has not started.
    """
    check_one_of_them(run_id, every, [state, *options.values()])
    with opened(store, tenant) as app:
        if run_id is None:
            wall = Wall.at(app.store.now())
            chosen = read_filter(app, wall, options)
            act = partial(app.runs.cancel_all, state=state, limit=limit, **chosen)
            return act_on_all(_CANCEL, act, wall, yes=yes, as_json=as_json)
        run = app.runs.cancel(run_id)

    def people() -> list[str]:
        if run.state == "cancelled":
            return [f"cancelled {run.id}"]
        if run.state == "running":
            return [f"asked {run.id} to stop; its worker {run.worker} is told with its next heartbeat"]
        return [f"{run.id} is over already: {run.state}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
    return ExitCode.OK if run.state in ("cancelled", "running") else ExitCode.FAILED
