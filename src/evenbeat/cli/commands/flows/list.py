"""``evenbeat flows list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.flow_input import app_option, needed_app
from evenbeat.cli.layout import Column, Fitted
from evenbeat.cli.output import answer, json_option
from evenbeat.core.flows import FlowInfo
from evenbeat.core.json_form import json_form
from evenbeat.observe.phrases import some

if TYPE_CHECKING:
    from rich.console import RenderableType

_NAMED = 4


@click.command("list")
@app_option
@json_option
def command(app_name: str | None, as_json: bool) -> None:
    """List the flows that an app registers.

    Reads the code of the app, and no store.
    """
    found = needed_app(app_name).flows.list()

    def people() -> Iterable[RenderableType]:
        if not found:
            yield "the app registers no flow; @app.flow makes one of a function that calls task.step(…)"
            return
        yield Fitted(
            [
                Column("flow", [each.name for each in found]),
                Column("steps", [f"{len(each.steps):,}" for each in found], justify="right"),
                Column("", [_steps(each) for each in found], drop=1, wraps=30),
                Column("result", [each.result or "" for each in found], drop=2),
                Column("version", [each.version[:8] for each in found], drop=3),
            ]
        )

    answer({"flows": json_form(found)}, people, as_json=as_json)


def _steps(flow: FlowInfo) -> str:
    return some([step.name for step in flow.steps], _NAMED)
