"""OnSuccess: no ticks of its own; a success of another schedule's run fires."""

from __future__ import annotations

from evenbeat.core.checks import check_predecessor
from evenbeat.core.instants import Instant
from evenbeat.triggers.base import Trigger

ON_SUCCESS = "on success of "
"""How the text of such a trigger begins; the name of the schedule follows."""


class OnSuccess(Trigger, frozen=True, cache_hash=True):
    """A trigger without a time: each success of a run of another schedule fires once. ``on_success_of(…)``
    makes it."""

    schedule: str
    """The predecessor, of the same tenant, by name."""

    def next_ms(self, after: Instant) -> Instant | None:
        return None

    def prev_ms(self, before: Instant) -> Instant | None:
        return None

    def count_ms(self, start: Instant, end: Instant) -> int:
        return 0

    def explain(self) -> str:
        return f"after each success of {self.schedule}"

    def bind(self, name: str, since: Instant) -> OnSuccess:
        return self

    def __str__(self) -> str:
        return f"{ON_SUCCESS}{self.schedule}"


def on_success_of(schedule: str) -> OnSuccess:
    """Return a trigger that fires once for each success of a run of another schedule of the same tenant."""
    check_predecessor(schedule, "on_success_of")
    return OnSuccess(schedule)
