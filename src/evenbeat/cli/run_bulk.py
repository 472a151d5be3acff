"""Commands on one run or, with ``--all``, on every run that matches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import click

from evenbeat.app.runs import RunFilter, Runs
from evenbeat.app.scheduler import Scheduler
from evenbeat.cli.bulk import BulkAction, act_on_all, limit_option
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import added
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.run_filter import read_filter, run_filter_options
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.results import BulkResult, Run

_Function = TypeVar("_Function", bound=Callable[..., Any])

_ERROR_GROUP = click.option(
    "--error-group",
    metavar="GROUP",
    help="Only runs of this group of 'evenbeat failures', of the last day unless --since says otherwise.",
)


class RunAction(NamedTuple):
    """An action on runs."""

    words: BulkAction[Run]
    states: tuple[str, ...]
    """The states that ``--state`` takes."""
    default_states: str
    """Which runs ``--all`` takes without ``--state``, in words."""
    one: Callable[[Runs, str], Run]
    every: Callable[..., BulkResult[Run]]
    """``Runs.retry_all`` or ``Runs.cancel_all``."""
    report: Callable[[Run, str], tuple[str, ExitCode]]
    """The line about one run, and the exit code; it gets the run and the id that was given."""
    by_error: bool = False
    """Whether ``--error-group`` chooses runs."""


def run_bulk_options(action: RunAction) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the argument and all options of the action's command."""
    return added(
        click.argument("run_id", metavar="[ID]", required=False),
        click.option("--all", "every", is_flag=True, help="All runs that match these options; asks first."),
        click.option(
            "--state",
            type=click.Choice(action.states),
            help=f"With --all: only runs in this state.  [default: {action.default_states}]",
        ),
        run_filter_options,
        *([_ERROR_GROUP] if action.by_error else []),
        limit_option("run"),
        click.option("--yes", "-y", is_flag=True, help="With --all: don't ask."),
        store_options,
        json_option,
    )


def act(
    action: RunAction,
    *,
    run_id: str | None,
    every: bool,
    state: str | None,
    limit: int,
    yes: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **chosen: Any,
) -> ExitCode:
    """Run the action's command with the values of its options."""
    if every == (run_id is not None):
        raise click.UsageError("give the id of a run, or --all")
    if not every and any([state, *chosen.values()]):
        raise click.UsageError("options that match runs go with --all")
    with opened(store, tenant) as app:
        if run_id is None:
            local = LocalTime.at(app.store.now())
            states = {} if state is None else {"state": state}
            group = chosen.pop("error_group", None)
            matching = read_filter(app, local, chosen)
            if group is not None:
                matching["ids"] = _runs_of_group(app, group, matching)
            on_all = partial(action.every, app.runs, limit=limit, **states, **matching)
            return act_on_all(action.words, on_all, local, yes=yes, as_json=as_json)
        run = action.one(app.runs, run_id)
    words, code = action.report(run, run_id)
    answer({"run": json_form(run)}, lambda: [words], as_json=as_json)
    return code


def _runs_of_group(app: Scheduler, wanted: str, matching: RunFilter) -> tuple[str, ...]:
    """Return the ids of the failed runs that have the error of a group."""
    report = app.failures(
        matching.get("since") or "1d",
        schedule=matching.get("schedule"),
        task=matching.get("task"),
        all_tenants=matching.get("all_tenants", False),
    )
    for group in report.groups:
        if group.id == wanted:
            return group.runs
    among = f" among the newest {report.count:,} failed runs" if report.more else ""
    raise Failed(f"no failed run is of group {wanted}{among}", "'evenbeat failures' lists the groups")
