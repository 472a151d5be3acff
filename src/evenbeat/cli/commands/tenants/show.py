"""``evenbeat tenants show``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.tenants import TenantDetails
from evenbeat.record_errors import TenantNotFound


@click.command("show")
@click.argument("name")
@store_option
@json_option
def command(name: str, store: str | None, as_json: bool) -> None:
    """Show one tenant: its counts, quota and limits."""
    with opened(store, None) as app:
        try:
            tenant = app.tenants.get(name)
        except TenantNotFound as error:
            raise Failed(str(error), "'evenbeat tenants list' shows the tenants") from error
        local = LocalTime.at(app.store.now())
    answer(json_form(tenant), lambda: _lines(tenant, local), as_json=as_json)


def _lines(tenant: TenantDetails, local: LocalTime) -> Iterator[str]:
    yield tenant.name
    quota = tenant.quota
    schedules = f"{tenant.active_schedules:,} active, {tenant.paused_schedules:,} paused"
    bound = _of(None if quota is None else quota.schedules)
    yield f"  schedules    {tenant.schedules:,} ({schedules}){bound}"
    if tenant.next_fire is not None:
        yield f"  next fire    {local.near(tenant.next_fire)}"
    queued = f"{tenant.due:,} due, {tenant.later:,} later"
    bound = _of(None if quota is None else quota.queued_runs)
    yield f"  queued runs  {tenant.due + tenant.later:,} ({queued}){bound}"
    if tenant.oldest_due is not None:
        yield f"  oldest due   {local.ago(tenant.oldest_due)}"
    yield f"  running      {tenant.running:,}"
    ended = ", ".join(f"{number:,} {state}" for state, number in tenant.ended.items() if number)
    yield f"  ended runs   {ended or 'none'}"
    yield (
        f"  in 24 hours  {tenant.started:,} attempts started, {tenant.succeeded:,} runs succeeded, "
        f"{tenant.failed:,} failed"
    )
    if tenant.limits:
        yield f"  limits       {', '.join(tenant.limits)}"


def _of(quota: int | None) -> str:
    return "" if quota is None else f", of at most {quota:,}"
