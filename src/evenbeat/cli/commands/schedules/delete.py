"""``evenbeat schedules delete``."""

from __future__ import annotations

import sys
from typing import Any

import click

from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.output import answer, show_before_asking
from evenbeat.cli.phrases import warning_lines
from evenbeat.cli.schedule_bulk import (
    ScheduleAction,
    act_on_schedules,
    read_bulk_flags,
    schedule_bulk_options,
)
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened
from evenbeat.core.json_form import json_form

_DELETE = ScheduleAction(
    words=BulkAction("delete", "schedule", "deleted {items}", schedule_table),
    states=("active", "paused", "finished"),
    default_states="any",
    every=Schedules.delete_all,
)


@click.command("delete")
@schedule_bulk_options(_DELETE, "Don't ask. Without a terminal, only --all needs it.")
def command(
    name: str | None, store: str | None, tenant: str | None, as_json: bool, **given: Any
) -> ExitCode | None:
    """Delete a schedule, and leave its runs; or all that match.

    --all counts the schedules that match, shows some and asks first; add --yes in a script. The exit code is
    1 if any of them could not be deleted.
    """
    flags = read_bulk_flags(name, given)
    with opened(store, tenant) as app:
        if name is None:
            return act_on_schedules(_DELETE, app, flags, as_json=as_json)
        schedule = app.schedules.get(name)
        if not flags.yes and sys.stdin.isatty():
            counted = app.schedules.delete_all(names=[name], dry_run=True)
            if counted.warnings:
                show_before_asking(warning_lines(counted.warnings))
            click.confirm(f"delete {name} ({schedule.trigger}, {schedule.task})?", abort=True, err=True)
        deleted = app.schedules.delete(name)

    def people() -> list[str]:
        words = [f"deleted {name}"]
        if schedule.managed_by in ("code", "file"):
            by = schedule.managed_by
            words.append(f"the {by} declares it: the next node that starts with that {by} creates it again")
        return [*words, *warning_lines(deleted.warnings)]

    warnings = json_form(deleted.warnings)
    answer({"deleted": name, "tenant": schedule.tenant, "warnings": warnings}, people, as_json=as_json)
    return None
