"""``evenbeat calendars show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.calendar_input import finding_calendar
from evenbeat.cli.layout import listed, styled
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.calendars import Calendar, CalendarDay
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 20


@click.command("show")
@click.argument("name")
@click.option("--from", "since", metavar="DATE", show_default="today", help="Show days from this one on.")
@click.option(
    "--days", "count", metavar="N", type=int, default=366, show_default=True, help="Of so many days."
)
@click.option("--tz", metavar="ZONE", help="Zone of a calendar that has none of its own.")
@store_options
@json_option
def command(
    name: str,
    since: str | None,
    count: int,
    tz: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show a calendar: what it contains, its next days, and the schedules that use it."""
    with opened(store, tenant) as app, finding_calendar():
        calendar = app.calendars.get(name)
        days = app.calendars.preview(name, since=since, count=count, tz=tz)

    def people() -> Iterable[RenderableType]:
        yield styled((calendar.name, "bold"))
        yield ""
        yield listed(list(_lines(calendar, tz or "UTC")))
        yield ""
        for day in days[:_SHOWN]:
            yield _day(day)
        if len(days) > _SHOWN:
            yield f"and {len(days) - _SHOWN:,} more days; --json lists all"
        if not days:
            yield "it has no day in this time"

    answer({"calendar": json_form(calendar), "days": json_form(days)}, people, as_json=as_json)


def _lines(calendar: Calendar, shown_in: str) -> Iterator[tuple[str, RenderableType]]:
    yield "contains", printable(calendar.words)
    if calendar.covers_until is not None:
        yield "worked out", f"until {calendar.covers_until}; set it again to renew it"
    if calendar.without:
        yield "without", ", ".join(calendar.without)
    if calendar.tz is None:
        events = f"; times of events are shown in {shown_in}" if calendar.events else ""
        yield "zone", f"that of each schedule{events}"
    else:
        yield "zone", calendar.tz
    yield "schedules", ", ".join(calendar.schedules) or "none"
    if calendar.templates:
        yield "templates", ", ".join(calendar.templates)


def _day(day: CalendarDay) -> str:
    times = f" {', '.join(day.times)}" if day.times else ""
    return f"{day.day} {day.weekday}{times}"
