"""``evenbeat limits show``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Column, Fitted, listed, styled
from evenbeat.cli.limit_input import finding_limit, limit_names
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.phrases import printable
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.limits import RunLimit

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("show")
@limit_names
@store_option
@json_option
def command(
    task: str | None, queue: str | None, tenant: str | None, key: str | None, store: str | None, as_json: bool
) -> None:
    """Show a limit, and the busiest values of its key.

    The flags are all the names of the limit: --task charge does not find the limit of task charge with a key.
    """
    with opened(store, None) as app, finding_limit():
        limit = app.limits.get(task=task, queue=queue, tenant=tenant, key=key)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        yield styled((limit.name, "bold"))
        yield ""
        yield listed(_lines(limit, local))
        if limit.values:
            yield ""
            yield Fitted(
                [
                    Column(limit.key or "", [printable(each.value) for each in limit.values], wraps=40),
                    Column("running", [f"{each.running:,}" for each in limit.values], justify="right"),
                    Column("waiting", [f"{each.waiting:,}" for each in limit.values], justify="right"),
                ]
            )
        if limit.value_count > len(limit.values):
            yield f"and {limit.value_count - len(limit.values):,} more values"

    answer({"limit": json_form(limit)}, people, as_json=as_json)


def _lines(limit: RunLimit, local: LocalTime) -> Iterator[tuple[str, RenderableType]]:
    yield "allows", limit.words
    if limit.burst is not None:
        yield "burst", f"{limit.burst:,} at once after a quiet time"
    yield "running", f"{limit.running:,}"
    waits = "" if limit.oldest_waiting is None else f", the oldest since {local.near(limit.oldest_waiting)}"
    yield "waiting", f"{limit.waiting:,}{waits}"
    if limit.admits is not None:
        yield "admits now", f"{limit.admits:,}"
    if limit.admits_at is not None:
        yield "admits next", f"{local.full(limit.admits_at)}, {local.away(limit.admits_at)}"
