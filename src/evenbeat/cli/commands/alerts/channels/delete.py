"""``evenbeat alerts channels delete``."""

from __future__ import annotations

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("delete")
@click.argument("name")
@for_all_option
@store_options
@json_option
def command(name: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Delete a channel that no rule uses."""
    with opened(store, tenant) as app:
        channel = app.alerts.channels.get(name, all_tenants=all_tenants)
        app.alerts.channels.delete(name, all_tenants=all_tenants)

    answer({"deleted": name, "tenant": channel.tenant}, lambda: [f"deleted channel {name}"], as_json=as_json)
