"""``evenbeat schedules reset``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.rules.ownership import declared_in


@click.command("reset")
@click.argument("name", shell_complete=complete_schedule)
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Undo edits by hand: the schedule becomes what is declared."""
    with opened(store, tenant) as app:
        edited = sorted(app.schedules.get(name).edited)
        schedule = app.schedules.reset(name)
        local = LocalTime.at(app.store.now())

    def people() -> Iterator[str]:
        if not edited:
            place = declared_in(schedule.managed_by)
            yield f"{name} is as the {place} declares it: there is nothing to undo"
            return
        yield f"reset {name} ({', '.join(edited)})"
        if schedule.next_run is not None and not schedule.paused:
            yield f"next run {local.full(schedule.next_run)}, {local.away(schedule.next_run)}"

    answer({"schedule": json_form(schedule), "reset": edited}, people, as_json=as_json)
