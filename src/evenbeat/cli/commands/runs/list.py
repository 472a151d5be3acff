"""``evenbeat runs list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from evenbeat.app.runs import STATES, AskedState
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.run_filter import is_narrowed, read_filter, run_filter_options
from evenbeat.cli.run_table import run_table
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@run_filter_options
@click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="At most this many."
)
@store_options
@json_option
def command(
    state: AskedState | None, limit: int, store: str | None, tenant: str | None, as_json: bool, **options: Any
) -> None:
    """List runs, the newest first.

    A time of day (--since 02:55 --until 03:10) is the latest one in the past, in your zone. A queued run that
    has failed before is retrying.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        # One more than the limit, to know whether there are more.
        found = app.runs.list(
            state=state, brief=not as_json, limit=limit + 1, **read_filter(app, local, options)
        )
    runs = found[:limit]

    def people() -> Iterable[RenderableType]:
        if not runs:
            yield "no such runs" if state is not None or is_narrowed(options) else "no runs"
            return
        yield run_table(runs, local)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"

    answer({"runs": json_form(runs), "more": len(found) > limit}, people, as_json=as_json)
