"""``evenbeat alerts windows list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_words import covers, whose
from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.instants import to_ms
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@all_tenants_option
@store_options
@json_option
def command(all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """List maintenance windows that are not over."""
    with opened(store, tenant) as app:
        every = app.alerts.windows.list(all_tenants=True)
        windows = every if all_tenants else [each for each in every if each.tenant == app.tenant]
        local = LocalTime.at(app.store.now())
    others = len(every) - len(windows)

    def people() -> Iterable[RenderableType]:
        if windows:
            yield Fitted(
                [
                    Column("tenant", [whose(each.tenant) if all_tenants else "" for each in windows]),
                    Column("window", [each.name for each in windows]),
                    Column(
                        "state",
                        [
                            ("open", "yellow") if to_ms(each.starts_at) <= local.now else "to come"
                            for each in windows
                        ],
                    ),
                    Column("from", [local.near(each.starts_at) for each in windows]),
                    Column("until", [local.near(each.ends_at) for each in windows]),
                    Column("covers", [covers(each) for each in windows]),
                    Column("by", [printable(each.created_by, keep="") for each in windows], drop=1),
                    Column("note", [printable(each.note, keep="") for each in windows], wraps=20),
                ]
            )
        elif not others:
            yield "no maintenance windows: evenbeat alerts windows add --help"
        if others:
            yield f"{count(others, 'window')} of other tenants, or for all of them: --all-tenants"

    answer({"windows": json_form(windows)}, people, as_json=as_json)
