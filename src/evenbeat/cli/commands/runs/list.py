"""``evenbeat runs list``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evenbeat.app.runs import STATES, AskedState
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.run_filter import is_narrowed, read_filter, run_filter_options
from evenbeat.cli.run_table import RunLine, run_lines, run_table
from evenbeat.cli.store_input import opened, store_options
from evenbeat.core.json_form import json_form
from evenbeat.core.results import Run, RunPage

if TYPE_CHECKING:
    from rich.console import RenderableType

# To fill the lines, so many runs are read at once, and at most: maps of flows may have 10,000 elements.
_PAGE, _MOST_READ = 1_000, 50_000


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@run_filter_options
@click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=20, show_default=True, help="At most this many."
)
@click.option("--elements", is_flag=True, help="List each element of a map of a flow.")
@store_options
@json_option
def command(
    state: AskedState | None,
    limit: int,
    elements: bool,
    store: str | None,
    tenant: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List runs, the newest first.

    A time of day (--since 02:55 --until 03:10) is the latest one in the past, in your zone. A queued run that
    has failed before is retrying.

    Runs of flows are marked; the ids of their steps begin with the id of the flow's run and ~. The elements
    of a map share a line; --elements and --json list each one.
    """
    with opened(store, tenant) as app:
        local = LocalTime.at(app.store.now())
        chosen = read_filter(app, local, options)
        # One more than the limit, to know whether there are more.
        if as_json:
            found: Sequence[RunLine] = app.runs.list(state=state, limit=limit + 1, **chosen)
        else:
            read = partial(app.runs.page, state=state, brief=True, **chosen)
            found = _lines(read, limit + 1, alone=elements)

    def people() -> Iterable[RenderableType]:
        if not found:
            yield "no such runs" if state is not None or is_narrowed(options) else "no runs"
            return
        yield run_table(found[:limit], local)
        if len(found) > limit:
            yield ""
            yield f"there are more: --limit {limit * 5}"

    answer({"runs": json_form(found[:limit]), "more": len(found) > limit}, people, as_json=as_json)


def _lines(read: Callable[..., RunPage], wanted: int, *, alone: bool) -> list[RunLine]:
    """Return so many lines, if there are; ``alone`` gives each element of a map its own."""
    runs: list[Run] = []
    page = read(limit=wanted)
    while True:
        runs += page.items
        lines: list[RunLine] = [*runs] if alone else run_lines(runs)
        if page.cursor is None or len(lines) >= wanted or len(runs) >= _MOST_READ:
            return lines
        page = read(limit=_PAGE, cursor=page.cursor)
