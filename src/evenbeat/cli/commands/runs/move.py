"""``evenbeat runs move``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from evenbeat.app.bulk import MOST_AT_ONCE
from evenbeat.cli.bulk import refusal_lines
from evenbeat.cli.failures import ExitCode, Failed, warn
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option, show_before_asking
from evenbeat.cli.phrases import warning_lines
from evenbeat.cli.progress import bulk_progress
from evenbeat.cli.run_table import run_table
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.moves import MoveResult
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("move")
@click.option("--task", metavar="TASK", required=True, help="The task that the runs have.")
@click.option("--to", metavar="TASK", required=True, help="The task that they get.")
@click.option("--queue", metavar="NAME", help="Only runs of this queue.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=MOST_AT_ONCE,
    show_default=True,
    help="At most this many runs.",
)
@click.option("--dry-run", is_flag=True, help="Only count them.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@all_tenants_option
@store_options
@json_option
def command(
    task: str,
    to: str,
    queue: str | None,
    limit: int,
    dry_run: bool,
    yes: bool,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> ExitCode:
    """Make the queued runs of a task runs of another one.

    Counts the runs and asks first; add --yes in a script. Running runs stay as they are. Schedules of the old
    task are named, with the command that changes them.

    The exit code is 1 if a run could not be moved.
    """
    with opened(store, tenant, tasks=True) as app:
        local = LocalTime.at(app.store.now())

        move = partial(app.runs.move, task, to, queue=queue, all_tenants=all_tenants, limit=limit)
        result = found = move(dry_run=True) if dry_run or not yes else None
        if found is None or (found.matched and not dry_run):
            if found is not None:
                _ask(found, to, local, as_json=as_json)
            with bulk_progress("run", None if found is None else found.matched) as progress:
                result = move(progress=progress)
        assert result is not None

    def people() -> list[RenderableType]:
        return _words(result, task, to, queue, dry_run=dry_run)

    answer(json_form(result), people, as_json=as_json)
    return ExitCode.FAILED if result.refused else ExitCode.OK


def _ask(found: MoveResult, to: str, local: LocalTime, *, as_json: bool) -> None:
    """Show on stderr what matches; go on only after a yes."""
    number = f"{'more than ' if found.more else ''}{count(found.matched, 'run')}"
    if as_json or not sys.stdin.isatty():
        verb = "matches" if found.matched == 1 else "match"
        raise Failed(f"nothing was done: {number} {verb}", "add --yes to move them")
    for warning in found.warnings:
        warn(warning.problem)
    show_before_asking([run_table(found.sample, local), ""])
    click.confirm(f"move {number} to {to}?", abort=True, err=True)


def _words(
    result: MoveResult, task: str, to: str, queue: str | None, *, dry_run: bool
) -> list[RenderableType]:
    lines: list[RenderableType]
    if not result.matched:
        lines = [f"no queued run{'' if queue is None else f' of queue {queue}'} has the task {task}"]
    elif dry_run:
        lines = [f"would move {count(result.matched, 'run')} from {task} to {to}"]
    else:
        lines = [f"moved {count(result.done, 'run')} from {task} to {to}"]
    lines += refusal_lines(result.refused, "run")
    if result.more:
        lines.append("there are more: run it again, or with a higher --limit")
    if result.schedules:
        number = count(len(result.schedules), "schedule still adds", "schedules still add")
        lines.append(f"{number} runs of {task}; to change that:")
        lines += [f"  {each.command}" for each in result.schedules]
    return [*lines, *warning_lines(result.warnings)]
