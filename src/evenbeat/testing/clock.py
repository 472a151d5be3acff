"""A clock that stands still until a test moves it."""

from __future__ import annotations

from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant

START: Instant = 1_772_366_400_000  # 2026-03-01T12:00:00Z


class VirtualClock:
    """A clock for stores and loops. Call it to get the time; call ``advance`` to move it."""

    def __init__(self, now: Instant = START) -> None:
        self.now = now

    def __call__(self) -> Instant:
        return self.now

    def advance(self, by: Duration) -> Instant:
        self.now += read_duration(by, "by")
        return self.now
