"""``evenbeat calendars list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.calendar_input import users_of
from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@store_options
@json_option
def command(store: str | None, tenant: str | None, as_json: bool) -> None:
    """List the calendars.

    The built-in ones come first.
    """
    with opened(store, tenant) as app:
        calendars = app.calendars.list()

    def people() -> Iterable[RenderableType]:
        yield Fitted(
            [
                Column("calendar", [each.name for each in calendars], wraps=24),
                Column("contains", [printable(each.words) for each in calendars], wraps=50),
                Column("schedules", [users_of(each) for each in calendars], wraps=40),
                Column("until", [each.covers_until or "" for each in calendars]),
                Column("by", [each.updated_by or "built in" for each in calendars], drop=1),
            ]
        )

    answer({"calendars": json_form(calendars)}, people, as_json=as_json)
