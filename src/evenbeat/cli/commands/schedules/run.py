"""``evenbeat schedules run``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.json_form import json_form


@click.command("run")
@click.argument("name", shell_complete=complete_schedule)
@payload_option
@store_options
@json_option
def command(
    name: str, payload: dict[str, Any] | None, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Run a schedule's task now; its next run stays where it is.

    The run gets the schedule's payload, unless --payload gives another one.
    """
    with opened(store, tenant) as app:
        run = app.schedules.run_now(name, payload)

    def people() -> list[str]:
        return [f"queued a run of {run.task}: evenbeat runs show {run.id}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
