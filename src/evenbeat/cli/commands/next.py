"""``evenbeat next``: the coming ticks of a trigger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import headed, listed
from evenbeat.cli.local import local_zone
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.ticks import TickTable, clock_notes, coming_ticks, tick_document, why_no_more
from evenbeat.cli.trigger_input import EXPRESSIONS, read_trigger_input, trigger_arguments
from evenbeat.core.instants import write_instant

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("next", epilog=EXPRESSIONS)
@trigger_arguments
@click.option(
    "-n",
    "--count",
    metavar="N",
    default=5,
    type=click.IntRange(1, 1000),
    show_default=True,
    help="How many ticks.",
)
@json_option
def command(
    expr: tuple[str, ...], tz: str | None, since: str | None, name: str | None, count: int, as_json: bool
) -> None:
    """Show the next ticks of a trigger."""
    asked = read_trigger_input(expr, tz=tz, since=since, name=name)
    ticks = coming_ticks(asked, count)
    notes = list(asked.notes)
    if len(ticks) < count:
        notes.append(why_no_more(asked, ticks))
    mine = local_zone()

    def people() -> Iterable[RenderableType]:
        yield from headed(asked.trigger.explain())
        if ticks:
            yield ""
            yield TickTable(ticks, asked.zone, mine)
        if footnotes := clock_notes(ticks):
            yield ""
            yield listed(footnotes)
        if notes:
            yield ""
            yield listed([("note:", note) for note in notes])

    document = {
        "trigger": str(asked.trigger),
        "explain": asked.trigger.explain(),
        "tz": asked.zone.key,
        "my_tz": mine.name,
        "from": write_instant(asked.since),
        "ticks": [tick_document(tick, asked.zone, mine) for tick in ticks],
        "notes": notes,
    }
    answer(document, people, as_json=as_json)
