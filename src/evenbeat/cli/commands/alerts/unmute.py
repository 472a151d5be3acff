"""``evenbeat alerts unmute``."""

from __future__ import annotations

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form


@click.command("unmute")
@click.argument("name")
@for_all_option
@store_options
@json_option
def command(name: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """End the mute of an alert rule. What is wrong now is announced now."""
    with opened(store, tenant) as app:
        before = app.alerts.rules.get(name, all_tenants=all_tenants)
        after = app.alerts.rules.unmute(name, all_tenants=all_tenants)

    def people() -> list[str]:
        return [f"unmuted {name}" if before.muted_until is not None else f"{name} was not muted"]

    answer({"rule": json_form(after)}, people, as_json=as_json)
