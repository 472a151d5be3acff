"""Declarations: schedules that code defines, compared with what the store has."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from evenbeat.app.definitions import new_schedule
from evenbeat.app.rows import FirstWrite, ScheduleRows
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.core.results import Schedule
from evenbeat.errors import InvalidValue
from evenbeat.rules import changes, definitions
from evenbeat.rules.firing import Planned
from evenbeat.tasks.task import Task, Tasks

_log = logging.getLogger("evenbeat.app.declarations")


class Declarations:
    """Declares schedules; logs what becomes of edits by hand."""

    def __init__(self, rows: ScheduleRows) -> None:
        self._rows = rows

    def declare(self, wanted: ScheduleRecord, start: Instant | None, run_now: bool) -> Schedule:
        """Create the schedule, or update it to match if its declaration has changed."""
        first = FirstWrite(self._rows, wanted, run_now)
        for attempt in self._rows.tries(wanted.tenant, wanted.name, "declare"):
            previous = attempt.row
            active = () if previous is None else self._rows.active(previous)
            wanted = self._rows.with_calendars(wanted)
            planned = changes.declare(wanted, attempt.now, previous, active, start)
            replaced = _replaced_edits(previous, planned)
            if attempt.write(first.completed(planned, attempt)):
                break
        assert attempt.view is not None
        if replaced:
            _log.warning(
                "the code's definition of a schedule changed and replaced an edit by hand",
                extra={"schedule_id": wanted.name, "tenant": wanted.tenant, "replaced": replaced},
            )
        return attempt.view

    def declare_task(self, task: Task[..., Any]) -> Schedule:
        """Declare the schedule that a task was decorated with. A node does so when it starts."""
        assert task.trigger is not None
        wanted = new_schedule(self._rows.session, task.name, task.trigger, task, None, None, task.policies)
        schedule = self.declare(replace(wanted, managed_by="code"), None, run_now=False)
        if schedule.edited:
            _log.warning(
                "a schedule was edited by hand, and stays so until its definition in the code changes; "
                f"to undo the edit: evenbeat schedules reset {schedule.name}",
                extra={"schedule_id": schedule.name, "tenant": schedule.tenant, "code_says": schedule.edited},
            )
        return schedule

    def declare_tasks(self, tasks: Tasks) -> None:
        """Declare the schedules of all tasks that were decorated with one."""
        for task in tasks:
            if task.trigger is not None:
                self.declare_task(task)


def _replaced_edits(previous: ScheduleRecord | None, planned: Planned | None) -> dict[str, Any]:
    """Return the edits by hand that the plan replaces."""
    if planned is None or previous is None or previous.damage:
        return {}
    with suppress(InvalidValue, msgspec.MsgspecError):  # the stored declaration is damaged
        return {name: edit.present for name, edit in definitions.edits(previous).items()}
    return {}
