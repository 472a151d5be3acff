"""``evenbeat alerts delete``."""

from __future__ import annotations

import sys

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Don't ask.")
@for_all_option
@store_options
@json_option
def command(
    name: str, yes: bool, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Delete an alert rule. What it has found ends without an announcement."""
    with opened(store, tenant) as app:
        rule = app.alerts.rules.get(name, all_tenants=all_tenants)
        if not yes and sys.stdin.isatty():
            click.confirm(f"delete {name} ({', '.join(rule.on)})?", abort=True, err=True)
        app.alerts.rules.delete(name, all_tenants=all_tenants)

    def people() -> list[str]:
        words = [f"deleted {name}"]
        if rule.managed_by in ("code", "config"):
            source = "the code" if rule.managed_by == "code" else "a file"
            words.append(f"{source} declares it: the next node that starts creates it again")
        return words

    answer({"deleted": name, "tenant": rule.tenant}, people, as_json=as_json)
