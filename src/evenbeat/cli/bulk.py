"""Commands on one run or, with ``--all``, on every run that matches: count them, ask, act and report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from evenbeat.app.runs import MOST_AT_ONCE, Runs
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option, show_before_asking
from evenbeat.cli.run_filter import read_filter, run_filter_options
from evenbeat.cli.run_table import run_table
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.results import BulkResult, Run
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType

_Function = TypeVar("_Function", bound=Callable[..., Any])

_REFUSED = 10


class Action(NamedTuple):
    """An action on runs, and its words."""

    name: str
    """``retry``"""
    done: str
    """``queued {runs} again``: the report of ``--all``."""
    states: tuple[str, ...]
    """The states that ``--state`` takes."""
    default_states: str
    """Which runs ``--all`` takes without ``--state``, in words."""
    one: Callable[[Runs, str], Run]
    every: Callable[..., BulkResult]
    """``Runs.retry_all`` or ``Runs.cancel_all``."""
    report: Callable[[Run, str], tuple[str, ExitCode]]
    """The line about one run, and the exit code; it gets the run and the id that was given."""


def bulk_options(action: Action) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the argument and all options of the action's command."""
    options = (
        click.argument("run_id", metavar="[ID]", required=False),
        click.option("--all", "every", is_flag=True, help="All runs that match these options; asks first."),
        click.option(
            "--state",
            type=click.Choice(action.states),
            help=f"With --all: only runs in this state.  [default: {action.default_states}]",
        ),
        run_filter_options,
        click.option(
            "--limit",
            metavar="N",
            type=click.IntRange(1),
            default=MOST_AT_ONCE,
            show_default=True,
            help="With --all: at most this many runs.",
        ),
        click.option("--yes", "-y", is_flag=True, help="With --all: don't ask."),
        store_options,
        json_option,
    )

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def act(
    action: Action,
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
            matching = read_filter(app, local, chosen)
            on_all = partial(action.every, app.runs, limit=limit, **states, **matching)
            return _act_on_all(action, on_all, local, yes=yes, as_json=as_json)
        run = action.one(app.runs, run_id)
    words, code = action.report(run, run_id)
    answer({"run": json_form(run)}, lambda: [words], as_json=as_json)
    return code


def _act_on_all(
    action: Action, on_all: Callable[..., BulkResult], local: LocalTime, *, yes: bool, as_json: bool
) -> ExitCode:
    result = on_all(dry_run=not yes)
    if not yes and result.matched:
        _ask(action, result, local, as_json=as_json)
        result = on_all(dry_run=False)
    answer(json_form(result), lambda: _report(action, result), as_json=as_json)
    return ExitCode.FAILED if result.refused else ExitCode.OK


def _ask(action: Action, found: BulkResult, local: LocalTime, *, as_json: bool) -> None:
    """Show on stderr which runs match; go on only after a yes."""
    number = f"{'more than ' if found.more else ''}{count(found.matched, 'run')}"
    if as_json or not sys.stdin.isatty():
        raise Failed(
            f"nothing was done: {number} {'matches' if found.matched == 1 else 'match'}",
            f"add --yes to {action.name} them",
        )
    show_before_asking(_sample(found, local))
    click.confirm(f"{action.name} {number}?", abort=True, err=True)


def _sample(found: BulkResult, local: LocalTime) -> Iterable[RenderableType]:
    yield run_table(found.sample, local)
    if found.matched > len(found.sample):
        yield f"and {found.matched - len(found.sample):,} more"
    yield ""


def _report(action: Action, result: BulkResult) -> Iterable[RenderableType]:
    if not result.matched:
        yield "no such runs"
        return
    yield action.done.format(runs=count(result.done, "run"))
    if result.refused:
        yield f"left {count(len(result.refused), 'run')} alone:"
        for refused in result.refused[:_REFUSED]:
            yield f"  {refused.why}"
        if len(result.refused) > _REFUSED:
            yield f"  and {len(result.refused) - _REFUSED:,} more"
    if result.more:
        yield "there are more: run it again, or with a higher --limit"
