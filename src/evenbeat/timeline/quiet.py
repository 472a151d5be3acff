"""Quiet ranges of a load: where maintenance delays the fewest runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view


class QuietRange(NamedTuple):
    """The minutes [first, end) of a load."""

    first: int
    end: int
    runs: int
    most: int
    """How many runs start in its fullest minute."""


def quiet_ranges(counts: npt.NDArray[np.int64], shortest: int, limit: int) -> list[QuietRange]:
    """Return the longest ranges of at least ``shortest`` minutes with few runs, the longest first.

    A minute belongs to one if it has at most as many runs as the fullest minute of the quietest ``shortest``
    minutes. So there always is a range, and in most installations its minutes have no runs at all.
    """
    length = min(shortest, len(counts))
    if length == 0:
        return []
    level = sliding_window_view(counts, length).max(axis=1).min()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], counts <= level, [False]]).astype(np.int8)))
    ranges = [(int(first), int(end)) for first, end in edges.reshape(-1, 2) if end - first >= length]
    longest = sorted(ranges, key=lambda found: (found[0] - found[1], found[0]))[:limit]
    return [
        QuietRange(first, end, int(counts[first:end].sum()), int(counts[first:end].max()))
        for first, end in longest
    ]
