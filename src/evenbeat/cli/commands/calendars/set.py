"""``evenbeat calendars set``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evenbeat.cli.calendar_input import users_of
from evenbeat.cli.failures import Failed
from evenbeat.cli.layout import indented
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable, warning_lines
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.calendars import LONGEST_ICS
from evenbeat.core.instants import to_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count, date_time, timespec

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("set")
@click.argument("name")
@click.option(
    "--day", "days", metavar="DAY", multiple=True, help="2026-12-25, 2026-12-24..2026-12-31, or 12-25."
)
@click.option("--weekly", metavar="WINDOW", multiple=True, help="'mon-fri 09:00-17:00', 'sat,sun'.")
@click.option("--without", metavar="DAY", multiple=True, help="A day to take out again.")
@click.option("--tz", metavar="ZONE", help="Zone of its days and windows.  [default: that of each schedule]")
@click.option(
    "--country", metavar="CODE", help="The holidays of a country, such as US. Needs the extra calendars."
)
@click.option("--subdivision", metavar="CODE", help="The part of the country, such as CA.")
@click.option(
    "--ics",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The events of a file in the iCalendar format. Needs the extra calendars.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@store_options
@json_option
def command(
    name: str,
    days: tuple[str, ...],
    weekly: tuple[str, ...],
    without: tuple[str, ...],
    tz: str | None,
    country: str | None,
    subdivision: str | None,
    ics: Path | None,
    dry_run: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Create a calendar, or replace what it contains.

    Schedules name it in their triggers: '0 9 * * * skip=NAME'. Those that use it already are planned anew. A
    database that does not exist is created.
    """
    text = None if ics is None else _read(ics)
    with opened(store, tenant, create=True) as app:
        made = app.calendars.set(
            name,
            days=days,
            weekly=weekly,
            without=without,
            tz=tz,
            country=country,
            subdivision=subdivision,
            ics=text,
            dry_run=dry_run,
        )

    def people() -> Iterator[RenderableType]:
        yield f"{'would set' if dry_run else 'set'} {made.name}: {printable(made.words)}"
        if made.covers_until is not None:
            yield f"worked out until {made.covers_until}"
        if made.schedule_count or made.templates:
            yield f"used by {users_of(made)}"
        if made.replanned:
            yield f"{count(made.replanned, 'schedule')} {'would be ' if dry_run else ''}planned anew"
        for effect in made.effects:
            yield indented(f"{effect.schedule}: next {_ticks(effect.before)} → {_ticks(effect.after)}")
        yield from warning_lines(made.warnings)

    answer({"calendar": json_form(made)}, people, as_json=as_json)


def _ticks(ticks: tuple[datetime, ...]) -> str:
    return ", ".join(date_time(tick, timespec([to_ms(tick)])) for tick in ticks) or "none"


def _read(path: Path) -> str:
    """Return the text of a file; refuse a large one by its size, before it is read."""
    size = path.stat().st_size
    if size > 4 * LONGEST_ICS:
        raise Failed(
            f"{path} has {size:,} bytes, more than {LONGEST_ICS:,} characters", "give a smaller file"
        )
    return path.read_text(encoding="utf-8", errors="replace")
