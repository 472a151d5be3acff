"""``evenbeat schedules resume``."""

from __future__ import annotations

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.json_form import json_form


@click.command("resume")
@click.argument("name", shell_complete=complete_schedule)
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Resume a paused schedule.

    The ticks of the pause stay skipped. Does nothing if the schedule is not paused.
    """
    with opened(store, tenant) as app:
        before = app.schedules.get(name)
        after = app.schedules.resume(name)
        local = LocalTime.at(app.store.now())

    def people() -> list[str]:
        words = (
            f"resumed {name}" if before.state == "paused" else f"{name} was not paused: it is {after.state}"
        )
        if after.next_run is None:
            return [words]
        return [f"{words}, next run {local.full(after.next_run)}, {local.away(after.next_run)}"]

    answer({"schedule": json_form(after)}, people, as_json=as_json)
