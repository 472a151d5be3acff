"""``evenbeat templates set``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.bulk import refusal_lines
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.option_flags import given, schedule_options
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.progress import bulk_progress
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.template_words import effect_lines
from evenbeat.cli.trigger_input import EXPRESSIONS, expression_refusals, read_trigger_input
from evenbeat.core.json_form import json_form
from evenbeat.core.templates import TemplateChange
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("set", epilog=EXPRESSIONS.replace("EXPR", "TRIGGER"))
@click.argument("name")
@click.option("--trigger", metavar="TRIGGER", help="When schedules run that have no trigger of their own.")
@click.option("--tz", metavar="ZONE", help="With --trigger: zone of a cron, such as Europe/Berlin; else UTC.")
@schedule_options
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@store_options
@json_option
def command(
    name: str,
    trigger: str | None,
    tz: str | None,
    dry_run: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> ExitCode:
    """Set a template, and change the schedules that inherit from it.

    Replaces all options of the template. Options that are a schedule's own stay. If the command was
    interrupted, run it again: it changes the schedules that are left. A database that does not exist is
    created.
    """
    if tz is not None and trigger is None:
        raise click.UsageError("--tz goes with --trigger")
    wanted = given(options)
    if trigger is not None:
        wanted["trigger"] = read_trigger_input((trigger,), tz=tz, name=name)
    if not wanted:
        raise click.UsageError("give the options of the template: --trigger, --retries, --queue, …")
    with (
        opened(store, tenant, create=True) as app,
        expression_refusals((trigger or "",)),
        bulk_progress("schedule") as progress,
    ):
        change = app.templates.set(name, dry_run=dry_run, progress=progress, **wanted)
    answer({"change": json_form(change)}, lambda: _report(change, dry_run), as_json=as_json)
    return ExitCode.FAILED if change.refused else ExitCode.OK


def _report(change: TemplateChange, dry_run: bool) -> Iterator[RenderableType]:
    name = change.template.name
    yield f"would set {name}" if dry_run else f"set {name}"
    users = count(change.schedules, "schedule inherits", "schedules inherit")
    changed = f"{change.changed:,} would change" if dry_run else f"{change.changed:,} changed"
    yield f"{users} from it, {changed}"
    for effect in change.sample:
        yield from effect_lines(effect)
    if change.changed > len(change.sample):
        yield f"and {change.changed - len(change.sample):,} more"
    yield from refusal_lines(change.refused, "schedule", "would leave" if dry_run else "left")
