"""``evenbeat alerts show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_input import for_all_option
from evenbeat.cli.alert_words import covers, incident_parts, rule_state, unsent_by_incident
from evenbeat.cli.layout import listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.alerts import AlertRule
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType

_SOURCES = {
    "code": "the code: edits by hand last until the next node starts",
    "config": "a file: edits by hand last until the next node starts",
}


@click.command("show")
@click.argument("name")
@for_all_option
@store_options
@json_option
def command(name: str, all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show an alert rule, and what it has found."""
    with opened(store, tenant) as app:
        rule = app.alerts.rules.get(name, all_tenants=all_tenants)
        incidents = [
            each
            for each in app.alerts.incidents(all_tenants=True)
            if (each.owner, each.rule) == (rule.tenant, rule.name)
        ]
        unsent = unsent_by_incident(app.alerts.deliveries(all_tenants=True) if incidents else [])
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((rule.name, "bold"))
        yield ""
        yield listed(_definition(rule, len(incidents), local))
        for incident in incidents:
            yield ""
            yield from incident_parts(incident, local, unsent, show_tenant=all_tenants)

    answer({"rule": json_form(rule), "incidents": json_form(incidents)}, people, as_json=as_json)


def _definition(rule: AlertRule, count: int, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "state", styled(rule_state(rule, count, local))
    yield "on", ", ".join(rule.on)
    yield "covers", covers(rule)
    yield "to", ", ".join(rule.to)
    yield "recovery", "announced" if rule.recovery else "not announced"
    if rule.managed_by in _SOURCES:
        yield "declared", f"by {_SOURCES[rule.managed_by]}"
