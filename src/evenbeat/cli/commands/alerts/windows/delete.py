"""``evenbeat alerts windows delete``."""

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
    """End a maintenance window before its time. What is wrong now is announced now."""
    with opened(store, tenant) as app:
        app.alerts.windows.delete(name, all_tenants=all_tenants)

    answer({"deleted": name}, lambda: [f"deleted window {name}"], as_json=as_json)
