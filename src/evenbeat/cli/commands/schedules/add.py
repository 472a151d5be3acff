"""``evenbeat schedules add``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import given, new_schedule_options
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.phrases import sentence, warning_lines
from evenbeat.cli.store_input import opened, options_unknown, store_options
from evenbeat.cli.trigger_input import EXPRESSIONS, expression_refusals, read_trigger_input
from evenbeat.core.instants import from_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import command_line
from evenbeat.triggers import OnSuccess

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("add", epilog=EXPRESSIONS.replace("EXPR", "TRIGGER"))
@click.argument("name")
@click.argument("trigger")
@click.argument("task")
@payload_option
@click.option("--tz", metavar="ZONE", show_default="UTC", help="Zone of a cron, such as Europe/Berlin.")
@click.option(
    "--start-at",
    metavar="WHEN",
    help="No tick before this, and the start of an interval: 2026-03-01T09:00 or +2h.",
)
@click.option("--run-now", is_flag=True, help="Add one run at once, too.")
@new_schedule_options
@store_options
@json_option
def command(
    name: str,
    trigger: str,
    task: str,
    payload: dict[str, Any] | None,
    tz: str | None,
    start_at: str | None,
    run_now: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Create a schedule.

    TASK is the name of a task that a node has. If the setting "app" names the app (EVENBEAT_APP=app.py), the
    runs get the options that the code gives the task. @NAME in the place of TRIGGER is a template that has a
    trigger: @workdays. A database that does not exist is created.
    """
    written = read_trigger_input((trigger,), tz=tz, name=name)
    with opened(store, tenant, create=True, tasks=True) as app, expression_refusals((trigger,)):
        local = LocalTime.at(app.store.now())
        start = None if start_at is None else from_ms(local.read(start_at, "--start-at"))
        made = app.schedules.add(
            name, written, task, payload, run_now=run_now, start_at=start, **given(options)
        )

    def people() -> Iterable[RenderableType]:
        yield f"added {made.name}: {sentence(made.words.partition('; ')[0])}"
        if made.inherited:
            yield f"inherited from {made.template}: {', '.join(made.inherited)}"
        if made.paused:
            resume = command_line(f"schedules resume {made.name}", made.tenant)
            yield f"paused until it is resumed: {resume}"
        elif isinstance(written, OnSuccess):
            yield f"next run with the next success of {written.schedule}"
        elif made.next_run is None:
            yield "it has no ticks to come"
        else:
            yield f"next run {local.full(made.next_run)}, {local.away(made.next_run)}"
        if run_now:
            yield "and one run at once"
        if made.warnings:
            yield from warning_lines(made.warnings)
        elif len(app.tasks):
            yield from options_unknown(app.tasks, task)

    answer({"schedule": json_form(made)}, people, as_json=as_json)
