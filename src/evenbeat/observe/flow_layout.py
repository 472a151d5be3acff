"""Places the boxes of a flow in layers, from left to right, and leads the edges around them. Pure.

An edge over several layers goes through a place of its own in each layer between. The order within a layer
is that with the fewest crossings of several tries; then each box moves towards its neighbours.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from evenbeat.observe.flow_edges import Edge, layers

_SWEEPS = 6
# Pixels: between two layers, two boxes of a layer, an edge and its neighbours; the height of an edge's place.
_BETWEEN_LAYERS, _BETWEEN_BOXES, _BESIDE_EDGE, _EDGE = 56, 22, 10, 4
# How strongly an edge's place is drawn to its neighbours, compared with a box: long edges are straight.
_EDGE_WEIGHT = 4.0


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


class Layout(NamedTuple):
    boxes: list[Box]
    """By the position of the step."""
    routes: list[list[tuple[float, float]]]
    """Of each edge: where it leaves a layer and where it enters the next one, in turn."""
    width: float
    height: float


class _Place(NamedTuple):
    layer: int
    height: float
    is_box: bool


def layout(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> Layout:
    """Return where boxes of these widths and heights are, and the edges between them."""
    return _Placing(sizes, edges).layout()


class _Placing:
    def __init__(self, sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> None:
        self._sizes = sizes
        self._number = len(sizes)
        layer_of = _near_successors(layers(self._number, edges), edges)
        self._places = [_Place(layer_of[at], sizes[at][1], True) for at in range(self._number)]
        self._before: list[list[int]] = [[] for _ in range(self._number)]
        self._after: list[list[int]] = [[] for _ in range(self._number)]
        self._chains = self._chained(edges)
        """Of each edge: the places that it goes through, with its ends."""
        depth = max((place.layer for place in self._places), default=-1) + 1
        self._layers: list[list[int]] = [[] for _ in range(depth)]
        for at, place in enumerate(self._places):
            self._layers[place.layer].append(at)

    def layout(self) -> Layout:
        self._order()
        centres = self._centres()
        widths = [
            max((self._sizes[at][0] for at in layer if at < self._number), default=0.0)
            for layer in self._layers
        ]
        lefts = [sum(widths[:at]) + at * _BETWEEN_LAYERS for at in range(len(widths))]
        boxes = [
            Box(lefts[place.layer], centres[at] - place.height / 2, widths[place.layer], place.height)
            for at, place in enumerate(self._places[: self._number])
        ]
        routes: list[list[tuple[float, float]]] = []
        for chain in self._chains:
            points: list[tuple[float, float]] = []
            for at in chain:
                left, y = lefts[self._places[at].layer], centres[at]
                points += [(left, y), (left + widths[self._places[at].layer], y)]
            routes.append(points[1:-1])
        bottom = max((centres[at] + place.height / 2 for at, place in enumerate(self._places)), default=0.0)
        return Layout(boxes, routes, max((box.x + box.width for box in boxes), default=0.0), bottom)

    def _chained(self, edges: Sequence[Edge]) -> list[list[int]]:
        """Add the places of edges between their ends. Edges of one step share them as far as they can."""
        shared: dict[tuple[int, int, bool], int] = {}
        chains: list[list[int]] = []
        for edge in edges:
            chain = [edge.source]
            for layer in range(self._places[edge.source].layer + 1, self._places[edge.target].layer):
                key = (edge.source, layer, edge.has_data)
                if key not in shared:
                    shared[key] = len(self._places)
                    self._places.append(_Place(layer, _EDGE, False))
                    self._before.append([])
                    self._after.append([])
                    self._connect(chain[-1], shared[key])
                chain.append(shared[key])
            self._connect(chain[-1], edge.target)
            chains.append([*chain, edge.target])
        return chains

    def _connect(self, before: int, after: int) -> None:
        self._before[after].append(before)
        self._after[before].append(after)

    def _order(self) -> None:
        """Order each layer by the mean position of the neighbours, from left to right and back."""
        best, fewest = [list(layer) for layer in self._layers], self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            forward = sweep % 2 == 0
            neighbours = self._before if forward else self._after
            rank = {at: index for layer in self._layers for index, at in enumerate(layer)}
            for layer in self._layers if forward else reversed(self._layers):
                keys = {
                    at: sum(rank[each] for each in neighbours[at]) / len(neighbours[at])
                    if neighbours[at]
                    else float(rank[at])
                    for at in layer
                }
                layer.sort(key=keys.__getitem__)
                rank |= {at: index for index, at in enumerate(layer)}
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self._layers], crossings
        self._layers = best

    def _crossings(self) -> int:
        number = 0
        rank = {at: index for layer in self._layers for index, at in enumerate(layer)}
        for layer in self._layers[:-1]:
            seen: list[int] = []
            for at in layer:
                targets = sorted(rank[after] for after in self._after[at])
                number += sum(len(seen) - bisect_right(seen, target) for target in targets)
                for target in targets:
                    insort(seen, target)
        return number

    def _centres(self) -> list[float]:
        """Return the middle of each place: near the mean of its neighbours, in the order of its layer."""
        centres = [0.0] * len(self._places)
        for layer in self._layers:
            self._settle(layer, [0.0] * len(layer), centres)
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 1
            neighbours = self._before if forward else self._after
            for layer in self._layers if forward else reversed(self._layers):
                wanted = [
                    sum(centres[each] for each in neighbours[at]) / len(neighbours[at])
                    if neighbours[at]
                    else centres[at]
                    for at in layer
                ]
                self._settle(layer, wanted, centres)
        top = min((centres[at] - place.height / 2 for at, place in enumerate(self._places)), default=0.0)
        return [round(centre - top, 1) for centre in centres]

    def _settle(self, layer: Sequence[int], wanted: Sequence[float], centres: list[float]) -> None:
        """Place a layer as near to what is wanted as its order and the gaps allow (isotonic regression)."""
        offsets = [0.0]
        for above, below in pairwise(layer):
            one, other = self._places[above], self._places[below]
            gap = _BETWEEN_BOXES if one.is_box and other.is_box else _BESIDE_EDGE
            offsets.append(offsets[-1] + (one.height + other.height) / 2 + gap)
        blocks: list[tuple[float, float, int]] = []
        """The mean, the weight and the number of the places that moved together."""
        for at, place, offset in zip(layer, wanted, offsets, strict=False):
            mean, weight, number = place - offset, 1.0 if self._places[at].is_box else _EDGE_WEIGHT, 1
            while blocks and blocks[-1][0] > mean:
                other_mean, other_weight, other_number = blocks.pop()
                mean = (mean * weight + other_mean * other_weight) / (weight + other_weight)
                weight, number = weight + other_weight, number + other_number
            blocks.append((mean, weight, number))
        means = [mean for mean, _, number in blocks for _ in range(number)]
        for at, mean, offset in zip(layer, means, offsets, strict=False):
            centres[at] = mean + offset


def _near_successors(layer_of: list[int], edges: Sequence[Edge]) -> list[int]:
    """Move steps that wait for nothing to the layer before their first successor."""
    waiting = {edge.target for edge in edges}
    first: dict[int, int] = {}
    for edge in edges:
        first[edge.source] = min(first.get(edge.source, layer_of[edge.target]), layer_of[edge.target])
    return [layer if at in waiting or at not in first else first[at] - 1 for at, layer in enumerate(layer_of)]
