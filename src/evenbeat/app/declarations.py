"""Declarations: schedules that code and files define, compared with what the store has."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from evenbeat.app.code_only import checked_code_schedule, delete_row, is_code_only
from evenbeat.app.declared_schedules import DeclaredSchedules, Wanted
from evenbeat.app.inheriting import follow_template
from evenbeat.app.rows import FirstWrite, ScheduleRows
from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.core.results import Schedule
from evenbeat.errors import InvalidValue
from evenbeat.node.settings import NodeSettings
from evenbeat.rules import changes, definitions
from evenbeat.rules.firing import Planned
from evenbeat.rules.ownership import may_move, owner_text
from evenbeat.tasks.task import Task, Tasks

_log = logging.getLogger("evenbeat.app.declarations")


class Declared(NamedTuple):
    """The schedules that the code and its files declare."""

    keys: tuple[tuple[str, str], ...]
    """(tenant, name) of those that have a row."""
    code_only: tuple[ScheduleRecord, ...]
    """Those that are in the code only."""


class Declarations:
    """Declares schedules; logs what becomes of edits by hand."""

    def __init__(self, rows: ScheduleRows, declared: DeclaredSchedules) -> None:
        self._rows = rows
        self._declared = declared

    def declare(self, wanted: ScheduleRecord, start: Instant | None, run_now: bool) -> Schedule:
        """Create the schedule, or update it to match if its declaration has changed."""
        first = FirstWrite(self._rows, wanted, run_now)
        for attempt in self._rows.tries(wanted.tenant, wanted.name, "declare"):
            previous = attempt.row
            active = () if previous is None else self._rows.active(previous)
            planned = changes.declare(wanted, attempt.now, previous, active, start)
            replaced = _replaced_edits(previous, planned)
            if attempt.write(first.completed(planned, attempt)):
                break
        assert attempt.view is not None
        made = attempt.view
        if wanted.template:
            made = follow_template(self._rows, wanted.tenant, wanted.name) or made
        if replaced:
            _log.warning(
                "the code's definition of a schedule changed and replaced an edit by hand",
                extra={"schedule_id": wanted.name, "tenant": wanted.tenant, "replaced": replaced},
            )
        return made

    def declare_task(self, task: Task[..., Any]) -> Schedule:
        """Declare the schedule that a task was decorated with. A node does so when it starts."""
        return self._with_owner(Wanted(self._declared.of_task(task)))

    def declare_all(self, tasks: Tasks, settings: NodeSettings) -> Declared:
        """Declare the schedules of decorated tasks, of ``app.declare`` and of the configured file. Those in
        the code only lose the rows that earlier versions of the code declared."""
        keys: list[tuple[str, str]] = []
        code_only: list[ScheduleRecord] = []
        for task in tasks:
            if task.is_scheduled:
                schedule = self.declare_by_mode(task, settings)
                if schedule is None:
                    keys.append((self._rows.session.tenant, task.name))
                else:
                    code_only.append(schedule)
        if code_only:
            _log.warning(
                "schedules are in the code only: they can't be paused or edited, and ticks that all nodes "
                "miss for longer than their grace do not run; durable=True gives them a row",
                extra={"schedules": [row.name for row in code_only]},
            )
        others: set[tuple[str, str]] = set()
        self.declare_others(others)
        return Declared((*keys, *sorted(others)), tuple(code_only))

    def declare_by_mode(self, task: Task[..., Any], settings: NodeSettings) -> ScheduleRecord | None:
        """Declare the schedule of a task; return it if it is in the code only."""
        if not is_code_only(task, settings.schedule_mode):
            self.declare_task(task)
            return None
        wanted = checked_code_schedule(self._declared.of_task(task), task, settings)
        delete_row(self._rows, wanted)
        return wanted

    def declare_others(self, known: set[tuple[str, str]] | None = None) -> None:
        """Declare the schedules of ``app.declare`` and of the configured file.

        A schedule that was made by hand, or that another source declares, stays as it is. With ``known``,
        only those that are not in it, and add them to it.
        """
        for wanted in (*self._declared.from_calls(), *self._declared.from_file()):
            if known is not None and wanted.record.key in known:
                continue
            if known is not None:
                known.add(wanted.record.key)
            row = self._rows.session.row(*wanted.record.key)
            is_there = row is not None and row.state != "deleted"
            if is_there and row is not None and not may_move(row, wanted.record.managed_by):
                _log.warning(
                    "a schedule was made by hand, or is declared elsewhere, and stays as it is; "
                    "to take it over: evenbeat apply --adopt",
                    extra={"schedule_id": row.name, "tenant": row.tenant, "managed_by": row.managed_by},
                )
            else:
                self._with_owner(wanted)

    def _with_owner(self, wanted: Wanted) -> Schedule:
        """Declare a schedule under the label of its source, and log edits by hand that stay."""
        schedule = self.declare(wanted.record, wanted.start, run_now=False)
        stored = owner_text(schedule.managed_by, schedule.source)
        if stored != wanted.record.managed_by:
            schedule = self._moved(wanted.record)
        if schedule.edited:
            _log.warning(
                "a schedule was edited by hand, and stays so until its definition in the code changes; "
                f"to undo the edit: evenbeat schedules reset {schedule.name}",
                extra={"schedule_id": schedule.name, "tenant": schedule.tenant, "code_says": schedule.edited},
            )
        return schedule

    def _moved(self, wanted: ScheduleRecord) -> Schedule:
        """Write the label of the source that declares a schedule now, unless another one's is there."""
        for attempt in self._rows.tries(*wanted.key, "declare"):
            row = attempt.existing()
            planned = None
            if row.state != "deleted" and row.format <= FORMAT and may_move(row, wanted.managed_by):
                fields = {"managed_by": wanted.managed_by}
                planned = changes.change(row, fields, attempt.now, self._rows.active(row))
            if attempt.write(planned):
                break
        assert attempt.view is not None
        return attempt.view


def _replaced_edits(previous: ScheduleRecord | None, planned: Planned | None) -> dict[str, Any]:
    """Return the edits by hand that the plan replaces."""
    if planned is None or previous is None or previous.damage:
        return {}
    with suppress(InvalidValue, msgspec.MsgspecError):  # the stored declaration is damaged
        return {name: edit.present for name, edit in definitions.edits(previous).items()}
    return {}
