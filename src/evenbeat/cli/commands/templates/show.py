"""``evenbeat templates show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted, listed, styled
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_options
from evenbeat.cli.template_words import value_words
from evenbeat.core.json_form import json_form
from evenbeat.core.templates import Template
from evenbeat.observe.phrases import count

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 20


@click.command("show")
@click.argument("name")
@store_options
@json_option
def command(name: str, store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show a template, and the schedules that inherit from it."""
    with opened(store, tenant) as app:
        template = app.templates.get(name)
        users = app.schedules.list(template=name)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((template.name, "bold"))
        yield ""
        yield listed(_lines(template, local))
        yield ""
        yield f"{count(len(users), 'schedule inherits', 'schedules inherit')} from it"
        if users:
            shown = users[:_SHOWN]
            yield Fitted(
                [
                    Column("schedule", [each.name for each in shown]),
                    Column("inherits", [", ".join(each.inherited) for each in shown], wraps=30),
                ]
            )
        if len(users) > _SHOWN:
            yield f"and {len(users) - _SHOWN:,} more"

    shown = {"template": json_form(template), "schedules": [each.name for each in users]}
    answer(shown, people, as_json=as_json)


def _lines(template: Template, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    for name, value in template.options.items():
        words = f" ({template.words})" if name == "trigger" else ""
        yield name, f"{value_words(value)}{words}"
    if template.updated_at is None:
        yield "", "built in: every tenant has it, and nobody can change it"
    else:
        yield "changed", f"{local.full(template.updated_at)}, revision {template.revision}"
