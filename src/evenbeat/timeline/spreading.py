"""Proposed spreads: which option ``spread`` would lower a peak of a load, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from evenbeat.core.instants import Instant
from evenbeat.timeline.load import Counts, Load, Peak, Positions
from evenbeat.triggers import Trigger

_MINUTE = 60_000
# Minutes. A spread of a minute would leave all runs in the same minute.
_SPREADS = (2, 5, 10, 15, 30, 60)
_LONGEST = _SPREADS[-1] * _MINUTE
# Only a peak of that many runs is worth a proposal, and only a spread that lowers it to three quarters.
_HIGH = 5
_WORTHWHILE = 3 / 4
# A longer spread is not tried once the peak is that low.
_ENOUGH = 1 / 4
# Minutes before the peak and after the spread whose counts are returned, too.
_MARGIN = 5
# Schedules that are examined, over all peaks: 3 us each.
_EXAMINED = 20_000


class ProposedSpread(NamedTuple):
    """A spread for schedules that start in the same minute."""

    minute: Instant
    spread: int
    """Milliseconds."""
    members: Positions
    before: int
    """How many runs start in that minute."""
    after: int
    """How many runs would start in the fullest minute until the spread has passed."""
    start: Instant
    """The first minute of ``minutes_before`` and ``minutes_after``."""
    minutes_before: Counts
    """Runs by the minute, from a little before the peak until a little after the spread."""
    minutes_after: Counts
    """The same with the spread."""


class _Candidates(NamedTuple):
    """Schedules with one run in the peak, and no other run near it."""

    positions: Positions
    ticks: Counts
    """The tick of each in the peak."""
    calm: Counts
    """How far its neighbouring ticks are away, in milliseconds."""
    numbers: Counts
    """The number of each that the spread is applied to."""


def propose_spreads(
    load: Load, peaks: Iterable[Peak], number: Callable[[int], int | None], limit: int
) -> list[ProposedSpread]:
    """Return at most ``limit`` spreads that would lower a peak, for the highest peaks first.

    ``number`` returns, for the position of a schedule, the number whose remainder by the spread is its delay;
    None if it is not to be spread. Each schedule is proposed once.
    """
    found: list[ProposedSpread] = []
    is_open = np.ones(len(load.schedules), np.bool_)
    left = _EXAMINED
    for peak in peaks:
        chosen = peak.once[is_open[peak.once]][:left]
        if len(found) == limit or peak.runs < _HIGH or len(chosen) < 2:
            continue
        left -= len(chosen)
        proposal = _best_spread(load, peak, _candidates(load, peak.minutes[0], chosen, number))
        if proposal is not None:
            found.append(proposal)
            is_open[proposal.members] = False
    return found


def _candidates(
    load: Load, minute: Instant, chosen: Positions, number: Callable[[int], int | None]
) -> _Candidates:
    around: dict[Trigger, tuple[int, int] | None] = {}
    rows = []
    for position in chosen.tolist():
        trigger = load.schedules[position].trigger
        if trigger not in around:
            around[trigger] = _around(trigger, minute)
        place = around[trigger]
        if place is not None and (drawn := number(position)) is not None:
            # The numbers have 64 bits, and all spreads divide the longest one.
            rows.append((position, *place, drawn % _LONGEST))
    table = np.array(rows, np.int64).reshape(-1, 4)
    return _Candidates(table[:, 0].astype(np.intp), table[:, 1], table[:, 2], table[:, 3])


def _around(trigger: Trigger, minute: Instant) -> tuple[int, int] | None:
    """Return the trigger's tick in the minute, and how far its neighbours are away; None if that is too
    near."""
    tick = trigger.next_ms(minute - 1)
    if tick is None or tick >= minute + _MINUTE:
        return None
    far = 2 * _LONGEST
    before, after = trigger.prev_ms(tick), trigger.next_ms(tick)
    calm = min(far, far if before is None else tick - before, far if after is None else after - tick)
    return (tick, calm) if calm >= 2 * _SPREADS[0] * _MINUTE else None


def _best_spread(load: Load, peak: Peak, candidates: _Candidates) -> ProposedSpread | None:
    """Return the shortest spread that is enough, else the one that lowers the peak the most."""
    minute = peak.minutes[0]
    first = (minute - load.start) // _MINUTE
    best: ProposedSpread | None = None
    for minutes in _SPREADS:
        spread = minutes * _MINUTE
        # With neighbours that near, runs of two ticks would mix.
        fits = candidates.calm >= 2 * spread
        begin, inside = max(0, first - _MARGIN), min(first, _MARGIN)
        before = load.counts[begin : first + minutes + 1 + _MARGIN]
        whole = before.copy()
        counts = whole[inside : inside + minutes + 1]
        if fits.sum() < 2 or len(counts) <= minutes:
            break
        later = candidates.ticks[fits] - minute + candidates.numbers[fits] % spread
        counts[0] -= len(later)
        counts += np.bincount(later // _MINUTE, minlength=minutes + 1)
        after = int(counts.max())
        if best is None or after < best.after:
            start = load.start + begin * _MINUTE
            members = candidates.positions[fits]
            best = ProposedSpread(minute, spread, members, peak.runs, after, start, before, whole)
        if best.after <= peak.runs * _ENOUGH:
            break
    return best if best is not None and best.after <= peak.runs * _WORTHWHILE else None
