"""``evenbeat config show``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import place, settings_here, store_in_force, store_options
from evenbeat.config import Setting

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@store_options
@json_option
def command(store: str | None, tenant: str | None, as_json: bool) -> None:
    """Show each setting and where it was set.

    A flag overrides an EVENBEAT_ variable, that overrides evenbeat.toml, and that overrides [tool.evenbeat]
    of pyproject.toml. Passwords are not shown.
    """
    settings = settings_here(store=store, tenant=tenant)
    rows = [store_in_force(settings) if name == "store" else settings.of(name) for name in settings]

    def people() -> Iterable[RenderableType]:
        yield Fitted(
            [
                Column("setting", [row.name for row in rows]),
                Column("value", [_value(row) for row in rows]),
                Column("from", [_origin(row) for row in rows]),
            ]
        )

    answer({"settings": {row.name: _document(row) for row in rows}}, people, as_json=as_json)


def _value(row: Setting) -> Cell:
    if row.origin.kind == "app" and row.value is None:
        return "not known", "yellow"
    return printable(row.shown, keep=""), "dim" if row.origin.kind == "default" else "bold"


def _origin(row: Setting) -> Cell:
    return place(row.origin), "dim" if row.origin.kind == "default" else ""


def _document(row: Setting) -> dict[str, Any]:
    origin = row.origin
    return {
        "value": row.shown if row.name == "store" and row.value is not None else row.value,
        "from": origin.kind,
        "name": origin.name or None,
        "file": None if origin.file is None else str(origin.file),
        "line": origin.line,
    }
