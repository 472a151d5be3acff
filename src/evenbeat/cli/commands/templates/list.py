"""``evenbeat templates list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.template_words import option_words
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@store_options
@json_option
def command(store: str | None, tenant: str | None, as_json: bool) -> None:
    """List the templates, built-in ones, too."""
    with opened(store, tenant) as app:
        templates = app.templates.list()

    def people() -> Iterable[RenderableType]:
        yield Fitted(
            [
                Column("template", [each.name for each in templates]),
                Column("", ["built in" if each.built_in else "" for each in templates], drop=1),
                Column("options", [", ".join(option_words(each.options)) for each in templates], wraps=30),
            ]
        )

    answer({"templates": json_form(templates)}, people, as_json=as_json)
