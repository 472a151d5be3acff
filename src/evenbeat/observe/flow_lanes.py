"""A flow as text: a line for each step, with lanes on the left that lead to the steps after it. Pure.

A lane begins at a step, and ends at the last step that waits for it:

    ● a
    ├─● b
    ● │ c
    │ │
    ●─╯ d
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from evenbeat.observe.flow_edges import Edge


class LaneRow(NamedTuple):
    """A line of the drawing."""

    step: int | None
    """None: a line between two steps, which shows that they are connected."""
    lanes: str
    """Contains ``MARK`` where the step is."""
    below: str
    """The lanes below this line, for further lines of text beside it."""


MARK = "\0"
_ASCII = str.maketrans("│─├┤┴┼╰╯", "|-++++++")


def lane_rows(number: int, edges: Sequence[Edge], *, ascii_only: bool = False) -> list[LaneRow]:
    """Return the lines of a flow of so many steps, each after those that it waits for."""
    drawing = _Lanes(number, edges)
    rows = [row for step in range(number) for row in drawing.rows(step)]
    if not ascii_only:
        return rows
    return [LaneRow(row.step, row.lanes.translate(_ASCII), row.below.translate(_ASCII)) for row in rows]


class _Lanes:
    """The lanes while the steps are drawn, one after the other."""

    def __init__(self, number: int, edges: Sequence[Edge]) -> None:
        self._sources: list[list[int]] = [[] for _ in range(number)]
        self._left = Counter(edge.source for edge in edges)
        """How many steps that wait for a step are not drawn yet."""
        for edge in edges:
            self._sources[edge.target].append(edge.source)
        self._lanes: list[int | None] = []
        """The step that a lane begins at; None: the lane is free."""
        self._above: int | None = None
        """The lane of the step in the line above."""

    def rows(self, step: int) -> list[LaneRow]:
        lanes = sorted((self._lanes.index(source), source) for source in self._sources[step])
        self._left.subtract(self._sources[step])
        joined = [lane for lane, _ in lanes]
        ended = [lane for lane, source in lanes if not self._left[source]]
        own = ended[0] if ended else self._free(joined)
        # Two marks below each other look like a list: a line between them connects them.
        is_below_mark = bool(ended) and own == self._above
        between = [LaneRow(None, self._vertical(), self._vertical())] if is_below_mark else []
        line = self._line(own, joined, ended)
        for lane in ended:
            self._lanes[lane] = None
        self._lanes[own] = step if self._left[step] else None
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()
        self._above = own
        return [*between, LaneRow(step, line, self._vertical())]

    def _free(self, joined: Sequence[int]) -> int:
        """Return a free lane, to the right of the lanes that lead to it."""
        first = joined[0] + 1 if joined else 0
        for lane in range(first, len(self._lanes)):
            if self._lanes[lane] is None:
                return lane
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _vertical(self) -> str:
        return " ".join(" " if lane is None else "│" for lane in self._lanes).rstrip()

    def _line(self, own: int, joined: Sequence[int], ended: Sequence[int]) -> str:
        first, last = min([own, *joined]), max([own, *joined])
        cells: list[str] = []
        for lane, begun in enumerate(self._lanes):
            is_inside = first < lane < last
            if lane == own:
                cell = MARK
            elif lane not in joined:
                # A lane that only crosses stays whole.
                cell = "│" if begun is not None else "─" if is_inside else " "
            elif is_inside:
                cell = "┴" if lane in ended else "┼"
            elif lane == first:
                cell = "╰" if lane in ended else "├"
            else:
                cell = "╯" if lane in ended else "┤"
            cells.append(cell + ("─" if first <= lane < last else " "))
        return "".join(cells).rstrip()
