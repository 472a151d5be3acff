"""``evenbeat alerts open``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.alert_words import incident_parts, remedy, unsent_by_incident
from evenbeat.cli.audit_table import limit_option
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("open")
@click.option("--past", is_flag=True, help="Show what is over, for 30 days.")
@all_tenants_option
@limit_option
@store_options
@json_option
def command(
    past: bool, all_tenants: bool, limit: int, store: str | None, tenant: str | None, as_json: bool
) -> None:
    """Show what is wrong now: since when, why, and what helps.

    --all-tenants also shows what is wrong with machines that tenants share.
    """
    with opened(store, tenant) as app:
        found = app.alerts.incidents(open=not past, all_tenants=all_tenants, limit=limit + 1)
        has_rules = bool(found) or bool(app.alerts.rules.list(all_tenants=True))
        everywhere = len(found) if past or all_tenants else len(app.alerts.incidents(all_tenants=True))
        unsent = unsent_by_incident(app.alerts.deliveries(all_tenants=True) if found else [])
        local = LocalTime.at(app.store.now())
    shown, others = found[:limit], everywhere - len(found)

    def people() -> Iterable[RenderableType]:
        if not has_rules:
            yield "nobody looks: there are no alert rules yet (evenbeat alerts add --help)"
        elif not shown:
            yield "nothing has been wrong in 30 days" if past else "nothing is wrong"
        for number, incident in enumerate(shown):
            if number:
                yield ""
            yield from incident_parts(incident, local, unsent, show_tenant=all_tenants)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"
        elif others > 0:
            yield ""
            yield f"{count(others, 'more')} of other tenants or shared machines: --all-tenants"

    incidents = [json_form(each) | {"remedy": remedy(each)} for each in shown]
    answer({"incidents": incidents, "more": len(found) > limit}, people, as_json=as_json)
