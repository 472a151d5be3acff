"""``evenbeat schedules add``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from evenbeat.cli.json_form import json_form
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.payload import payload_option
from evenbeat.cli.phrases import sentence
from evenbeat.cli.states import in_words
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.trigger_input import EXPRESSIONS, read_trigger_input
from evenbeat.cli.wall import Wall
from evenbeat.instants import from_ms
from evenbeat.model import CatchUpKind, OnCrash, Overlap

if TYPE_CHECKING:
    from rich.console import RenderableType

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Those of evenbeat.options.ScheduleOptions: name, what it takes, what it does.
_OPTIONS: dict[str, tuple[Any, str | None, str]] = {
    "description": (str, "TEXT", "What it is for."),
    "catch_up": (click.Choice(get_args(CatchUpKind)), None, "What becomes of missed ticks."),
    "grace": (str, "DURATION", "With catch-up skip: ticks no later than this still run."),
    "catch_up_limit": (int, "COUNT", "With catch-up all: no more than this many."),
    "overlap": (click.Choice(get_args(Overlap)), None, "While the last run is still active."),
    "max_concurrent": (int, "COUNT", "No more runs of it at once."),
    "spread": (str, "DURATION", "Fire up to this much later, by an amount of its own."),
    "retries": (int, "COUNT", "How many times a failed run is tried again."),
    "backoff": (str, "DURATION", "The wait before the first retry; it doubles."),
    "longest_backoff": (str, "DURATION", "No wait is longer."),
    "timeout": (str, "DURATION", "A run that takes longer is stopped and has failed."),
    "on_crash": (click.Choice(get_args(OnCrash)), None, "When the worker of a run dies."),
    "crashes": (int, "COUNT", "How many times at most it is then run again."),
    "queue": (str, "NAME", "The queue of its runs."),
    "priority": (str, "0-9", "Of its runs: higher first; also low, normal, high."),
}


def _schedule_options(function: _Function) -> _Function:
    for name, (kind, metavar, words) in reversed(_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        function = click.option(flag, name, type=kind, metavar=metavar, help=words)(function)
    return function


@click.command("add", epilog=EXPRESSIONS.replace("EXPR", "TRIGGER"))
@click.argument("name")
@click.argument("trigger")
@click.argument("task")
@payload_option
@click.option("--tz", metavar="ZONE", show_default="UTC", help="Zone of a cron, such as Europe/Berlin.")
@click.option("--start-at", metavar="WHEN", help="No tick before this: 2026-03-01T09:00 or +2h.")
@click.option("--run-now", is_flag=True, help="Run it once at once, besides.")
@click.option("--paused", is_flag=True, help="Made paused: it waits to be resumed.")
@click.option("--note", metavar="TEXT", default="", help="Why it is paused.")
@_schedule_options
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
    paused: bool,
    note: str,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a schedule.

    TASK is the name of a task that a node knows. The database is made if it is not there.
    """
    written = read_trigger_input((trigger,), tz=tz, since=None, name=name).written
    said: Any = {key: value for key, value in options.items() if value is not None}
    if str(said.get("priority", "")).isdigit():
        said["priority"] = int(said["priority"])
    with opened(store, tenant, create=True) as app:
        wall = Wall.at(app.store.now())
        start = None if start_at is None else from_ms(wall.read(start_at, "--start-at"))
        said |= {"paused": paused, "note": note, "run_now": run_now, "start_at": start}
        made = app.schedules.add(name, written, task, payload, **said)

    def people() -> Iterable[RenderableType]:
        yield f"added {made.name}: {sentence(in_words(made).partition('; ')[0])}"
        if paused:
            yield f"paused until it is resumed: evenbeat schedules resume {made.name}"
        elif made.next_run is None:
            yield "it has no ticks to come"
        else:
            yield f"next run {wall.full(made.next_run)}, {wall.away(made.next_run)}"
        if run_now:
            yield "and a run at once"

    answer({"schedule": json_form(made)}, people, as_json=as_json)
