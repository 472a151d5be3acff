"""Commands on one schedule or, with ``--all``, on every schedule that matches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import click

from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.bulk import BulkAction, act_on_all, limit_option
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import added
from evenbeat.cli.output import json_option
from evenbeat.cli.schedule_filter import (
    filter_options_of_update,
    is_narrowed,
    read_filter,
    schedule_filter_options,
)
from evenbeat.cli.store_input import complete_schedule, store_options
from evenbeat.core.results import BulkResult, Schedule

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ScheduleAction(NamedTuple):
    """An action on schedules."""

    words: BulkAction[Schedule]
    states: tuple[str, ...]
    """The states that ``--state`` takes."""
    default_states: str
    """Which schedules ``--all`` takes without ``--state``, in words."""
    every: Callable[..., BulkResult[Schedule]]
    """``Schedules.pause_all`` or another of these."""


class BulkFlags(NamedTuple):
    """The values of the options that go with ``--all``."""

    limit: int
    yes: bool
    dry_run: bool
    filter: dict[str, Any]


def schedule_bulk_options(
    action: ScheduleAction,
    yes_help: str = "With --all: don't ask.",
    dry_run_help: str = "With --all: show what would be done, and refused; change nothing.",
    *,
    of_update: bool = False,
) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the name and all options of the action's command."""
    return added(
        click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_schedule),
        click.option(
            "--all", "every", is_flag=True, help="All schedules that match these options; asks first."
        ),
        click.option(
            "--state",
            type=click.Choice(action.states),
            help=f"With --all: only schedules in this state.  [default: {action.default_states}]",
        ),
        filter_options_of_update if of_update else schedule_filter_options,
        limit_option("schedule"),
        click.option("--yes", "-y", is_flag=True, help=yes_help),
        click.option("--dry-run", is_flag=True, help=dry_run_help),
        store_options,
        json_option,
    )


def read_bulk_flags(
    name: str | None, given: dict[str, Any], *, of_update: bool = False, one_dry_run: bool = False
) -> BulkFlags:
    """Return the options of ``--all``; refuse them beside a name, and a command with neither.

    ``one_dry_run`` allows ``--dry-run`` beside a name.
    """
    if given["every"] == (name is not None):
        raise click.UsageError("give the name of a schedule, or --all")
    narrowing = read_filter(given, of_update=of_update)
    chosen: dict[str, Any] = {**narrowing}
    if name is not None and (given["state"] or chosen["all_tenants"] or is_narrowed(narrowing)):
        raise click.UsageError("options that match schedules go with --all")
    if name is not None and given["dry_run"] and not one_dry_run:
        raise click.UsageError("--dry-run goes with --all")
    if given["state"] is not None:
        chosen["state"] = given["state"]
    return BulkFlags(given["limit"], given["yes"], given["dry_run"], chosen)


def act_on_schedules(
    action: ScheduleAction, app: Scheduler, flags: BulkFlags, *, as_json: bool, **more: Any
) -> ExitCode:
    """Count and show the schedules that match, ask, act on all of them and report."""
    local = LocalTime.at(app.store.now())
    on_all = partial(action.every, app.schedules, limit=flags.limit, **flags.filter, **more)
    return act_on_all(action.words, on_all, local, yes=flags.yes, as_json=as_json, dry_run=flags.dry_run)
