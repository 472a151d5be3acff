"""Flags that the commands of alerts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.groups import did_you_mean
from evenbeat.cli.option_flags import added
from evenbeat.cli.store_input import complete_schedule, complete_tag

_Function = TypeVar("_Function", bound=Callable[..., Any])

for_all_option = click.option(
    "--all-tenants", is_flag=True, help="The one that covers all tenants, not one of a tenant."
)
filter_options = added(
    click.option("--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only this schedule."),
    click.option("--tag", metavar="TAG", shell_complete=complete_tag, help="Only schedules with this tag."),
)


def conditions_option(*, required: bool) -> Callable[[_Function], _Function]:
    """Return a decorator that adds ``--on``."""
    return click.option(
        "--on",
        metavar="CONDITION",
        multiple=True,
        required=required,
        help="failed, failing:3, late:10m, missed, stuck:1h, no_node:1m or runs; with --all-tenants also "
        "queue:1000, node_lost, store_unsafe. May be repeated.",
    )


def channels_option(*, required: bool) -> Callable[[_Function], _Function]:
    """Return a decorator that adds ``--to``."""
    return click.option(
        "--to",
        metavar="CHANNEL",
        multiple=True,
        required=required,
        help="The name of a channel. May be repeated.",
    )


def schedule_warning(app: Scheduler, schedule: str | None, *, all_tenants: bool) -> str | None:
    """Return a warning if there is no schedule of this name: a rule for it announces nothing."""
    if schedule is None or all_tenants:
        return None
    names = {row.name: None for row in app.schedules.list()}
    return (
        None if schedule in names else f"there is no schedule {schedule} yet{did_you_mean(schedule, names)}"
    )
