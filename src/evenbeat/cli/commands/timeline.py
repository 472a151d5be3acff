"""``evenbeat timeline``: the past and coming ticks of many schedules, a line for each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, get_args

import click

from evenbeat.app.lanes import MOST_LANES
from evenbeat.cli.lanes import LEGEND, LaneChart
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.schedule_filter import is_narrowed, read_filter, schedule_filter_options
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.records import ScheduleState

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("timeline")
@click.option(
    "--from", "since", metavar="TIME", default="1h", show_default=True, help="The start: a time, or 1h ago."
)
@click.option(
    "--to", "until", metavar="TIME", default="1h", show_default=True, help="The end: a time, or 1h from now."
)
@click.option("--state", type=click.Choice(get_args(ScheduleState)), help="Only schedules in this state.")
@schedule_filter_options
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MOST_LANES),
    default=50,
    show_default=True,
    help="At most this many schedules.",
)
@store_options
@json_option
def command(
    since: str,
    until: str,
    state: ScheduleState | None,
    limit: int,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show when schedules ran and will run, a line for each."""
    chosen = read_filter(options)
    with opened(store, tenant) as app:
        found = app.timeline(since, until, state=state, limit=limit, **chosen)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not found.lanes:
            narrowed = state is not None or is_narrowed(chosen)
            yield "no such schedules" if narrowed else "no schedules yet: evenbeat schedules add --help"
            return
        yield LaneChart(found, local.zone, show_tenants=bool(chosen["all_tenants"]))
        yield ""
        yield f"{LEGEND} ({local.zone.name})"
        if not all(lane.is_exact for lane in found.lanes):
            yield "~ not exact: there are too many ticks to count each"

    answer(json_form(found), people, as_json=as_json)
