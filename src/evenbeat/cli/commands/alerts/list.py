"""``evenbeat alerts list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_words import rule_table
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@all_tenants_option
@store_options
@json_option
def command(all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """List alert rules with their state.

    A rule is ok, has found so many things that are wrong now, or is muted.
    """
    with opened(store, tenant) as app:
        every = app.alerts.rules.list(all_tenants=True)
        rules = every if all_tenants else [rule for rule in every if rule.tenant == app.tenant]
        incidents = app.alerts.incidents(all_tenants=True)
        local = LocalTime.at(app.store.now())
    others = len(every) - len(rules)

    def people() -> Iterable[RenderableType]:
        if rules:
            yield rule_table(rules, incidents, local, show_tenants=all_tenants)
        elif not others:
            yield "no alert rules yet: evenbeat alerts channels add --help, then evenbeat alerts add --help"
        if others:
            yield f"{count(others, 'rule')} of other tenants, or for all of them: --all-tenants"

    found = [
        json_form(rule)
        | {"open": sum((each.owner, each.rule) == (rule.tenant, rule.name) for each in incidents)}
        for rule in rules
    ]
    answer({"rules": found}, people, as_json=as_json)
