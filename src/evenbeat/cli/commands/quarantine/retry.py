"""``evenbeat quarantine retry``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.quarantined import quarantined
from evenbeat.cli.store_input import store_options
from evenbeat.core.json_form import json_form


@click.command("retry")
@click.argument("id")
@store_options
@json_option
def command(id: str, store: str | None, tenant: str | None, as_json: bool) -> None:  # noqa: A002  # as in Python
    """Wake a schedule, or queue a run, that can be read now.

    ID is the name of the schedule or the id of the run. A schedule gets its wake-up again, and its catch-up
    policy decides about missed ticks. A run is queued again. If the row still can't be read or planned, the
    command fails and says what is wrong.
    """
    with quarantined(store, tenant) as app:
        done = app.quarantine.retry(id)

    def people() -> Iterator[str]:
        yield f"{done.subject} {printable(done.name)}: {printable(done.words)}"

    answer(json_form(done), people, as_json=as_json)
