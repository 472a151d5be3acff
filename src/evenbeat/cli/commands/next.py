"""``evenbeat next``: the coming ticks of a trigger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import headed, listed
from evenbeat.cli.local import local_zone
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import store_options
from evenbeat.cli.ticks import TickTable, clock_notes, explanation_document, shown_ticks
from evenbeat.cli.trigger_input import EXPRESSIONS, explain_input, trigger_arguments
from evenbeat.core.forecasts import MOST_TICKS
from evenbeat.triggers.zones import read_zone

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("next", epilog=EXPRESSIONS)
@trigger_arguments
@click.option(
    "-n",
    "--count",
    metavar="N",
    default=5,
    type=click.IntRange(1, MOST_TICKS),
    show_default=True,
    help="How many ticks.",
)
@store_options
@json_option
def command(
    expr: tuple[str, ...],
    tz: str | None,
    since: str | None,
    name: str | None,
    count: int,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show the next ticks of a trigger."""
    found = explain_input(expr, count, tz=tz, since=since, name=name, store=store, tenant=tenant)
    ticks = shown_ticks(found)
    mine = local_zone()

    def people() -> Iterable[RenderableType]:
        yield from headed(found.words)
        if ticks:
            yield ""
            yield TickTable(ticks, read_zone(found.zone), mine)
        if footnotes := clock_notes(ticks):
            yield ""
            yield listed(footnotes)
        if found.notes:
            yield ""
            yield listed([("note:", note) for note in found.notes])

    answer(explanation_document(found, mine), people, as_json=as_json)
