"""``evenbeat schedules pause``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer
from evenbeat.cli.schedule_bulk import (
    ScheduleAction,
    act_on_schedules,
    read_bulk_flags,
    schedule_bulk_options,
)
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form
from evenbeat.core.results import Run
from evenbeat.errors import InvalidValue
from evenbeat.observe.phrases import command_line, count

# The most queued runs that are counted.
_RUNS = 1_000

_PAUSE = ScheduleAction(
    words=BulkAction("pause", "schedule", "paused {items}", schedule_table),
    states=("active", "paused"),
    default_states="active",
    every=Schedules.pause_all,
)


@click.command("pause")
@click.option("--note", metavar="TEXT", default="", help="Why it is paused.")
@click.option("--until", metavar="WHEN", help="Resume it then: 18:00, a date and time, or 2h from now.")
@click.option("--cancel-queued", is_flag=True, help="Cancel its queued runs, too.")
@schedule_bulk_options(_PAUSE)
def command(
    name: str | None,
    note: str,
    until: str | None,
    cancel_queued: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **given: Any,
) -> ExitCode | None:
    """Pause a schedule until it is resumed, or until a time; or all that match.

    The ledger records its ticks in between as skipped, also those that are due and not fired yet. Runs that
    are queued already still run, unless --cancel-queued cancels them.

    --all counts the schedules that match, shows some and asks first; add --yes in a script. The exit code is
    1 if any of them could not be paused.
    """
    flags = read_bulk_flags(name, given)
    if name is None and cancel_queued:
        raise click.UsageError("--cancel-queued goes with the name of one schedule")
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        end = None if until is None else local.read(until, "--until")
        if end is not None and end <= local.now:
            raise InvalidValue(f"--until {until} is not in the future", field="until", value=until)
        moment = None if end is None else from_ms(end)
        if name is None:
            return act_on_schedules(_PAUSE, app, flags, as_json=as_json, note=note, until=moment)
        before = app.runs.list(schedule=name, state="queued", brief=True, limit=_RUNS)
        paused = app.schedules.pause(name, note, until=moment, cancel_queued=cancel_queued)
        queued = app.runs.list(schedule=name, state="queued", brief=True, limit=_RUNS)
        running = app.runs.list(schedule=name, state="running", brief=True, limit=_RUNS)

    def people() -> Iterator[str]:
        if paused.state != "paused":
            yield f"{name} is {paused.state}: there is nothing to pause"
        elif paused.paused_until is None:
            resume = command_line(f"schedules resume {name}", paused.tenant)
            yield f"paused {name} until it is resumed: {resume}"
        else:
            yield f"paused {name} until {local.full(paused.paused_until)}, {local.away(paused.paused_until)}"
        if cancel_queued and len(queued) < len(before):
            yield f"cancelled {count(len(before) - len(queued), 'queued run')}"
        elif queued:
            least = "at least " if len(queued) == _RUNS else ""
            yield f"{least}{count(len(queued), 'run is', 'runs are')} queued and will run: {_some(queued)}"
            cancel = command_line(f"runs cancel --all --schedule {name} --state queued", paused.tenant)
            yield f"to cancel: {cancel}"
        if running:
            # A worker claims more runs than it executes at once: some of these may not have begun.
            yield f"{count(len(running), 'run is', 'runs are')} with workers and will go on"
            yield f"to stop: {command_line(f'runs cancel --all --schedule {name}', paused.tenant)}"

    shown = {
        "schedule": json_form(paused),
        "queued": [run.id for run in queued],
        "running": [run.id for run in running],
    }
    answer(shown, people, as_json=as_json)
    return None


def _some(runs: list[Run]) -> str:
    named = ", ".join(run.id for run in runs[:3])
    return named if len(runs) <= 3 else f"{named}, …"
