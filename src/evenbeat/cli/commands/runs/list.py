"""``evenbeat runs list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.run_table import run_table
from evenbeat.cli.store_input import all_tenants_option, complete_schedule, opened, store_options
from evenbeat.cli.wall import Wall
from evenbeat.model import RunState

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@click.option("--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only those of this one.")
@click.option("--task", metavar="TASK", help="Only those of this task.")
@click.option("--state", type=click.Choice(get_args(RunState)), help="Only those in this state.")
@click.option(
    "--limit", metavar="COUNT", type=click.IntRange(1), default=20, show_default=True, help="How many."
)
@all_tenants_option
@store_options
@json_option
def command(
    schedule: str | None,
    task: str | None,
    state: RunState | None,
    limit: int,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """List runs, the newest first."""
    with opened(store, tenant) as app:
        if schedule is not None and not all_tenants:
            app.schedules.get(schedule)  # a name that is misspelt is no empty list
        # One more than is shown, to know whether there are more.
        found = app.runs.list(
            schedule=schedule, task=task, state=state, limit=limit + 1, all_tenants=all_tenants
        )
        wall = Wall.at(app.store.now())
    runs = found[:limit]

    def people() -> Iterable[RenderableType]:
        if not runs:
            yield "no runs" if schedule is None and task is None and state is None else "no such runs"
            return
        yield run_table(runs, wall)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"

    answer({"runs": json_form(runs), "more": len(found) > limit}, people, as_json=as_json)
