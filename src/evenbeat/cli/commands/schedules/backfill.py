"""``evenbeat schedules backfill``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from evenbeat.cli.backfill_words import AGAIN, exists_line, follow, nothing_line, plan_report, progress_line
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.progress import wait_option
from evenbeat.cli.store_input import complete_schedule, opened, store_options
from evenbeat.core.backfills import Backfill
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import command_line

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("backfill")
@click.argument("name", shell_complete=complete_schedule)
@click.option("--from", "start", metavar="TIME", required=True, help="The first tick of the range.")
@click.option("--to", "end", metavar="TIME", required=True, help="The end of the range: ticks before it.")
@click.option(
    "--max-concurrent",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="At most so many of its runs are queued or running.",
)
@click.option("--newest-first", is_flag=True, help="The newest ticks first, instead of the oldest.")
@click.option(
    "--priority", metavar="P", default="low", show_default=True, help="0 to 9, low, normal or high."
)
@payload_option
@click.option("--missing-only", is_flag=True, help="Leave out ticks that have a succeeded run.")
@click.option("--dry-run", is_flag=True, help="Only show what it would do, and which ticks ran already.")
@click.option("--id", metavar="ID", help="An id of your own, to run a range again.")
@wait_option
@store_options
@json_option
def command(
    name: str,
    start: str,
    end: str,
    newest_first: bool,
    priority: str,
    wait: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode | None:
    """Add a run for each tick of a past range.

    TIME is a date, a date and time (in the trigger's zone unless it has an offset), how long ago (7d),
    or now.
    Nodes add the runs a few at a time. The same range again adds nothing, and shows the
    backfill that exists, unless it gets an --id of its own.

    With --wait, the exit code is 1 if a run failed, or if the backfill was cancelled.
    """
    with opened(store, tenant) as app:
        made = app.schedules.backfill(
            name,
            start,
            end,
            order="newest" if newest_first else "oldest",
            priority=int(priority) if priority.isdecimal() else priority,
            **options,
        )
        if wait and made.plan is None:
            made = replace(follow(app, made), existed_since=made.existed_since)
    answer({"backfill": json_form(made)}, lambda: _report(made), as_json=as_json)
    is_bad = made.failed > 0 or made.state == "cancelled"
    return ExitCode.FAILED if wait and is_bad else None


def _report(made: Backfill) -> Iterator[RenderableType]:
    if made.plan is not None:
        yield from plan_report(made, made.plan)
        return
    if made.existed_since is not None:
        yield f"{exists_line(made)}: nothing was added"
        yield f"its options stay: {made.order} first, at most {made.max_concurrent:,} at once; {AGAIN}"
    elif not made.total:
        yield nothing_line(made)
    yield f"backfill {made.id} of {made.schedule}: {made.state}"
    yield progress_line(made)
    if not made.is_over:
        yield f"to follow it: {command_line(f'backfills show {made.id} --wait', made.tenant)}"
        yield f"to cancel it: {command_line(f'backfills cancel {made.id}', made.tenant)}"
