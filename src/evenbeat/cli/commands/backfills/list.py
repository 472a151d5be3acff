"""``evenbeat backfills list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.app.backfills import MOST_LISTED
from evenbeat.cli.backfill_words import END_WIDTH, end_text, state_cell
from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.progress import bar
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@click.option(
    "--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only those of one schedule."
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MOST_LISTED),
    default=100,
    show_default=True,
    help="At most so many.",
)
@click.option("--all-tenants", is_flag=True, help="Of all tenants.")
@store_options
@json_option
def command(
    schedule: str | None, limit: int, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """List the backfills, the newest first, and how far they are.

    The range is in the zone of the schedule. A backfill that is over is kept for 90 days.
    """
    with opened(store, tenant) as app:
        found = app.backfills.list(schedule=schedule, limit=limit, all_tenants=all_tenants)
        if not found and schedule is not None and not all_tenants:
            app.schedules.get(schedule)  # refuses a misspelt name

    def people() -> Iterable[RenderableType]:
        if not found:
            name = schedule or "NAME"
            of = "" if schedule is None else f" of {schedule}"
            yield f"there are no backfills{of}; 'evenbeat schedules backfill {name} --from --to' makes one"
            return
        yield Fitted(
            [
                Column("id", [each.id for each in found]),
                Column("tenant", [each.tenant if all_tenants else "" for each in found]),
                Column("schedule", [each.schedule for each in found], wraps=12),
                Column("state", [state_cell(each) for each in found]),
                Column("ended", [f"{each.ended:,}/{each.total:,}" for each in found], justify="right"),
                Column("", [bar(each.ended, each.total, 12) for each in found], drop=3),
                Column(
                    "failed",
                    [f"{each.failed:,}" if each.failed else "" for each in found],
                    drop=1,
                    justify="right",
                ),
                Column("from", [end_text(each.start) for each in found], wraps=END_WIDTH),
                Column("to", [end_text(each.end) for each in found], wraps=END_WIDTH),
                Column("waits for", [each.waits_for or "" for each in found], drop=2, wraps=30),
            ]
        )

    answer({"backfills": json_form(found)}, people, as_json=as_json)
