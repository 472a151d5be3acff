"""``evenbeat alerts update``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from evenbeat.cli.alert_input import (
    channels_option,
    conditions_option,
    filter_options,
    for_all_option,
    schedule_warning,
)
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.alerts import AlertRule
from evenbeat.core.json_form import json_form

_FIELDS = ("on", "to", "schedule", "tag", "recovery")


@click.command("update")
@click.argument("name")
@conditions_option(required=False)
@channels_option(required=False)
@filter_options
@click.option("--no-schedule", is_flag=True, help="Cover all schedules, not one.")
@click.option("--no-tag", is_flag=True, help="Cover all schedules, not those of a tag.")
@click.option("--recovery/--no-recovery", default=None, help="Whether the end is announced, too.")
@for_all_option
@store_options
@json_option
def command(
    name: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool, **options: Any
) -> None:
    """Change some fields of an alert rule; the others, and its mute, stay.

    --on and --to replace what is there: name all conditions, or all channels.
    """
    changed = _changes(options)
    if not changed:
        raise click.UsageError("give what to change: --on, --to, --schedule, --tag, --recovery, …")
    with opened(store, tenant) as app:
        before = app.alerts.rules.get(name, all_tenants=all_tenants)
        after = app.alerts.rules.update(name, all_tenants=all_tenants, **changed)
        warning = schedule_warning(app, changed.get("schedule"), all_tenants=all_tenants)

    def people() -> Iterator[str]:
        differences = list(_differences(before, after))
        if not differences:
            yield f"nothing changed: {name} has these values already"
            return
        yield f"updated {name}"
        yield from differences
        if warning is not None:
            yield f"warning: {warning}"
        if after.managed_by in ("code", "config"):
            source = "the code" if after.managed_by == "code" else "a file"
            yield f"{source} declares it: the next node that starts undoes the edit"

    answer({"rule": json_form(after)}, people, as_json=as_json)


def _changes(options: dict[str, Any]) -> dict[str, Any]:
    removed = [field for field in ("schedule", "tag") if options.pop(f"no_{field}")]
    for field in removed:
        if options[field] is not None:
            raise click.UsageError(f"--{field} and --no-{field} exclude each other")
    return {
        field: value for field, value in options.items() if value is not None and value != ()
    } | dict.fromkeys(removed)


def _differences(before: AlertRule, after: AlertRule) -> Iterator[str]:
    for field in _FIELDS:
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            yield f"  {field}: {_words(old)} → {_words(new)}"


def _words(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(value) if isinstance(value, tuple) else str(value).lower()
