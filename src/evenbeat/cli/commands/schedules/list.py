"""``evenbeat schedules list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.schedule_filter import is_narrowed, read_filter, schedule_filter_options
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.records import ScheduleState

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@click.option("--state", type=click.Choice(get_args(ScheduleState)), help="Only schedules in this state.")
@schedule_filter_options
@click.option("--limit", metavar="N", type=click.IntRange(1), help="At most this many.")
@store_options
@json_option
def command(
    state: ScheduleState | None,
    limit: int | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List schedules with their state, next run and last result."""
    chosen = read_filter(options)
    with opened(store, tenant) as app:
        rows = app.schedules.list(state=state, limit=limit, **chosen)
        stats = app.schedules.stats(rows)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not rows:
            narrowed = state is not None or is_narrowed(chosen)
            yield "no such schedules" if narrowed else "no schedules yet: evenbeat schedules add --help"
            return
        yield schedule_table(rows, local, stats, show_tenants=chosen["all_tenants"])

    schedules = [json_form(row) | {"stats": json_form(each)} for row, each in zip(rows, stats, strict=True)]
    answer({"schedules": schedules}, people, as_json=as_json)
