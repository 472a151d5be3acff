"""``evenbeat attention``: what needs somebody now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.attention import Attention
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("attention")
@all_tenants_option
@store_options
@json_option
def command(all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """List what needs somebody now: late, failing and stuck jobs, missing nodes.

    The worst first: late and failing schedules, runs that wait for a free slot, runs that are stuck, tasks
    that no live node has, schedules that no node fires, quarantined rows, alerts that could not be delivered,
    and settings of the server that may break a guarantee. Problems with the same cause are one entry. Each
    has the evidence, and a command that helps.
    """
    with opened(store, tenant) as app:
        found = app.attention(all_tenants=all_tenants)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not found.items:
            yield "nothing needs attention"
            return
        for number, item in enumerate(found.items):
            if number:
                yield ""
            owner = f"{item.tenant}: " if all_tenants and item.tenant is not None else ""
            style = STYLES["failed"] if item.level == "fail" else "bold"
            yield styled((printable(owner + item.sentence), style))
            rows: list[tuple[str, RenderableType]] = []
            for fact in item.evidence:
                when = "" if fact.at is None else local.full(fact.at)
                rows.append((f"  {when}", printable(fact.text)))
            if item.remedy is not None:
                rows.append(("  remedy", styled((printable(item.remedy), "green"))))
            yield listed(rows)
        if found.more or not found.is_exact:
            yield ""
            yield _left_out(found)

    answer(json_form(found), people, as_json=as_json)


def _left_out(found: Attention) -> str:
    if not found.more:
        return "there may be more: not everything was read"
    return f"and {'' if found.is_exact else 'at least '}{found.more:,} more"
