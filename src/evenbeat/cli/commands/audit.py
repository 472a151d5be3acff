"""``evenbeat audit``."""

from __future__ import annotations

import click

from evenbeat.cli.audit_table import answer_entries, limit_option
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import json_option
from evenbeat.cli.store_input import all_tenants_option, complete_schedule, opened, store_options
from evenbeat.core.audits import ACTIONS, AuditAction
from evenbeat.core.instants import from_ms


@click.command("audit")
@click.option(
    "--subject",
    metavar="NAME",
    shell_complete=complete_schedule,
    help="Only changes of this schedule, or of the run with this id.",
)
@click.option("--actor", metavar="NAME", help="Only changes by this person or program.")
@click.option(
    "--action",
    type=click.Choice(ACTIONS),
    metavar="ACTION",
    help=f"Only changes of this kind: {', '.join(ACTIONS)}.",
)
@click.option("--since", metavar="WHEN", help="Only changes after this: 02:55, a date, or 2h ago.")
@click.option("--until", metavar="WHEN", help="Only changes before this.")
@all_tenants_option
@limit_option
@store_options
@json_option
def command(
    subject: str | None,
    actor: str | None,
    action: AuditAction | None,
    since: str | None,
    until: str | None,
    all_tenants: bool,
    limit: int,
    store: str | None,
    tenant: str | None,
    as_json: bool,
) -> None:
    """Show who changed which schedule or run, and how it was before.

    Every change of a schedule is recorded, and every run that was cancelled, retried or enqueued by hand.
    Entries are kept for 365 days.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        start, end = local.read_window(since, until)
        found = app.audit.list(
            subject=subject,
            actor=actor,
            action=action,
            since=None if start is None else from_ms(start),
            until=None if end is None else from_ms(end),
            all_tenants=all_tenants,
            # One more than the limit, to know whether there are more.
            limit=limit + 1,
        )
    narrowed = any(value is not None for value in (subject, actor, action, since, until))
    answer_entries(
        found,
        limit,
        local,
        empty="no such changes" if narrowed else "nobody has changed anything yet",
        as_json=as_json,
        show_subjects=subject is None,
        show_tenants=all_tenants,
    )
