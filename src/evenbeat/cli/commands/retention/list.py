"""``evenbeat retention list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.durations import write_duration
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@store_option
@json_option
def command(store: str | None, as_json: bool) -> None:
    """List the retention rules.

    For the age of a run, the most specific rule counts: tenant and state, then tenant, then state, then the
    rule for all runs, then the setting 'retention' of the node.
    """
    with opened(store, None) as app:
        rules = app.retention.list()

    def people() -> Iterable[RenderableType]:
        if not rules:
            yield "there are no rules: the setting 'retention' of the nodes decides"
            return
        yield Fitted(
            [
                Column("tenant", [rule.tenant or "all" for rule in rules]),
                Column("state", [rule.state or "any" for rule in rules]),
                Column("keep", ["" if rule.keep is None else write_duration(rule.keep) for rule in rules]),
                Column(
                    "most", ["" if rule.most is None else f"{rule.most:,}" for rule in rules], justify="right"
                ),
                Column("set by", [printable(rule.updated_by) for rule in rules], wraps=20),
                Column("words", [printable(rule.words) for rule in rules], wraps=30),
            ]
        )

    answer({"rules": json_form(rules)}, people, as_json=as_json)
