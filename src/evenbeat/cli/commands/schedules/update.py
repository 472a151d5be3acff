"""``evenbeat schedules update``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from evenbeat.app.schedules.schedules import Schedules
from evenbeat.cli.bulk import BulkAction
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.option_flags import given, schedule_options
from evenbeat.cli.output import answer
from evenbeat.cli.payload import payload_option
from evenbeat.cli.phrases import printable, warning_lines
from evenbeat.cli.schedule_bulk import (
    ScheduleAction,
    act_on_schedules,
    read_bulk_flags,
    schedule_bulk_options,
)
from evenbeat.cli.schedule_table import schedule_table
from evenbeat.cli.store_input import opened
from evenbeat.cli.trigger_input import EXPRESSIONS, expression_refusals, read_trigger_input
from evenbeat.core.durations import write_duration
from evenbeat.core.json_form import json_form
from evenbeat.core.options import SCHEDULE
from evenbeat.core.results import Schedule
from evenbeat.observe.phrases import command_line
from evenbeat.rules.ownership import declared_in
from evenbeat.triggers import Cron, parse_trigger

if TYPE_CHECKING:
    from rich.console import RenderableType


_UPDATE = ScheduleAction(
    words=BulkAction("update", "schedule", "updated {items}", schedule_table),
    states=("active", "paused", "finished"),
    default_states="every state",
    every=Schedules.update_all,
)


@click.command("update", epilog=EXPRESSIONS.replace("EXPR", "TRIGGER"))
@schedule_bulk_options(_UPDATE, of_update=True)
@click.option("--trigger", metavar="TRIGGER", help="When it runs.")
@click.option("--tz", metavar="ZONE", help="With --trigger: zone of a cron, such as Europe/Berlin; else UTC.")
@click.option("--task", metavar="TASK", help="The name of a task that a node has.")
@payload_option
@click.option("--no-payload", is_flag=True, help="Remove the payload: call the task without arguments.")
@click.option("--no-timeout", is_flag=True, help="Remove the timeout.")
@click.option("--no-max-concurrent", is_flag=True, help="Remove the limit of active runs.")
@click.option("--template", metavar="NAME", help="Inherit from this template.")
@click.option("--no-template", is_flag=True, help="Inherit from no template; the options stay as they are.")
@click.option(
    "--inherit", metavar="OPTION", multiple=True, help="Give an option back to the template. Repeatable."
)
@schedule_options
def command(
    name: str | None,
    trigger: str | None,
    tz: str | None,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode | None:
    """Change some options of a schedule; or of all that match. The others, and its pause, stay.

    A trigger that means the same keeps the next run. An option that the schedule inherits becomes its own.

    --all counts the schedules that match, shows some and asks first; add --yes in a script. Each schedule
    gets all changes or none.
    """
    flags = read_bulk_flags(name, options, of_update=True)
    for other in ("every", "state", "limit", "yes", "dry_run"):
        del options[other]
    if tz is not None and trigger is None:
        raise click.UsageError("--tz goes with --trigger")
    options_to_inherit = list(options.pop("inherit"))
    changed = _without(options)
    if trigger is not None:
        changed["trigger"] = read_trigger_input((trigger,), tz=tz, name=name)
    if options_to_inherit:
        changed["inherit"] = options_to_inherit
    if not changed:
        raise click.UsageError("give what to change: --trigger, --payload, --overlap, …")
    with opened(store, tenant) as app, expression_refusals((trigger or "",)):
        if name is None:
            return act_on_schedules(_UPDATE, app, flags, as_json=as_json, changes=changed)
        before = app.schedules.get(name)
        after = app.schedules.update(name, **changed)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        differences = list(_differences(before, after))
        if not differences:
            yield f"nothing changed: {name} has these values already"
            return
        yield f"updated {name}"
        yield from differences
        yield from _zone_change(before, after)
        if after.edited:
            yield f"the edit stays until the definition in the {declared_in(after.managed_by)} changes"
            yield f"to undo it: {command_line(f'schedules reset {name}', after.tenant)}"
        if after.paused:
            yield f"it is paused: {command_line(f'schedules resume {name}', after.tenant)}"
        elif after.next_run is not None:
            yield f"next run {local.full(after.next_run)}, {local.away(after.next_run)}"
        yield from warning_lines(after.warnings)

    answer({"schedule": json_form(after)}, people, as_json=as_json)
    return None


def _without(options: dict[str, Any]) -> dict[str, Any]:
    """Return the given options, with None for each ``--no-…``."""
    removed = [
        name for name in ("payload", "timeout", "max_concurrent", "template") if options.pop(f"no_{name}")
    ]
    for name in removed:
        if options[name] is not None:
            flag = name.replace("_", "-")
            raise click.UsageError(f"--{flag} and --no-{flag} exclude each other")
    return given(options) | dict.fromkeys(removed)


def _differences(before: Schedule, after: Schedule) -> Iterator[str]:
    """Yield ``overlap: allow → skip``."""
    old, new = _options_of(before), _options_of(after)
    for name, value in new.items():
        if value != old[name]:
            yield f"  {name}: {_words(old[name])} → {_words(value)}"


def _zone_change(before: Schedule, after: Schedule) -> Iterator[str]:
    """Yield a line if a cron gets another zone, as it does when the new trigger names none."""
    if before.timezone == after.timezone or before.damage:
        return
    if isinstance(parse_trigger(after.trigger), Cron) and isinstance(parse_trigger(before.trigger), Cron):
        kept = f"; --tz {before.timezone} keeps it" if after.timezone == "UTC" else ""
        yield f"the zone is now {after.timezone}, was {before.timezone}{kept}"


def _options_of(schedule: Schedule) -> dict[str, Any]:
    """Return the options of a schedule, by the names that users give them."""
    return {name: getattr(schedule, name) for name in ("trigger", "task", "payload", "template", *SCHEDULE)}


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        return write_duration(value)
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), keep="")
