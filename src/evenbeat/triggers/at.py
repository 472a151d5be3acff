"""At: one instant."""

from __future__ import annotations

from datetime import datetime, tzinfo

from evenbeat.core.instants import Instant, read_instant, write_instant
from evenbeat.triggers.base import Trigger
from evenbeat.triggers.zones import read_zone


class At(Trigger, frozen=True, cache_hash=True):
    """A trigger with a single tick. ``at(…)`` makes it."""

    instant: Instant

    def next_ms(self, after: Instant) -> Instant | None:
        return self.instant if after < self.instant else None

    def prev_ms(self, before: Instant) -> Instant | None:
        return self.instant if before > self.instant else None

    def count_ms(self, start: Instant, end: Instant) -> int:
        return int(start <= self.instant < end)

    def explain(self) -> str:
        return f"once, at {write_instant(self.instant)}"

    def bind(self, name: str, since: Instant) -> At:
        return self

    def __str__(self) -> str:
        return f"at {write_instant(self.instant)}"


def at(moment: datetime | str, *, tz: str | tzinfo | None = None) -> At:
    """Return a trigger with one tick, at an aware datetime or an ISO 8601 text.

    A text without an offset is a wall-clock time in ``tz``: ``at("2026-03-01 09:00", tz="Europe/Berlin")``.
    """
    return At(read_instant(moment, "at", None if tz is None else read_zone(tz).info))
