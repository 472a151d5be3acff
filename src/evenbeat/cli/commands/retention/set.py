"""``evenbeat retention set``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from evenbeat.cli.output import answer, json_option
from evenbeat.cli.retention_input import subject_options
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.retention import EndedState


@click.command("set")
@subject_options
@click.option("--keep", metavar="DURATION", help="Delete runs that ended longer ago, like 7d.")
@click.option("--most", metavar="N", type=int, help="Keep only so many runs, those that ended last.")
@store_option
@json_option
def command(
    state: EndedState | None,
    tenant: str | None,
    keep: str | None,
    most: int | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Create a retention rule, or replace it.

    The rule is about the runs of --tenant that ended in --state, or about more runs if these are left out.
    Nodes apply it within a minute, in small batches.
    """
    with opened(store, None) as app:
        rule = app.retention.set(state=state, tenant=tenant, keep=keep, most=most)

    def people() -> Iterator[str]:
        yield rule.words

    answer(json_form(rule), people, as_json=as_json)
