"""``evenbeat runs logs``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.instants import to_ms
from evenbeat.core.json_form import json_form
from evenbeat.core.records import FINAL_STATES
from evenbeat.core.results import LogLine

# Seconds between two reads of a log that grows. A notification of the store ends the wait early.
_POLL = 0.5


@click.command("logs")
@click.argument("run_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Show new lines until the run is over.")
@store_options
@json_option
def command(run_id: str, follow: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show the log of a run."""
    if follow and as_json:
        raise click.UsageError("--follow and --json exclude each other")
    with opened(store, tenant) as app:
        run = app.runs.get(run_id)
        local = LocalTime.at(app.store.now())
        if as_json:
            lines = json_form(app.runs.logs(run_id))
            answer({"run": run.id, "state": run.state, "lines": lines}, list, as_json=True)
            return
        attempt = 0
        empty = True
        for line in _following(app, run_id) if follow else iter(app.runs.logs(run_id)):
            if line.attempt != attempt and (attempt or line.attempt > 1):
                click.echo(click.style(f"attempt {line.attempt}", bold=True))
            attempt, empty = line.attempt, False
            for text in printable(line.text).rstrip("\n").split("\n"):
                click.echo(f"{click.style(_time(line, local), dim=True)}  {text}")
        if empty:
            click.echo("the run has no log", err=True)


def _following(app: Scheduler, run_id: str) -> Iterator[LogLine]:
    seen = 0
    while True:
        # The state first: lines that the run wrote before it ended are then read, too.
        over = app.runs.get(run_id).state in FINAL_STATES
        lines = app.runs.logs(run_id)
        yield from lines[seen:]
        seen = len(lines)
        if over:
            return
        app.store.wait(_POLL)


def _time(line: LogLine, local: LocalTime) -> str:
    return local.zone.show(to_ms(line.at)).replace(tzinfo=None).isoformat(" ", "milliseconds")
