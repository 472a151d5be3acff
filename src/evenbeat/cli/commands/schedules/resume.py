"""``evenbeat schedules resume``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer
from evenbeat.cli.schedule_bulk import (
    ScheduleAction,
    act_on_schedules,
    read_bulk_flags,
    schedule_bulk_options,
)
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened
from evenbeat.core.json_form import json_form
from evenbeat.core.results import ResumePreview, Schedule
from evenbeat.errors import DamagedSchedule

_RESUME = ScheduleAction(
    words=BulkAction("resume", "schedule", "resumed {items}", schedule_table),
    states=("paused",),
    default_states="paused",
    every=Schedules.resume_all,
)


@click.command("resume")
@schedule_bulk_options(
    _RESUME, dry_run_help="Show what becomes of the missed ticks, and what would be refused; change nothing."
)
@click.option(
    "--catch-up",
    is_flag=True,
    help="The catch-up policy decides about the ticks of the pause; else they are skipped.",
)
def command(
    name: str | None, store: str | None, tenant: str | None, catch_up: bool, as_json: bool, **given: Any
) -> ExitCode | None:
    """Resume a paused schedule; or all that match.

    The ticks of the pause are skipped, unless --catch-up says otherwise; --dry-run shows both. Does nothing
    if the schedule is not paused.

    --all counts the schedules that match, shows some and asks first; add --yes in a script.
    """
    flags = read_bulk_flags(name, given, one_dry_run=True)
    with opened(store, tenant) as app:
        if name is None:
            action = _RESUME
            if flags.dry_run:
                previews = partial(_previews, app, catch_up=catch_up)
                action = _RESUME._replace(words=_RESUME.words._replace(table=previews))
            return act_on_schedules(action, app, flags, as_json=as_json, catch_up=catch_up)
        if flags.dry_run:
            preview = app.schedules.preview_resume(name)
            caught_up = app.schedules.preview_resume(name, catch_up=True)
            shown = {"resume": json_form(preview), "catch_up": json_form(caught_up)}
            answer(shown, lambda: _both(preview, caught_up), as_json=as_json)
            return None
        before = app.schedules.get(name)
        after = app.schedules.resume(name, catch_up=catch_up)
        local = LocalTime.at(app.store.now())

    def people() -> list[str]:
        words = (
            f"resumed {name}" if before.state == "paused" else f"{name} was not paused: it is {after.state}"
        )
        if after.next_run is None:
            return [words]
        return [f"{words}, next run {local.full(after.next_run)}, {local.away(after.next_run)}"]

    answer({"schedule": json_form(after)}, people, as_json=as_json)
    return None


def _previews(app: Scheduler, rows: Sequence[Schedule], _: LocalTime, *, catch_up: bool) -> Fitted:
    """Return a table of what becomes of the missed ticks."""

    def sentence(row: Schedule) -> str:
        try:
            return app.schedules.preview_resume(row.name, catch_up=catch_up, tenant=row.tenant).sentence
        except DamagedSchedule as error:
            return str(error)

    return Fitted(
        [
            Column("schedule", [row.name for row in rows]),
            Column("the missed ticks", [sentence(row) for row in rows], wraps=30),
        ]
    )


def _both(preview: ResumePreview, caught_up: ResumePreview) -> list[str]:
    if caught_up.sentence == preview.sentence:
        return [preview.sentence]
    return [preview.sentence, f"With --catch-up: {caught_up.sentence}"]
