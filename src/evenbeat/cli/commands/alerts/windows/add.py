"""``evenbeat alerts windows add``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.alert_input import filter_options
from evenbeat.cli.alert_words import covers
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form


@click.command("add")
@click.argument("name")
@click.option("--until", metavar="WHEN", required=True, help="18:00, 2026-03-01T09:00, or for a while: 2h.")
@click.option("--starts", metavar="WHEN", help="22:00, a date, or +2h.  [default: now]")
@filter_options
@click.option("--note", metavar="TEXT", default="", help="What is done in it.")
@click.option("--all-tenants", is_flag=True, help="Mute the alerts of all tenants.")
@store_options
@json_option
def command(
    name: str,
    until: str,
    starts: str | None,
    schedule: str | None,
    tag: str | None,
    note: str,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Mute the alerts of some schedules, or of all, until a time.

    What is still wrong when it is over is announced then. It deletes itself.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        begin = None if starts is None else from_ms(local.read(starts, "--starts"))
        made = app.alerts.windows.add(
            name,
            until=from_ms(local.read(until, "--until")),
            starts=begin,
            schedule=schedule,
            tag=tag,
            note=note,
            all_tenants=all_tenants,
        )

    def people() -> Iterator[str]:
        about = covers(made)
        about = f"tenant {made.tenant}" if about == "all" else about
        yield f"added {made.name}: alerts of {about} are muted"
        if begin is not None:
            yield f"from  {local.full(begin)}, {local.away(begin)}"
        yield f"until {local.full(made.ends_at)}, {local.away(made.ends_at)}"

    answer({"window": json_form(made)}, people, as_json=as_json)
