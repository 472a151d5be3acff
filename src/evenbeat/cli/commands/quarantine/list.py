"""``evenbeat quarantine list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted, listed
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.states import STYLES
from evenbeat.cli.store_input import all_tenants_option, opened, store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@all_tenants_option
@store_options
@json_option
def command(all_tenants: bool, store: str | None, tenant: str | None, as_json: bool) -> None:
    """List schedules and runs that nodes can't process.

    A schedule in quarantine does not fire until it is written again. One that is deferred fires as soon as a
    node can plan it.
    """
    with opened(store, tenant) as app:
        notes = app.quarantine.list(all_tenants=all_tenants)

    def people() -> Iterable[RenderableType]:
        if not notes:
            yield "nodes can process every schedule and every run"
            return
        yield Fitted(
            [
                Column("tenant", [note.tenant if all_tenants else "" for note in notes]),
                Column("name", [printable(note.name, keep="") for note in notes]),
                Column("state", [(note.kind, STYLES["failed"]) for note in notes]),
                Column("reason", [printable(note.reason, keep="") for note in notes], wraps=24),
            ]
        )
        yield ""
        remedies = dict.fromkeys((note.kind, note.remedy) for note in notes)
        yield listed([(f"{kind}:", remedy) for kind, remedy in remedies])

    answer({"notes": json_form(notes)}, people, as_json=as_json)
