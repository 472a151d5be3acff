"""What ``runs.move`` did, as users get it back."""

from __future__ import annotations

import msgspec

from evenbeat.core.results import BulkResult, ChangeWarning, Run


class ScheduleOfTask(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of the old task: it goes on adding runs of that task."""

    tenant: str
    name: str
    command: str
    """The command that changes its task."""


class MoveResult(BulkResult[Run], frozen=True, kw_only=True):
    """The outcome of ``runs.move``: queued runs that became runs of another task."""

    schedules: tuple[ScheduleOfTask, ...]
    """Schedules that still have the old task."""
    warnings: tuple[ChangeWarning, ...] = ()
    """Nothing has the new task, or payloads do not fit it."""
