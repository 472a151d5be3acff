"""``evenbeat apply``: make the schedules what the code and a file declare."""

from __future__ import annotations

import sys

import click

from evenbeat.cli.deploy_words import counts_words, plan_words, result_words
from evenbeat.cli.deploys import deploy_options, opened_app, pasted_plan, pasted_result
from evenbeat.cli.failures import ExitCode, Failed
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, show_before_asking
from evenbeat.core.deploys import DeployPlan
from evenbeat.core.json_form import json_form


@click.command("apply")
@click.option("--yes", is_flag=True, help="Don't ask.")
@deploy_options
def command(
    app: str | None,
    file: str | None,
    source: str | None,
    prune: bool,
    adopt: bool,
    tenant: str | None,
    store: str | None,
    as_json: bool,
    yes: bool,
) -> ExitCode:
    """Make the schedules what the code and a file declare, in one step.

    Shows the plan and asks first; add --yes in a script. All changes are one atomic write. A schedule that
    somebody changes between the plan and the write is refused and shown, and the others are written.
    Schedules that were made by hand are never removed, and taken over only with --adopt.

    The exit code is 1 if a change was refused or a conflict is left.
    """
    with opened_app(app, file, store) as scheduler:
        plan = scheduler.plan(file=file, source=source, prune=prune, adopt=adopt, tenant=tenant)
        local = LocalTime.at(scheduler.store.now())
        if plan.to_do and not yes:
            _ask(pasted_plan(plan, scheduler), local, as_json=as_json)
        result = scheduler.apply(plan, file=file, source=source, prune=prune, adopt=adopt, tenant=tenant)
        result = pasted_result(result, scheduler)
    answer(json_form(result), lambda: result_words(result, local), as_json=as_json)
    has_conflict = any(entry.action == "conflict" for entry in result.left)
    return ExitCode.FAILED if result.refused or has_conflict else ExitCode.OK


def _ask(plan: DeployPlan, local: LocalTime, *, as_json: bool) -> None:
    """Show the plan on stderr; go on only after a yes."""
    if as_json or not sys.stdin.isatty():
        raise Failed(f"nothing was done: {counts_words(plan)}", "add --yes to apply it")
    show_before_asking(plan_words(plan, local))
    click.confirm("apply it?", abort=True, err=True)
