"""``evenbeat runs retry``."""

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

_RETRY = Verb("retry", "queued", " again")


@click.command("retry")
@click.argument("run_id", metavar="[ID]", required=False)
@all_option
@click.option("--state", type=click.Choice(("failed", "cancelled")), help="With --all: failed unless told.")
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
    """Try a failed or cancelled run again, now; or all that match.

    With all its retries. Where the schedule bounds its active runs, it is asked for a new run with the
    same payload.

    --all counts the runs that match and asks first; add --yes in a script. The exit code is 1 if any could
    not be retried.
    """
    check_one_of_them(run_id, every, [state, *options.values()])
    with opened(store, tenant) as app:
        if run_id is None:
            wall = Wall.at(app.store.now())
            chosen = read_filter(app, wall, options)
            act = partial(app.runs.retry_all, state=state or "failed", limit=limit, **chosen)
            return act_on_all(_RETRY, act, wall, yes=yes, as_json=as_json)
        run = app.runs.retry(run_id)

    def people() -> list[str]:
        if run.id == run_id:
            return [f"queued {run.id} again"]
        return [f"queued a new run with the same payload: evenbeat runs show {run.id}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
    return ExitCode.OK
