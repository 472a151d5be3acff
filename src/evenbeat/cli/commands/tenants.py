"""``evenbeat tenants``: the tenants of a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.app.figures import MOST_TENANTS
from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.figures import TenantView
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("tenants")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=MOST_TENANTS,
    show_default=True,
    help="At most this many.",
)
@store_option
@json_option
def command(limit: int, store: str | None, as_json: bool) -> None:
    """List the tenants of the store.

    These are the tenants that have schedules, or had runs in the last 24 hours. The runs are those of that
    time, by the figures that nodes write once a minute.
    """
    with opened(store, None) as app:
        tenants = app.tenants(limit)

    def people() -> Iterable[RenderableType]:
        if not tenants:
            yield "no tenants: there are no schedules, and nothing ran in the last 24 hours"
            return
        yield Fitted(
            [
                Column("tenant", [tenant.name for tenant in tenants]),
                Column("schedules", ["yes" if tenant.has_schedules else "none" for tenant in tenants]),
                Column("started in 24 h", [_number(tenant.started) for tenant in tenants], justify="right"),
                Column("succeeded", [_number(tenant.succeeded) for tenant in tenants], justify="right"),
                Column("failed", [_failed(tenant) for tenant in tenants], justify="right"),
            ]
        )

    answer({"tenants": json_form(tenants)}, people, as_json=as_json)


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _failed(tenant: TenantView) -> Cell:
    return (f"{tenant.failed:,}", STYLES["failed"]) if tenant.failed else ""
