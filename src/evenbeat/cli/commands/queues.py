"""``evenbeat queues``: how many runs wait in each queue, its nodes, and whether it drains."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.durations import read_duration
from evenbeat.core.json_form import json_form
from evenbeat.core.results import QueueStats
from evenbeat.observe.phrases import span

if TYPE_CHECKING:
    from rich.console import RenderableType

_TRENDS = {"drains": "green", "steady": "", "grows": "yellow", "stands still": "bold red"}


@click.command("queues")
@click.option(
    "--period",
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="How far back to count the runs that came due and those that ended.",
)
@store_option
@json_option
def command(period: str, store: str | None, as_json: bool) -> None:
    """Show how many runs wait in each queue, and whether it drains.

    Counts the runs of all tenants. A queue drains if more runs ended in the period than came due.
    """
    length = read_duration(period, "--period")
    with opened(store, None) as app:
        queues = app.queues(period)
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not queues:
            yield "no queues: nothing is queued, and no node is running"
            return
        yield Fitted(
            [
                Column("queue", [queue.name for queue in queues]),
                Column("due", [f"{queue.due:,}" for queue in queues], justify="right"),
                Column("oldest", [_oldest(queue, local) for queue in queues], justify="right"),
                Column("running", [f"{queue.running:,}" for queue in queues], justify="right"),
                Column("later", [_number(queue.later) for queue in queues], drop=3, justify="right"),
                Column("retrying", [_number(queue.retrying) for queue in queues], drop=2, justify="right"),
                Column(f"in {span(length)}", [_flow(queue) for queue in queues], drop=1),
                Column("", [_trend(queue) for queue in queues]),
                Column("nodes", [_nodes(queue) for queue in queues], wraps=16),
            ]
        )

    documents = [json_form(queue) | {"trend": queue.trend} for queue in queues]
    answer(
        {"period": json_form(timedelta(milliseconds=length)), "queues": documents}, people, as_json=as_json
    )


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _oldest(queue: QueueStats, local: LocalTime) -> str:
    """Return how long the oldest due run has waited."""
    return "" if queue.oldest_due is None else local.ago(queue.oldest_due).removesuffix(" ago")


def _flow(queue: QueueStats) -> str:
    return f"{queue.came_due:,} due, {queue.ended:,} ended" if queue.came_due or queue.ended else ""


def _trend(queue: QueueStats) -> Cell:
    return "" if queue.trend == "empty" else (queue.trend, _TRENDS[queue.trend])


def _nodes(queue: QueueStats) -> Cell:
    if queue.nodes:
        return ", ".join(queue.nodes)
    return ("none", "bold red") if queue.due else "none"
