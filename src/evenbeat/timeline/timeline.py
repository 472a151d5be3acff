"""The current timeline: when to plan it again, and how far ahead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.timeline.extra import has_numpy
from evenbeat.timeline.plain_plan import PlainPlan
from evenbeat.timeline.snapshot import Id, Snapshot
from evenbeat.triggers import Trigger

if TYPE_CHECKING:
    from evenbeat.timeline.plan import Plan


class RebuildPolicy(msgspec.Struct, frozen=True):
    """The rule for rebuilding: a new snapshot every ``period``, reaching ``lookahead`` ms ahead, of at most
    ``limit`` ticks.

    If the limit makes the snapshot shorter than the period, it is rebuilt when it ends.
    """

    period: int = 30_000
    lookahead: int = 3_600_000
    limit: int = 5_000_000
    """About 60 MB."""


class Timeline(Generic[Id]):
    """The current snapshot of what runs when.

    Readers take no lock: reading and swapping are one attribute access, and a reader that holds a snapshot
    keeps a consistent one. One thread at a time calls ``step``. With numpy, planning is some 40 times faster.
    """

    def __init__(self, policy: RebuildPolicy | None = None) -> None:
        self.policy = RebuildPolicy() if policy is None else policy
        self.snapshot: Snapshot[Id] = Snapshot([], [], [])
        """The current snapshot. Keep it in a variable to ask several questions of the same state."""
        self._plan: Plan[Id] | PlainPlan[Id] | None = None
        self._built_from: Plan[Id] | PlainPlan[Id] | None = None
        self._built_at: Instant = 0

    def schedule(self, schedules: Iterable[tuple[Id, Trigger]]) -> None:
        """Replace the planned schedules: on start, and when one is added, changed or removed.

        The next ``step`` builds the snapshot. Safe from any thread.
        """
        if not has_numpy():
            self._plan = PlainPlan(schedules)
            return
        from evenbeat.timeline.plan import Plan

        self._plan = Plan(schedules)

    def step(self, now: Instant, since: Instant | None = None) -> bool:
        """Build a new snapshot if it is time; return whether it did. Does nothing before ``schedule``.

        ``since`` is the first instant that the reader has not dealt with yet (default: now), so that
        no tick falls between two snapshots.
        """
        plan = self._plan
        if plan is None:
            return False
        age = now - self._built_at
        # A negative age: the clock was set back, and the snapshot may begin in the future.
        if plan is self._built_from and 0 <= age < self.policy.period and now < self.snapshot.end:
            return False
        begin = now if since is None else min(since, now)
        self.swap(plan.unroll(begin, now + self.policy.lookahead, self.policy.limit))
        self._built_from, self._built_at = plan, now
        return True

    def swap(self, new: Snapshot[Id]) -> Snapshot[Id]:
        """Put a new snapshot in place; return the old one, which stays valid for its readers."""
        old, self.snapshot = self.snapshot, new
        return old

    def query(self, start: Instant, end: Instant) -> list[tuple[Instant, Id]]:
        """Return the (tick, schedule) pairs in [start, end), in that order."""
        return self.snapshot.query(start, end)

    def peek(self, since: Instant | None = None) -> tuple[Instant, Id] | None:
        """Return the earliest tick, or the earliest at or after ``since``; None if there is none."""
        return self.snapshot.peek(since)

    def __len__(self) -> int:
        return len(self.snapshot)
