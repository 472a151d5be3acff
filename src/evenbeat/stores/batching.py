"""Division of large calls into batches with a limited number of rows and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

# Characters of users' texts in one batch: more would block the server for longer than a batch of many small
# rows does, and Redis refuses half a gigabyte in one command.
BYTES = 4 << 20


def batches(rows: Sequence[T], most: int, size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Yield slices of up to ``most`` rows, shorter where rows are large. One empty slice if there are
    none."""
    start, room = 0, BYTES
    for at, row in enumerate(rows):
        weight = size(row)
        if at > start and (at - start >= most or weight > room):
            yield rows[start:at]
            start, room = at, BYTES
        room -= weight
    yield rows[start:]
