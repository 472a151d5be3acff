"""``evenbeat limits list``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.limit_input import limit_names
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.json_form import json_form
from evenbeat.core.limits import RunLimit

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("list")
@limit_names
@store_option
@json_option
def command(
    task: str | None, queue: str | None, tenant: str | None, key: str | None, store: str | None, as_json: bool
) -> None:
    """List the limits, and what waits for each.

    Only those that name this task, queue, tenant and key, as far as they are given. A due run waits for a
    limit that does not admit it now; other runs pass it.
    """
    with opened(store, None) as app:
        limits = app.limits.list(task=task, queue=queue, tenant=tenant, key=key)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not limits:
            yield "there are no such limits; 'evenbeat limits set --task NAME --concurrency N' sets one"
            return
        yield Fitted(
            [
                Column("limit", [limit.name for limit in limits], wraps=24),
                Column("at once", [_number(limit.concurrency) for limit in limits], justify="right"),
                Column("rate", [limit.rate or "" for limit in limits]),
                Column("running", [f"{limit.running:,}" for limit in limits], justify="right"),
                Column("waiting", [_waiting(limit) for limit in limits], justify="right"),
                Column("oldest", [_oldest(limit, local) for limit in limits], drop=1, justify="right"),
                Column("values", [_values(limit) for limit in limits], drop=2, justify="right"),
            ]
        )

    answer({"limits": json_form(limits)}, people, as_json=as_json)


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _waiting(limit: RunLimit) -> Cell:
    return (f"{limit.waiting:,}", "yellow") if limit.waiting else "0"


def _oldest(limit: RunLimit, local: LocalTime) -> str:
    return "" if limit.oldest_waiting is None else local.ago(limit.oldest_waiting).removesuffix(" ago")


def _values(limit: RunLimit) -> str:
    return "" if limit.key is None else f"{limit.value_count:,}"
