"""``evenbeat backfills cancel``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count


@click.command("cancel")
@click.argument("backfill_id", metavar="ID")
@store_options
@json_option
def command(backfill_id: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Cancel a backfill as a whole.

    Adds no further runs, cancels the queued ones, and asks running ones to stop. Does nothing to a backfill
    that is over.
    """
    with opened(store, tenant) as app:
        found = app.backfills.cancel(backfill_id)

    def people() -> Iterator[str]:
        if found.state == "done":
            ends = f"{found.succeeded:,} succeeded, {found.failed:,} failed"
            yield f"backfill {found.id} was done already: {ends}"
            return
        yield f"cancelled backfill {found.id} of {found.schedule}: {count(found.left, 'run')} not added"
        if found.active:
            yield f"{count(found.active, 'run')} asked to stop"

    answer({"backfill": json_form(found)}, people, as_json=as_json)
