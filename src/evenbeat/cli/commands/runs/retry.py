"""``evenbeat runs retry``."""

from __future__ import annotations

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("retry")
@click.argument("run_id", metavar="ID")
@store_options
@json_option
def command(run_id: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Try a failed or cancelled run again, now.

    With all its retries. Where the schedule bounds its active runs, it is asked for a new run with the
    same payload.
    """
    with opened(store, tenant) as app:
        run = app.runs.retry(run_id)

    def people() -> list[str]:
        if run.id == run_id:
            return [f"queued {run.id} again"]
        return [f"queued a new run with the same payload: evenbeat runs show {run.id}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
