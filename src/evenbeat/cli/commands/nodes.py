"""``evenbeat nodes``: the live nodes of a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from evenbeat.cli.layout import Cell, Column, Fitted
from evenbeat.cli.local_time import LocalTime
from evenbeat.cli.output import answer, json_option
from evenbeat.cli.store_input import opened, store_option
from evenbeat.core.figures import NodeView
from evenbeat.core.json_form import json_form

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.command("nodes")
@store_option
@json_option
def command(store: str | None, as_json: bool) -> None:
    """List the live nodes.

    A node gives a sign of life every 20 seconds, and is listed for 65 seconds after the last one.
    """
    with opened(store, None) as app:
        nodes = app.nodes()
        local = LocalTime.at(app.store.now())

    def people() -> Iterable[RenderableType]:
        if not nodes:
            yield "no node is running: evenbeat run"
            return
        yield Fitted(
            [
                Column("node", [node.name for node in nodes]),
                Column("does", [_duties(node) for node in nodes]),
                Column("running", [_running(node) for node in nodes], justify="right"),
                Column("queues", [", ".join(node.queues) if node.worker else "" for node in nodes], wraps=12),
                Column("tasks", [f"{len(node.tasks):,}" if node.worker else "" for node in nodes], drop=2),
                Column("up", [_since(node, local) for node in nodes], drop=3, justify="right"),
                Column(
                    "seen",
                    ["" if node.seen_at is None else local.ago(node.seen_at) for node in nodes],
                    drop=1,
                ),
                Column("version", [node.version or "" for node in nodes], drop=4),
            ]
        )

    answer({"nodes": json_form(nodes)}, people, as_json=as_json)


def _duties(node: NodeView) -> Cell:
    fires = "fires" if node.fallback_since is None else "fires from memory"
    words = [word for word, does in ((fires, node.ticker), ("executes", node.worker)) if does]
    if node.fallback_since is not None:
        return " and ".join(words), "yellow"
    return " and ".join(words) or ("nothing", "yellow")


def _running(node: NodeView) -> str:
    """Return ``3 of 110``: the runs that the node holds, and its slots."""
    if not node.worker or node.running is None:
        return ""
    slots = sum(node.slots.values())
    return f"{node.running:,} of {slots:,}" if slots else f"{node.running:,}"


def _since(node: NodeView, local: LocalTime) -> str:
    return "" if node.started_at is None else local.ago(node.started_at).removesuffix(" ago")
