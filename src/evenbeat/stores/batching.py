"""Batches in parts that one script takes: not too many rows, and not too many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# Characters of what users gave, for one script: more would keep the server busy for longer than a part of
# many small rows does, and half a gigabyte in one command is refused.
BYTES = 4 << 20


def batches(rows: Sequence[T], most: int, size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Slices of up to ``most`` rows, cut where they grow large. One, and empty, if there are no rows."""
    start, room = 0, BYTES
    for at, row in enumerate(rows):
        weight = size(row)
        if at > start and (at - start >= most or weight > room):
            yield rows[start:at]
            start, room = at, BYTES
        room -= weight
    yield rows[start:]
