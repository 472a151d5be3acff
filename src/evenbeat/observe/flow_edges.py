"""The edges of a flow as a drawing shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evenbeat.core.flows import FlowInfo


class Edge(NamedTuple):
    """From a step to one that waits for it; both by position."""

    source: int
    target: int
    has_data: bool
    """Whether the target gets the result of the source."""


def drawn_edges(flow: FlowInfo) -> list[Edge]:
    """Return the edges of a flow, by target.

    An edge without data is left out if others imply it: a step that runs after everything else waits, as
    drawn, only for the last ones.
    """
    positions = {step.name: at for at, step in enumerate(flow.steps)}
    before: list[int] = []
    """For each step, the steps that come before it, directly or not: a bit for each."""
    edges: list[Edge] = []
    for at, step in enumerate(flow.steps):
        sources = [positions[name] for name in step.after]
        implied = 0
        for source in sources:
            implied |= before[source]
        for source in sources:
            has_data = flow.steps[source].name in step.inputs
            if has_data or not implied >> source & 1:
                edges.append(Edge(source, at, has_data))
        for source in sources:
            implied |= 1 << source
        before.append(implied)
    return edges


def layers(number: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each step, from 0: each is in a later one than those that it waits for."""
    found = [0] * number
    for source, target, _ in edges:  # by target: the layer of a source is known
        found[target] = max(found[target], found[source] + 1)
    return found
