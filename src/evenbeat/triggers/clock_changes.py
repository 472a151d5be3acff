"""The effects of coming clock changes on a cron, with their dates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.triggers import Cron
from evenbeat.triggers.words import clock
from evenbeat.triggers.zones import Zone

_LOOK_AHEAD = 10 * 366 * 86_400
"""Seconds. A zone without a change for so long is taken to have none any more."""


class ClockChange(NamedTuple):
    """A change of the offset from ``before`` to ``after``, at ``at`` (seconds UTC)."""

    at: int
    before: int
    after: int

    @property
    def clock_from(self) -> str:
        return clock(self.at + self.before)

    @property
    def clock_to(self) -> str:
        return clock(self.at + self.after)

    @property
    def instant(self) -> Instant:
        return self.at * 1000


def coming_changes(zone: Zone, since: Instant, count: int) -> list[ClockChange]:
    """Return the next changes of the zone's clock after ``since``, at most ``count``."""
    return list(islice(_changes(zone, since // 1000), count))


def _changes(zone: Zone, second: int) -> Iterator[ClockChange]:
    end = second + _LOOK_AHEAD
    while zone.fixed is None and second < end:
        window = zone.window(second)
        # Some windows end without a change.
        if window.after != window.offset:
            yield ClockChange(window.hi, window.offset, window.after)
        second = window.hi


def effect(cron: Cron, change: ClockChange) -> str:
    """Return the effect of a change on the ticks of a cron, in words."""
    # The wall-clock times that do not exist on this day, or exist twice.
    low, high = sorted((change.at + change.before, change.at + change.after))
    first, last = cron.expression.at_or_after(low), cron.expression.at_or_before(high - 1)
    if first is None or last is None or not low <= first < high:
        return "no tick falls in there"
    many = last > first
    times = f"{clock(first)} to {clock(last)}" if many else clock(first)
    if change.after > change.before:
        return f"{times} {'do' if many else 'does'} not exist: {_after_gap(cron, change, many)}"
    return f"{times} {'come' if many else 'comes'} twice: {_passes(cron, change, many)}"


def _after_gap(cron: Cron, change: ClockChange, many: bool) -> str:
    after = cron.next_ms(change.instant - 1)
    if cron.gap == "shift" and after == change.instant:
        if cron.expression.at_or_after(change.at + change.after) == change.at + change.after:
            return f"the tick at {change.clock_to} stands for {'them' if many else 'it'} too"
        return f"{'one tick' if many else 'it runs'} at {change.clock_to} instead"
    before = cron.prev_ms(change.instant)
    if cron.expression.follows_real_time and before is not None and after is not None:
        previous = clock(before // 1000 + change.before)
        return f"after {previous} comes {clock(after // 1000 + change.after)}"
    return f"{'they do' if many else 'it does'} not run on this day"


def _passes(cron: Cron, change: ClockChange, many: bool) -> str:
    length = (change.before - change.after) * 1000
    first = any(True for _ in cron.between_ms(change.instant - length, change.instant))
    second = any(True for _ in cron.between_ms(change.instant, change.instant + length))
    which = {
        (True, True): "both times",
        (True, False): "the first time only",
        (False, True): "the second time only",
        (False, False): "neither time",
    }[first, second]
    return f"{'they run' if many else 'it runs'} {which}"
