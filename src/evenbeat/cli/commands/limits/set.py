"""``evenbeat limits set``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.limit_input import limit_names
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import warning_lines
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form


@click.command("set")
@limit_names
@click.option("--concurrency", metavar="N", type=int, help="At most so many runs at once.")
@click.option("--rate", metavar="N/PERIOD", help="At most so many starts in a period: 100/m, 5/s, 10/30s.")
@click.option(
    "--burst", metavar="N", type=int, help="How many starts the rate allows at once after a quiet time."
)
@store_option
@json_option
def command(
    task: str | None,
    queue: str | None,
    tenant: str | None,
    key: str | None,
    concurrency: int | None,
    rate: str | None,
    burst: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Set a limit, or replace the one of the same names.

    It holds over all machines for the runs that have the given task, queue and tenant; with --key, for each
    value of that field of the payload. Runs that are running already go on. A database that does not exist is
    created.
    """
    with opened(store, None, create=True, tasks=True) as app:
        made = app.limits.set(
            task=task, queue=queue, tenant=tenant, key=key, concurrency=concurrency, rate=rate, burst=burst
        )

    def people() -> Iterator[str]:
        yield f"set {made.name}: {made.words}"
        if made.waiting:
            yield f"{made.running:,} running, {made.waiting:,} waiting"
        yield from warning_lines(made.warnings)

    answer({"limit": json_form(made)}, people, as_json=as_json)
