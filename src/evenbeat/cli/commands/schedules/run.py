"""``evenbeat schedules run``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.output import answer
from evenbeat.cli.payload import payload_option
from evenbeat.cli.schedule_bulk import (
    ScheduleAction,
    act_on_schedules,
    read_bulk_flags,
    schedule_bulk_options,
)
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import command_line

_RUN = ScheduleAction(
    words=BulkAction("run", "schedule", "queued a run of {items}", schedule_table),
    states=("active", "paused", "finished"),
    default_states="active",
    every=Schedules.run_all,
)


@click.command("run")
@payload_option
@schedule_bulk_options(_RUN)
def command(
    name: str | None,
    payload: dict[str, Any] | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **given: Any,
) -> ExitCode | None:
    """Run a schedule's task now; or those of all that match.

    The run gets the schedule's payload, unless --payload gives another one. The next run stays where it is.

    --all counts the schedules that match, shows some and asks first; add --yes in a script. The exit code is
    1 if the policies of any of them leave no room for a run.
    """
    flags = read_bulk_flags(name, given)
    if name is None and payload is not None:
        raise click.UsageError("--payload goes with the name of one schedule")
    with opened(store, tenant) as app:
        if name is None:
            return act_on_schedules(_RUN, app, flags, as_json=as_json)
        run = app.schedules.run_now(name, payload)

    def people() -> list[str]:
        return [f"queued a run of {run.task}: {command_line(f'runs show {run.id}', run.tenant)}"]

    answer({"run": json_form(run)}, people, as_json=as_json)
    return None
