"""``evenbeat alerts channels list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_words import whose
from evenbeat.cli.layout import Column, Fitted
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
    """List alert channels, without their secrets."""
    with opened(store, tenant) as app:
        every = app.alerts.channels.list(all_tenants=True)
        channels = every if all_tenants else [each for each in every if each.tenant == app.tenant]
        rules = app.alerts.rules.list(all_tenants=True)
    others = len(every) - len(channels)
    users = [
        [rule.name for rule in rules if rule.tenant == each.tenant and each.name in rule.to]
        for each in channels
    ]

    def people() -> Iterable[RenderableType]:
        if channels:
            yield Fitted(
                [
                    Column("tenant", [whose(each.tenant) if all_tenants else "" for each in channels]),
                    Column("channel", [each.name for each in channels]),
                    Column("kind", [each.kind for each in channels]),
                    Column("address", [each.address for each in channels], wraps=20),
                    Column("rules", [", ".join(names) or "none" for names in users], wraps=24),
                ]
            )
        elif not others:
            yield "no alert channels yet: evenbeat alerts channels add --help"
        if others:
            yield f"{count(others, 'channel')} of other tenants, or of all of them: --all-tenants"

    answer({"channels": json_form(channels)}, people, as_json=as_json)
