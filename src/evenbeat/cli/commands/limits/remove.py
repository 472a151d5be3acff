"""``evenbeat limits remove``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.limit_input import finding_limit, limit_names
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.rules.limit_definitions import read_names


@click.command("remove")
@limit_names
@store_option
@json_option
def command(
    task: str | None, queue: str | None, tenant: str | None, key: str | None, store: str | None, as_json: bool
) -> None:
    """Remove a limit. Runs that waited for it may start at once.

    The flags are all the names of the limit, as in 'evenbeat limits list'.
    """
    with opened(store, None) as app, finding_limit():
        app.limits.remove(task=task, queue=queue, tenant=tenant, key=key)
        name = read_names(task, queue, tenant, key).name

    def people() -> Iterator[str]:
        yield f"removed {name}"

    answer({"removed": name}, people, as_json=as_json)
