"""The options that choose schedules, of ``list`` and of commands with ``--all``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from evenbeat.app.schedule_search import ScheduleFilter
from evenbeat.cli.option_flags import added
from evenbeat.cli.store_input import all_tenants_option, complete_tag

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _filter_options(task: str, queue: str) -> Callable[[_Function], _Function]:
    return added(
        click.option(
            "--name",
            "name_pattern",
            metavar="PATTERN",
            help="Only schedules whose name matches: report-* (quote it).",
        ),
        click.option(
            "--text",
            metavar="TEXT",
            help="Only schedules with this text in the name, task, tags or description.",
        ),
        click.option(task, metavar="TASK", help="Only schedules of this task."),
        click.option(queue, metavar="NAME", help="Only schedules whose runs wait in this queue."),
        click.option(
            "--tag", metavar="TAG", shell_complete=complete_tag, help="Only schedules with this tag."
        ),
        click.option(
            "--managed-by",
            type=click.Choice(["code", "file", "api"]),
            help="Only schedules that the code declares, or a file, or only the others.",
        ),
        click.option("--from-template", metavar="NAME", help="Only schedules that inherit from it."),
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


schedule_filter_options = _filter_options("--task", "--queue")
filter_options_of_update = _filter_options("--of-task", "--in-queue")
"""The same, for a command whose ``--task`` and ``--queue`` are what it changes."""


def read_filter(options: dict[str, Any], *, of_update: bool = False) -> ScheduleFilter:
    """Return the options as ``app.schedules`` takes them; removes them from ``options``."""
    return ScheduleFilter(
        name=options.pop("name_pattern"),
        text=options.pop("text"),
        task=options.pop("of_task" if of_update else "task"),
        queue=options.pop("in_queue" if of_update else "queue"),
        tag=options.pop("tag"),
        managed_by=options.pop("managed_by"),
        template=options.pop("from_template"),
        failing=options.pop("failing"),
        late=options.pop("late"),
        all_tenants=options.pop("all_tenants"),
    )


def is_narrowed(chosen: ScheduleFilter) -> bool:
    """Return whether an option narrows the choice."""
    return any(value is not None for name, value in chosen.items() if name != "all_tenants")
