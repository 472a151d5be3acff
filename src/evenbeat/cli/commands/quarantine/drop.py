"""``evenbeat quarantine drop``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.quarantined import quarantined
from evenbeat.cli.store_input import store_options
from evenbeat.core.json_form import json_form


@click.command("drop")
@click.argument("id")
@store_options
@json_option
def command(id: str, store: str | None, tenant: str | None, as_json: bool) -> None:  # noqa: A002  # as in Python
    """Give up a row: delete its note, and a broken schedule.

    ID is the name of the schedule or the id of the run. A schedule that nodes can't process is deleted; its
    runs and their history stay. Of a run, only the note is deleted: the run stays failed.
    'evenbeat quarantine show ID' says what would happen.
    """
    with quarantined(store, tenant) as app:
        done = app.quarantine.drop(id)

    def people() -> Iterator[str]:
        yield f"{done.subject} {printable(done.name)}: {printable(done.words)}"

    answer(json_form(done), people, as_json=as_json)
