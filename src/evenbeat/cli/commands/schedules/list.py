"""``evenbeat schedules list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import click

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.states import last_result, next_run, schedule_state
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.records import ScheduleState

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@click.option("--state", type=click.Choice(get_args(ScheduleState)), help="Only schedules in this state.")
@click.option("--task", metavar="TASK", help="Only schedules of this task.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="At most this many.")
@all_tenants_option
@store_options
@json_option
def command(
    state: ScheduleState | None,
    task: str | None,
    limit: int | None,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """List schedules with their state, next run and last result."""
    with opened(store, tenant) as app:
        rows = app.schedules.list(state=state, task=task, limit=limit, all_tenants=all_tenants)
        stats = app.schedules.stats(rows)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not rows:
            narrowed = state is not None or task is not None
            yield "no such schedules" if narrowed else "no schedules yet: evenbeat schedules add --help"
            return
        coming = [next_run(row, local) for row in rows]
        yield Fitted(
            [
                Column("tenant", [row.tenant if all_tenants else "" for row in rows]),
                Column("name", [row.name for row in rows]),
                Column("state", [schedule_state(row, local) for row in rows], wraps=16),
                Column("next run", [when for when, _ in coming], drop=3),
                Column("", [away for _, away in coming], wraps=16, alone="next"),
                Column("trigger", [row.trigger for row in rows], drop=1, wraps=16),
                Column("task", [row.task for row in rows], drop=4),
                Column("last run", [last_result(each, local) for each in stats], drop=2),
            ]
        )

    schedules = [json_form(row) | {"stats": json_form(each)} for row, each in zip(rows, stats, strict=True)]
    answer({"schedules": schedules}, people, as_json=as_json)
