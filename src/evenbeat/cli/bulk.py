"""``--all``: count the runs that match, ask, then do it and say what became of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from evenbeat.app.runs import MOST_AT_ONCE
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, show_before_asking
from evenbeat.cli.phrases import count
from evenbeat.cli.run_table import run_table
from evenbeat.cli.wall import Wall
from evenbeat.core.results import BulkResult

if TYPE_CHECKING:
    from rich.console import RenderableType

_REFUSED = 10

all_option = click.option(
    "--all", "every", is_flag=True, help="All runs that match these options; asks first."
)
yes_option = click.option("--yes", "-y", is_flag=True, help="With --all: don't ask.")
limit_option = click.option(
    "--limit",
    metavar="COUNT",
    type=click.IntRange(1),
    default=MOST_AT_ONCE,
    show_default=True,
    help="With --all: no more than this many.",
)


class Act(Protocol):
    """``runs.retry_all`` or ``runs.cancel_all`` with a choice of runs."""

    def __call__(self, *, dry_run: bool) -> BulkResult: ...


class Verb(NamedTuple):
    ask: str
    """``retry``: what is done to them."""
    done: str
    """``queued``: what they are then; a number and "runs" stand behind it."""
    after: str = ""
    """``again``: what stands behind that."""


def check_one_of_them(run_id: str | None, every: bool, options: Iterable[Any]) -> None:
    """An id, or ``--all`` with what chooses them."""
    if every == (run_id is not None):
        raise click.UsageError("give the id of a run, or --all")
    if not every and any(options):
        raise click.UsageError("options that match runs go with --all")


def act_on_all(verb: Verb, act: Act, wall: Wall, *, yes: bool, as_json: bool) -> ExitCode:
    result = act(dry_run=not yes)
    if not yes and result.matched:
        _ask(verb, result, wall, as_json=as_json)
        result = act(dry_run=False)
    answer(json_form(result), lambda: _report(verb, result), as_json=as_json)
    return ExitCode.FAILED if result.refused else ExitCode.OK


def _ask(verb: Verb, found: BulkResult, wall: Wall, *, as_json: bool) -> None:
    """Show what matches, on stderr; go on only after a yes."""
    number = f"{'more than ' if found.more else ''}{count(found.matched, 'run')}"
    if as_json or not sys.stdin.isatty():
        raise Failed(
            f"nothing was done: {number} {'matches' if found.matched == 1 else 'match'}",
            f"add --yes to {verb.ask} them",
        )
    show_before_asking(_sample(found, wall))
    click.confirm(f"{verb.ask} {number}?", abort=True, err=True)


def _sample(found: BulkResult, wall: Wall) -> Iterable[RenderableType]:
    yield run_table(found.sample, wall)
    if found.matched > len(found.sample):
        yield f"and {found.matched - len(found.sample):,} more"
    yield ""


def _report(verb: Verb, result: BulkResult) -> Iterable[RenderableType]:
    if not result.matched:
        yield "no such runs"
        return
    yield f"{verb.done} {count(result.done, 'run')}{verb.after}"
    if result.refused:
        yield f"left {count(len(result.refused), 'run')} alone:"
        for refused in result.refused[:_REFUSED]:
            yield f"  {refused.why}"
        if len(result.refused) > _REFUSED:
            yield f"  and {len(result.refused) - _REFUSED:,} more"
    if result.more:
        yield "there are more: run it again, or with a higher --limit"
