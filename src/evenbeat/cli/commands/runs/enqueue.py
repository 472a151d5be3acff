"""``evenbeat runs enqueue``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import given, run_options
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.store_input import opened, options_unknown, store_options
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import command_line


@click.command("enqueue")
@click.argument("task")
@payload_option
@click.option("--at", "at", metavar="WHEN", help="Not before this: 09:30, 2026-03-01T09:30, or +2h from now.")
@click.option("--id", "run_id", metavar="ID", help="An id of your own: enqueueing it again adds nothing.")
@click.option(
    "--unique",
    metavar="KEY",
    help='"payload", or a key: adds nothing while a run of the task with the same one is active.',
)
@run_options
@store_options
@json_option
def command(
    task: str,
    payload: dict[str, Any] | None,
    at: str | None,
    run_id: str | None,
    unique: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue a run of a task, now or for later.

    TASK is the name of a task that a node has. If the setting "app" names the app (EVENBEAT_APP=app.py), the
    run gets the options that the code gives the task: queue, timeout, retries and so on. Otherwise they are
    not known, and the run gets the defaults: give the options that matter.
    """
    with opened(store, tenant, tasks=True) as app:
        local = LocalTime.at(app.store.now())
        moment = None if at is None else from_ms(local.read(at, "--at"))
        run = app.enqueue(task, payload, at=moment, id=run_id, unique=unique, **given(options))

    def people() -> list[str]:
        if (run_id or run.unique_key) is not None and to_ms(run.created_at) < local.now:
            return [f"{run.id} is there already: {run.state}"]
        when = "" if at is None else f" for {local.full(run.run_at)}, {local.away(run.run_at)}"
        show = command_line(f"runs show {run.id}", run.tenant)
        words = f"queued a run of {run.task} in queue {run.queue}{when}: {show}"
        return [words, *options_unknown(app.tasks, task)]

    answer({"run": json_form(run)}, people, as_json=as_json)
