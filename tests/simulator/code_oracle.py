"""The oracle of schedules that are in the code only: each tick fires once, or is recorded as too late."""

from __future__ import annotations

from evenbeat.core.instants import Instant
from evenbeat.core.records import CatchUp, RunRecord, ScheduleRecord
from evenbeat.rules.attempts import is_expired
from evenbeat.rules.code_only import LONGEST_GRACE
from tests.simulator.violation import Violation

PERIOD = 600_000
SCHEDULES = (
    ScheduleRecord(name="code", task="task", trigger="every 10m"),
    ScheduleRecord(
        name="code-late", task="task", trigger="every 10m", catch_up=CatchUp("skip", grace=LONGEST_GRACE)
    ),
)
"""The schedules that all nodes plan in memory: one with the default grace, one with the longest."""


class CodeOracle:
    """Knows the runs of such ticks, also those that were deleted."""

    def __init__(self) -> None:
        self._names = {row.name for row in SCHEDULES}
        self._fired: dict[str, set[Instant]] = {name: set() for name in self._names}
        self._late: dict[str, set[Instant]] = {name: set() for name in self._names}

    def knows(self, schedule: str | None) -> bool:
        return schedule in self._names

    def added(self, run: RunRecord, now: Instant) -> None:
        assert run.tick is not None
        assert run.schedule is not None
        if is_expired(run, now):
            # Nobody executes it.
            self._late[run.schedule].add(run.tick)
            return
        fired = self._fired[run.schedule]
        if run.tick in fired:
            raise Violation(f"tick {run.id} fired again after its run was deleted", run.schedule)
        fired.add(run.tick)

    def unfinished(self, now: Instant) -> str | None:
        """Return a tick that has no record yet; None if there is none."""
        for name in sorted(self._names):
            known = self._fired[name] | self._late[name]
            for tick in range(min(known, default=now), now - now % PERIOD + 1, PERIOD):
                if tick not in known:
                    return f"tick {tick} of {name}, which is in the code only, has no record"
        return None
