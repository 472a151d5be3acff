"""``evenbeat quarantine show``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import listed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.quarantined import quarantined
from evenbeat.cli.store_input import store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@click.argument("id")
@store_options
@json_option
def command(id: str, store: str | None, tenant: str | None, as_json: bool) -> None:  # noqa: A002  # as in Python
    """Show why a row is in quarantine, and what helps.

    ID is the name of the schedule or the id of the run. Shows the reason, the fields that can be read, and
    what 'retry' and 'drop' would do. Changes nothing.
    """
    with quarantined(store, tenant) as app:
        row = app.quarantine.show(id)

    def people() -> Iterable[RenderableType]:
        yield listed(
            [
                (f"{row.subject}:", printable(row.name)),
                ("tenant:", row.tenant),
                ("reason:", printable(row.reason)),
                ("now:", "it can be processed" if row.problem is None else printable(row.problem)),
                *([("unreadable:", ", ".join(row.unreadable))] if row.unreadable else []),
                ("retry:", printable(row.on_retry)),
                ("drop:", printable(row.on_drop)),
            ]
        )
        yield ""
        if not row.fields:
            yield "no field of it can be read"
            return
        yield "fields that can be read"
        yield listed([(f"  {name}:", printable(_text(value))) for name, value in row.fields.items()])

    answer(json_form(row), people, as_json=as_json)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
