"""``evenbeat alerts channels update``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.alerts import CHANNEL_KINDS
from evenbeat.core.json_form import json_form


@click.command("update")
@click.argument("name")
@click.option("--kind", type=click.Choice(CHANNEL_KINDS), help="How it sends.")
@click.option("--url", metavar="URL", help="Where it sends to, or env:EVENBEAT_SECRET_NAME.")
@click.option("--secret", metavar="TEXT", help="The key by which a webhook is signed.")
@click.option("--no-secret", is_flag=True, help="Remove the key: the webhook is not signed.")
@for_all_option
@store_options
@json_option
def command(
    name: str,
    no_secret: bool,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Change the kind, the URL or the secret of a channel."""
    if no_secret and options["secret"] is not None:
        raise click.UsageError("--secret and --no-secret exclude each other")
    changed = {field: value for field, value in options.items() if value is not None}
    if no_secret:
        changed["secret"] = None
    if not changed:
        raise click.UsageError("give what to change: --kind, --url, --secret or --no-secret")
    with opened(store, tenant) as app:
        before = app.alerts.channels.get(name, all_tenants=all_tenants)
        after = app.alerts.channels.update(name, all_tenants=all_tenants, **changed)

    def people() -> list[str]:
        if after.revision == before.revision:
            return [f"nothing changed: {name} has these values already"]
        return [f"updated {name}: {after.kind}, {after.address}"]

    answer({"channel": json_form(after)}, people, as_json=as_json)
