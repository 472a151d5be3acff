"""``evenbeat schedules cells``: the heat map of a schedule, past and future."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, get_args

import click

from evenbeat.cli.heat_map import HeatMapChart
from evenbeat.cli.layout import styled
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.cells import CellLength
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("cells")
@click.argument("name", shell_complete=complete_schedule)
@click.option(
    "--from", "since", metavar="TIME", default="7d", show_default=True, help="The start: a time, or 7d ago."
)
@click.option(
    "--to", "until", metavar="TIME", default="2d", show_default=True, help="The end: a time, or 2d from now."
)
@click.option(
    "--by",
    type=click.Choice(get_args(CellLength)),
    default="hour",
    show_default=True,
    help="A line of hours for each day, or a line of days for each week.",
)
@click.option("--tz", metavar="ZONE", help="The zone of the hours and days; else the trigger's.")
@store_options
@json_option
def command(
    name: str,
    since: str,
    until: str,
    by: CellLength,
    tz: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show the past and coming ticks of a schedule as a heat map: hours by day, or days by week."""
    with opened(store, tenant) as app:
        found = app.schedules.cells(name, since, until, by=by, tz=tz)

    def people() -> Iterable[RenderableType]:
        chart = HeatMapChart(found)
        is_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        yield styled((f"{found.schedule}, by the {found.by} ({found.zone})", "bold"))
        yield f"now is {found.now:%a %m-%d %H:%M}"
        yield ""
        yield chart
        yield ""
        yield chart.legend(ascii_only=is_ascii)
        total = {field: sum(getattr(cell, field) for cell in found.cells) for field in _TOTALS}
        runs = count(total["fired"], "tick")
        shown = [field for field in _TOTALS[1:] if field != "paused" or total[field]]
        yield f"{runs} fired, " + ", ".join(f"{total[field]:,} {field}" for field in shown)
        if not found.is_exact:
            yield "not exact: there are too many ticks to count each"

    answer(json_form(found), people, as_json=as_json)


_TOTALS = ("fired", "succeeded", "failed", "skipped", "coalesced", "planned", "paused")
