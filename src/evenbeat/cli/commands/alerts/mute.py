"""``evenbeat alerts mute``."""

from __future__ import annotations

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form


@click.command("mute")
@click.argument("name")
@click.option("--until", metavar="WHEN", required=True, help="18:00, 2026-03-01T09:00, or for a while: 2h.")
@for_all_option
@store_options
@json_option
def command(
    name: str, until: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Mute an alert rule until a time. What is still wrong then is announced then."""
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        end = from_ms(local.read(until, "--until"))
        muted = app.alerts.rules.mute(name, end, all_tenants=all_tenants)

    answer(
        {"rule": json_form(muted)},
        lambda: [f"muted {name} until {local.full(end)}, {local.away(end)}"],
        as_json=as_json,
    )
