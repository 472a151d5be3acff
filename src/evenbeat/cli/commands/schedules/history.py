"""``evenbeat schedules history``."""

from __future__ import annotations

import click

from evenbeat.cli.audit_table import answer_entries, limit_option
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options


@click.command("history")
@click.argument("name", shell_complete=complete_schedule)
@limit_option
@store_options
@json_option
def command(name: str, limit: int, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show who changed a schedule, and how it was before.

    The history of a deleted schedule stays. Entries are kept for 365 days.
    """
    with opened(store, tenant) as app:
        # One more than the limit, to know whether there are more.
        found = app.schedules.history(name, limit + 1)
        local = LocalTime.at(app.store.now())
    answer_entries(found, limit, local, empty=f"nobody changed {name} in the last year", as_json=as_json)
