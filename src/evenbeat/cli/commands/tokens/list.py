"""``evenbeat tokens list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@store_option
@json_option
def command(store: str | None, as_json: bool) -> None:
    """List the tokens that work, by their last use."""
    with opened(store, None) as app:
        tokens = app.tokens.list()
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not tokens:
            yield "there are no tokens; 'evenbeat tokens create NAME' creates one"
            return
        yield Fitted(
            [
                Column("id", [token.id for token in tokens]),
                Column("name", [printable(token.name) for token in tokens], wraps=20),
                Column("role", [token.role for token in tokens]),
                Column("tenant", [token.tenant or "all" for token in tokens]),
                Column(
                    "last used",
                    [
                        "never" if token.last_used_at is None else local.near(token.last_used_at)
                        for token in tokens
                    ],
                ),
                Column(
                    "expires",
                    [
                        "never" if token.expires_at is None else local.near(token.expires_at)
                        for token in tokens
                    ],
                ),
                Column("created by", [printable(token.created_by) for token in tokens], drop=1),
            ]
        )

    answer(json_form(tokens), people, as_json=as_json)
