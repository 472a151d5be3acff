"""``evenbeat backfills show``."""

from __future__ import annotations

import click

from evenbeat.cli.backfill_words import follow, report
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form


@click.command("show")
@click.argument("backfill_id", metavar="ID")
@wait_option
@store_options
@json_option
def command(
    backfill_id: str, wait: bool, store: str | None, tenant: str | None, as_json: bool
) -> ExitCode | None:
    """Show a backfill, and how far it is.

    With --wait, the exit code is 1 if a run failed, or if the backfill was cancelled.
    """
    with opened(store, tenant) as app:
        found = app.backfills.get(backfill_id)
        if wait:
            found = follow(app, found)
        local = LocalTime.at(app.store.now())
    answer({"backfill": json_form(found)}, lambda: report(found, local), as_json=as_json)
    return ExitCode.FAILED if wait and (found.failed or found.state == "cancelled") else None
