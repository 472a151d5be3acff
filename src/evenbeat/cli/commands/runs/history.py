"""``evenbeat runs history``."""

from __future__ import annotations

import click

from evenbeat.cli.audit_table import answer_entries, limit_option
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("history")
@click.argument("run_id", metavar="ID")
@limit_option
@store_options
@json_option
def command(run_id: str, limit: int, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show who enqueued, cancelled or retried a run by hand, and when.

    The history of a run stays when the run is purged. Entries are kept for 365 days.
    """
    with opened(store, tenant) as app:
        # One more than the limit, to know whether there are more.
        found = app.runs.history(run_id, limit + 1)
        local = LocalTime.at(app.store.now())
    answer_entries(found, limit, local, empty="nobody changed this run by hand", as_json=as_json)
