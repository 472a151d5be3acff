"""``evenbeat tenants quota``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.failures import Failed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.tenants import Quota
from evenbeat.record_errors import QuotaNotFound


@click.command("quota")
@click.argument("name")
@click.option("--schedules", metavar="N", type=int, help="At most this many schedules.  [default: any]")
@click.option("--queued-runs", metavar="N", type=int, help="At most this many queued runs.  [default: any]")
@click.option("--remove", is_flag=True, help="Remove the quota.")
@store_option
@json_option
def command(
    name: str, schedules: int | None, queued_runs: int | None, remove: bool, store: str | None, as_json: bool
) -> None:
    """Set, replace or remove the quota of a tenant.

    Beyond it, new schedules and new runs are refused. Ticks of schedules are never refused. The quota is
    replaced as a whole: a number that is not given is not bounded. It holds in all processes within 5
    seconds.
    """
    if remove and (schedules is not None or queued_runs is not None):
        raise click.UsageError("--remove goes without --schedules and --queued-runs")
    if not remove and schedules is None and queued_runs is None:
        raise click.UsageError("give --schedules, --queued-runs or both, or --remove")
    quota: Quota | None = None
    with opened(store, None) as app:
        if remove:
            try:
                app.tenants.remove_quota(name)
            except QuotaNotFound as error:
                raise Failed(str(error), "'evenbeat tenants list' shows the quotas") from error
        else:
            quota = app.tenants.set_quota(name, schedules=schedules, queued_runs=queued_runs)

    def people() -> Iterator[str]:
        if quota is None:
            yield f"removed the quota of {name}"
        else:
            yield f"{name} may have {_words(quota.schedules, 'schedules')} and " + _words(
                quota.queued_runs, "queued runs"
            )

    answer({"tenant": name, "quota": None if quota is None else json_form(quota)}, people, as_json=as_json)


def _words(number: int | None, noun: str) -> str:
    return f"any number of {noun}" if number is None else f"at most {number:,} {noun}"
