"""``evenbeat calendars delete``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.calendar_input import finding_calendar
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("delete")
@click.argument("name")
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Delete a calendar that no schedule uses."""
    with opened(store, tenant) as app, finding_calendar():
        app.calendars.delete(name)

    def people() -> Iterator[str]:
        yield f"deleted {name}"

    answer({"deleted": name}, people, as_json=as_json)
