"""``evenbeat alerts add``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.alert_input import channels_option, conditions_option, filter_options, schedule_warning
from evenbeat.cli.alert_words import covers
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form


@click.command("add")
@click.argument("name")
@conditions_option(required=True)
@channels_option(required=True)
@filter_options
@click.option("--recovery/--no-recovery", default=True, help="Whether the end is announced, too.")
@click.option("--all-tenants", is_flag=True, help="Cover all tenants.")
@store_options
@json_option
def command(
    name: str,
    on: tuple[str, ...],
    to: tuple[str, ...],
    schedule: str | None,
    tag: str | None,
    recovery: bool,
    all_tenants: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Create an alert rule.

    Without --schedule and --tag, it covers all schedules of the tenant, and runs without a schedule.
    """
    with opened(store, tenant) as app:
        made = app.alerts.rules.add(
            name, on=on, to=to, schedule=schedule, tag=tag, recovery=recovery, all_tenants=all_tenants
        )
        warning = schedule_warning(app, schedule, all_tenants=all_tenants)

    def people() -> Iterator[str]:
        about = covers(made)
        about = f"all schedules of tenant {made.tenant}" if about == "all" else about
        yield f"added {made.name}: {', '.join(made.on)} of {about} to {', '.join(made.to)}"
        if warning is not None:
            yield f"warning: {warning}"
        yield f"to see whether it arrives: evenbeat alerts test {made.to[0]}" + (
            " --all-tenants" if all_tenants else ""
        )

    answer({"rule": json_form(made)}, people, as_json=as_json)
