"""``evenbeat db upgrade``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import find_store, settings_here, store_option
from evenbeat.stores.base import Store


@click.command("upgrade")
@click.option("--sql", is_flag=True, help="Print the SQL that would be run, and run nothing.")
@store_option
@json_option
def command(sql: bool, store: str | None, as_json: bool) -> None:
    """Make or upgrade the tables; safe to repeat.

    Nodes do the same when they start: this is for those who do it before, or by hand.
    """
    settings = settings_here(store=store)
    where = settings.of("store").shown
    database = find_store(settings, create=True)
    before = _version(database)
    if sql:
        _print_sql(database, before, where, as_json=as_json)
        return
    database.open()
    database.close()
    after = _version(database)

    def people() -> list[str]:
        if before == after:
            return [f"{where} is up to date: schema {after}"]
        if not before:
            return [f"made the tables of {where}: schema {after}"]
        return [f"upgraded {where} from schema {before} to {after}"]

    answer({"store": where, "from": before or None, "to": after}, people, as_json=as_json)


def _version(store: Store) -> int:
    """The schema that is there; 0: none."""
    from evenbeat.stores.sqlite import SqliteStore
    from evenbeat.stores.sqlite.facts import facts

    if not isinstance(store, SqliteStore):
        return 0
    found = facts(store.path)
    return 0 if found is None else found.schema


def _print_sql(store: Store, since: int, where: str, *, as_json: bool) -> None:
    from evenbeat.stores.sqlite import SqliteStore, schema_sql
    from evenbeat.stores.sqlite.schema import KNOWN

    if not isinstance(store, SqliteStore):
        raise Failed(f"{where} has no SQL to print")
    script = schema_sql(since) if since < KNOWN else ""
    document: dict[str, Any] = {"store": where, "from": since or None, "to": KNOWN, "sql": script}
    words = script.rstrip("\n") or f"-- {where} is up to date: schema {since}"
    if as_json:
        answer(document, list, as_json=True)
    else:
        click.echo(words)  # not through rich: nothing may be wrapped
