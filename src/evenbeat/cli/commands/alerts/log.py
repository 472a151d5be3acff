"""``evenbeat alerts log``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_words import delivery_facts, delivery_table
from evenbeat.cli.audit_table import limit_option
from evenbeat.cli.layout import listed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("log")
@click.argument("id", required=False)
@all_tenants_option
@limit_option
@store_options
@json_option
def command(
    id: str | None,  # noqa: A002  # what everybody calls it
    all_tenants: bool,
    limit: int,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show what was announced, and whether it arrived.

    With an ID, show all about one message.

    Messages that wait are tried again until they arrive, for 24 hours. They are kept for 30 days.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        if id is not None:
            one = app.alerts.delivery(id, all_tenants=all_tenants)
            answer(
                {"delivery": json_form(one)}, lambda: [listed(delivery_facts(one, local))], as_json=as_json
            )
            return
        found = app.alerts.deliveries(all_tenants=all_tenants, limit=limit + 1)
    shown = found[:limit]

    def people() -> Iterable[RenderableType]:
        if not shown:
            yield "nothing has been announced in 30 days"
            return
        yield delivery_table(shown, local, show_tenants=all_tenants)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"

    answer({"deliveries": json_form(shown), "more": len(found) > limit}, people, as_json=as_json)
