"""``evenbeat templates delete``."""

from __future__ import annotations

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options


@click.command("delete")
@click.argument("name")
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Delete a template that no schedule uses."""
    with opened(store, tenant) as app:
        app.templates.delete(name)
        owner = app.tenant

    answer({"deleted": name, "tenant": owner}, lambda: [f"deleted template {name}"], as_json=as_json)
