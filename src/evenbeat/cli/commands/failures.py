"""``evenbeat failures``: failed runs, grouped by their error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.app.figures import MOST_FAILURES
from evenbeat.cli.layout import Column, Fitted, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import all_tenants_option, complete_schedule, opened, store_options
from evenbeat.core.figures import FailureGroup, FailureReport
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import command_line, count, some

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAMES = 3


@click.command("failures")
@click.option(
    "--since",
    metavar="WHEN",
    default="1d",
    show_default=True,
    help="Only runs that failed after this: 02:55, a date, or 2h ago.",
)
@click.option(
    "--schedule", metavar="NAME", shell_complete=complete_schedule, help="Only runs of this schedule."
)
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MOST_FAILURES),
    default=MOST_FAILURES,
    show_default=True,
    help="How many runs to read at most, the newest.",
)
@all_tenants_option
@store_options
@json_option
def command(
    since: str,
    schedule: str | None,
    task: str | None,
    limit: int,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show failed runs, grouped by their error.

    Errors that differ only in numbers, ids and quoted values are one group. 'evenbeat runs retry --all
    --error-group GROUP' retries the runs of a group.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        start, _ = local.read_window(since, None)
        assert start is not None
        report = app.failures(
            from_ms(start), schedule=schedule, task=task, all_tenants=all_tenants, limit=limit
        )

    def people() -> Iterable[RenderableType]:
        yield styled((_heading(report, local), "bold" if report.count else ""))
        if not report.groups:
            return
        yield ""
        groups = report.groups
        yield Fitted(
            [
                Column("runs", [f"{group.count:,}" for group in groups], justify="right"),
                Column("error", [printable(group.error, keep="") for group in groups], wraps=30),
                Column("tasks", [some(group.tasks, _NAMES) for group in groups], drop=2, wraps=16),
                Column("newest", [local.ago(group.newest) for group in groups], drop=1),
                Column("group", [group.id for group in groups]),
            ]
        )
        yield ""
        yield from _what_next(groups[0])

    answer(json_form(report), people, as_json=as_json)


def _heading(report: FailureReport, local: LocalTime) -> str:
    since = "" if report.since is None else f" since {local.near(report.since)}"
    if not report.count:
        return f"no failed runs{since}"
    words = f"{count(report.count, 'failed run')}{since}, {count(len(report.groups), 'error')}"
    return f"{words}; there are more, older ones" if report.more else words


def _what_next(group: FailureGroup) -> Iterable[RenderableType]:
    """Yield commands about the largest group."""
    retry = f"runs retry --all --error-group {group.id}"
    if len(group.tenants) > 1:
        yield styled((f"evenbeat {retry} --all-tenants", "cyan"))
        return
    (tenant,) = group.tenants
    yield styled((command_line(f"runs show {group.runs[0]}", tenant), "cyan"))
    yield styled((command_line(retry, tenant), "cyan"))
