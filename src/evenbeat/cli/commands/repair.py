"""``evenbeat repair``: duplicates, stuck rows and leftovers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"found": "yellow", "mended": "green", "changed": "cyan", "left": "bold red"}


@click.command("repair")
@click.option("--yes", is_flag=True, help="Mend what needs no judgement; without it, nothing is changed.")
@store_option
@json_option
def command(yes: bool, store: str | None, as_json: bool) -> None:
    """Find duplicates and stuck rows, and mend them.

    Finds ticks with several runs, active schedules without a wake-up, running runs without a live worker,
    queued runs that were asked to stop, and records about runs that are gone, of all tenants. On Redis, it
    also compares the indexes with the rows. Lists the findings; --yes mends them.

    Safe beside live nodes. 'evenbeat audit --action repair --all-tenants' shows what it changed.
    """
    with opened(store, None) as app:
        report = app.repair(dry_run=not yes)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        for finding in report.findings:
            yield styled((f"{finding.outcome}: {printable(finding.what)}", _STYLES[finding.outcome]))
            for fact in finding.evidence:
                at = "" if fact.at is None else f": {local.near(fact.at)}"
                yield styled((f"    {printable(fact.text)}{at}", "dim"))
            yield styled((f"    {finding.mending or 'only a person can decide'}", "cyan"))
        if not report.findings:
            yield "there is nothing to repair"
        elif report.dry_run:
            mendable = sum(finding.mending is not None for finding in report.findings)
            yield ""
            yield f"{count(len(report.findings), 'finding')}; 'evenbeat repair --yes' mends {mendable:,}"
        else:
            yield ""
            yield f"{report.mended:,} of {count(len(report.findings), 'finding')} mended"
        if not report.is_exact:
            yield "there may be more: only the newest 100,000 runs were read"

    answer({**json_form(report), "mended": report.mended}, people, as_json=as_json)
