"""``evenbeat schedules pause``."""

from __future__ import annotations

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.cli.wall import Wall
from evenbeat.errors import InvalidValue
from evenbeat.instants import from_ms


@click.command("pause")
@click.argument("name", shell_complete=complete_schedule)
@click.option("--note", metavar="TEXT", default="", help="Why, for whoever looks at it.")
@click.option("--until", metavar="WHEN", help="It goes on by itself: 2026-03-01T09:00, or 2h from now.")
@store_options
@json_option
def command(
    name: str, note: str, until: str | None, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Pause a schedule, until it is resumed or a time comes.

    Its ticks in between are recorded as skipped.
    """
    with opened(store, tenant) as app:
        wall = Wall.at(app.store.now())
        end = None if until is None else wall.read(until, "--until")
        if end is not None and end <= wall.now:
            raise InvalidValue(f"--until {until} is not in the future", field="until", value=until)
        paused = app.schedules.pause(name, note, until=None if end is None else from_ms(end))

    def people() -> list[str]:
        if paused.state != "paused":
            return [f"{name} is {paused.state}: there is nothing to pause"]
        if paused.paused_until is None:
            return [f"paused {name} until it is resumed: evenbeat schedules resume {name}"]
        return [f"paused {name} until {wall.full(paused.paused_until)}, {wall.away(paused.paused_until)}"]

    answer({"schedule": json_form(paused)}, people, as_json=as_json)
