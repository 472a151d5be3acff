"""``evenbeat schedules reschedule``."""

from __future__ import annotations

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.cli.wall import Wall
from evenbeat.instants import from_ms


@click.command("reschedule")
@click.argument("name", shell_complete=complete_schedule)
@click.argument("when")
@store_options
@json_option
def command(name: str, when: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Move the next run of a schedule, and it alone.

    WHEN is a date and time, here unless it has an offset, or +2h from now. Those after it come as the
    trigger says; ticks that are passed over are recorded as skipped.
    """
    with opened(store, tenant) as app:
        wall = Wall.at(app.store.now())
        moved = app.schedules.reschedule(name, from_ms(wall.read(when, "WHEN")))

    def people() -> list[str]:
        assert moved.next_run is not None
        words = f"next run of {name}: {wall.full(moved.next_run)}, {wall.away(moved.next_run)}"
        return [
            words,
            *(["it is paused: it won't run before it is resumed"] if moved.state == "paused" else []),
        ]

    answer({"schedule": json_form(moved)}, people, as_json=as_json)
