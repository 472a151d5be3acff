"""``evenbeat db upgrade``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import find_store, settings_here, store_option
from evenbeat.stores.base import Schema


@click.command("upgrade")
@click.option("--sql", is_flag=True, help="Print the SQL that would be run, and run nothing.")
@store_option
@json_option
def command(sql: bool, store: str | None, as_json: bool) -> None:
    """Create or upgrade the tables; safe to repeat.

    Nodes do the same when they start. This command does it before they start, or prints the SQL.
    """
    database, where = find_store(settings_here(store=store), create=True)
    before = database.schema()
    if sql:
        _print_script(before, where, as_json=as_json)
        return
    database.open()
    database.close()
    after = database.schema().found

    def people() -> list[str]:
        if before.found == after:
            return [f"{where} is up to date: schema {after}"]
        if not before.found:
            return [f"created the tables of {where}: schema {after}"]
        return [f"upgraded {where} from schema {before.found} to {after}"]

    answer({"store": where, "from": before.found or None, "to": after}, people, as_json=as_json)


def _print_script(schema: Schema, where: str, *, as_json: bool) -> None:
    if not schema.known:
        raise Failed(f"{where} has no tables to create")
    found, known = schema.found or None, schema.known
    if as_json:
        document: dict[str, Any] = {"store": where, "from": found, "to": known, "sql": schema.script}
        answer(document, list, as_json=True)
    else:
        # Not through rich: nothing may be wrapped.
        click.echo(schema.script.rstrip("\n") or f"-- {where} is up to date: schema {known}")
