"""The options that choose schedules, of ``list`` and of commands with ``--all``."""

from __future__ import annotations

from typing import Any

import click

from evenbeat.app.schedule_search import ScheduleFilter
from evenbeat.cli.option_flags import added
from evenbeat.cli.store_input import all_tenants_option, complete_tag

schedule_filter_options = added(
    click.option(
        "--text", metavar="TEXT", help="Only schedules with this text in the name, task, tags or description."
    ),
    click.option("--task", metavar="TASK", help="Only schedules of this task."),
    click.option("--queue", metavar="NAME", help="Only schedules whose runs wait in this queue."),
    click.option("--tag", metavar="TAG", shell_complete=complete_tag, help="Only schedules with this tag."),
    click.option(
        "--managed-by",
        type=click.Choice(["code", "file", "api"]),
        help="Only schedules that the code declares, or a file, or only the others.",
    ),
    click.option(
        "--failing/--not-failing",
        default=None,
        help="Only schedules whose last run failed, or only the others.",
    ),
    click.option(
        "--late/--not-late",
        default=None,
        help="Only schedules that should have fired more than 30 s ago, or only the others.",
    ),
    all_tenants_option,
)


def read_filter(options: dict[str, Any]) -> ScheduleFilter:
    """Return the options as ``app.schedules`` takes them; removes them from ``options``."""
    return ScheduleFilter(
        text=options.pop("text"),
        task=options.pop("task"),
        queue=options.pop("queue"),
        tag=options.pop("tag"),
        managed_by=options.pop("managed_by"),
        failing=options.pop("failing"),
        late=options.pop("late"),
        all_tenants=options.pop("all_tenants"),
    )


def is_narrowed(chosen: ScheduleFilter) -> bool:
    """Return whether an option narrows the choice."""
    return any(value is not None for name, value in chosen.items() if name != "all_tenants")
