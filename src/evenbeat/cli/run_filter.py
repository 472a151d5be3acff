"""The options that choose runs, of ``list``, ``retry --all`` and ``cancel --all``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.app.runs import RunFilter
from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import added
from evenbeat.cli.store_input import all_tenants_option, complete_schedule
from evenbeat.core.instants import from_ms

run_filter_options = added(
    click.option(
        "--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only runs of this schedule."
    ),
    click.option("--task", metavar="TASK", help="Only runs of this task."),
    click.option("--queue", metavar="NAME", help="Only runs of this queue."),
    click.option("--worker", metavar="NAME", help="Only runs that this node executes, or executed last."),
    click.option(
        "--since",
        metavar="WHEN",
        help="Only runs that were running, or ended, after this: 02:55, a date, or 2h ago.",
    ),
    click.option("--until", metavar="WHEN", help="Only runs that were running, or ended, before this."),
    all_tenants_option,
)


def read_filter(app: Scheduler, local: LocalTime, options: dict[str, Any]) -> RunFilter:
    """Return the options as ``app.runs`` takes them; ``ScheduleNotFound`` for a misspelt schedule.

    A schedule without a row may have runs: it is in the code only, or was deleted.
    """
    name = options["schedule"]
    if name is not None and not options["all_tenants"] and not app.runs.list(schedule=name, limit=1):
        app.schedules.get(name)
    since, until = local.read_window(options["since"], options["until"])
    return RunFilter(
        schedule=options["schedule"],
        task=options["task"],
        queue=options["queue"],
        worker=options["worker"],
        since=None if since is None else from_ms(since),
        until=None if until is None else from_ms(until),
        all_tenants=options["all_tenants"],
    )


def is_narrowed(options: dict[str, Any]) -> bool:
    """Return whether an option narrows the choice."""
    return any(value is not None for name, value in options.items() if name != "all_tenants")
