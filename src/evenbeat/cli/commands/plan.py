"""``evenbeat plan``: what a deploy would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.deploy_words import plan_words
from evenbeat.cli.deploys import deploy_options, opened_app, pasted_plan
from evenbeat.cli.failures import ExitCode
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("plan")
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
) -> ExitCode:
    """Show what a deploy would change about the schedules.

    Compares what the code of APP and a TOML file declare with what the store has: schedules to add, to change
    (each field, and the next five ticks before and after), to remove with --prune; conflicts with schedules
    that were made by hand; drift, which is edits by hand of declared schedules; and schedules that are
    refused, since they would wait for themselves, or for one that does not exist.

    The exit code is 0 if there is nothing to do, 3 if there is something to apply, a conflict or a refusal,
    2 if a file or a value is wrong.
    """
    with opened_app(app, file, store) as scheduler:
        plan = scheduler.plan(file=file, source=source, prune=prune, adopt=adopt, tenant=tenant)
        plan = pasted_plan(plan, scheduler)
        local = LocalTime.at(scheduler.store.now())

    def people() -> Iterator[RenderableType]:
        yield from plan_words(plan, local)
        if not plan.entries and not plan.unchanged and tenant is None:
            yield "nothing is declared: name an app, or a file with tables [schedules.NAME] by --file"

    answer(json_form(plan), people, as_json=as_json)
    is_open = plan.to_do or plan.count("conflict") or plan.count("refused")
    return ExitCode.CHANGES if is_open else ExitCode.OK
