"""``evenbeat tenants list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.app.tenants import MOST_TENANTS
from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.tenants import TenantView

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
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
    """List the tenants of the store, with counts.

    These are the tenants that have schedules, runs or a quota. A number after a slash is the quota.
    """
    with opened(store, None) as app:
        tenants = app.tenants.list(limit)

    def people() -> Iterable[RenderableType]:
        if not tenants:
            yield "no tenants: there are no schedules, no runs and no quotas"
            return
        yield Fitted(
            [
                Column("tenant", [tenant.name for tenant in tenants]),
                Column("schedules", [_schedules(tenant) for tenant in tenants], justify="right"),
                Column("paused", [_number(tenant.paused_schedules) for tenant in tenants], justify="right"),
                Column("queued", [_queued(tenant) for tenant in tenants], justify="right"),
                Column("due", [_number(tenant.due) for tenant in tenants], justify="right"),
                Column("running", [_number(tenant.running) for tenant in tenants], justify="right"),
                Column(
                    "started in 24 h",
                    [_number(tenant.started) for tenant in tenants],
                    drop=1,
                    justify="right",
                ),
                Column("failed", [_failed(tenant) for tenant in tenants], drop=2, justify="right"),
            ]
        )

    answer({"tenants": json_form(tenants)}, people, as_json=as_json)


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _schedules(tenant: TenantView) -> Cell:
    return bounded(tenant.schedules, None if tenant.quota is None else tenant.quota.schedules)


def _queued(tenant: TenantView) -> Cell:
    quota = None if tenant.quota is None else tenant.quota.queued_runs
    return bounded(tenant.due + tenant.later, quota)


def bounded(number: int, quota: int | None) -> Cell:
    """Return a number with its quota; in yellow if the quota is used up."""
    if quota is None:
        return _number(number)
    text = f"{number:,}/{quota:,}"
    return (text, "yellow") if number >= quota else text


def _failed(tenant: TenantView) -> Cell:
    return (f"{tenant.failed:,}", STYLES["failed"]) if tenant.failed else ""
