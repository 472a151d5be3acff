"""Declarations: schedules that code and files define, compared with what the store has."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec

from evenbeat.app.code_only import checked_code_schedule, coming_in_memory, delete_row, is_code_only
from evenbeat.app.declared_schedules import DeclaredSchedules, Wanted, in_order
from evenbeat.app.dependencies import refused_dependencies
from evenbeat.app.inheriting import follow_template
from evenbeat.app.rows import FirstWrite, ScheduleRows
from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.core.results import Schedule
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.node.settings import NodeSettings
from evenbeat.rules import changes, definitions
from evenbeat.rules.dependencies import predecessors
from evenbeat.rules.firing import Planned
from evenbeat.rules.ownership import may_move, owner_text
from evenbeat.tasks.task import Task

Key: TypeAlias = tuple[str, str]
"""(tenant, name) of a schedule."""

_log = logging.getLogger("evenbeat.app.declarations")


class Declared(NamedTuple):
    """The schedules that the code and its files declare."""

    keys: tuple[Key, ...]
    """Those that have a row."""
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
            wanted = self._rows.with_calendars(wanted)
            if start is None and (previous is None or previous.state == "deleted"):
                start = coming_in_memory(self._rows.session.store(), wanted, previous, attempt.now)
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

    def declare_all(
        self, tasks: Iterable[Task[..., Any]], settings: NodeSettings, known: set[Key] | None = None
    ) -> Declared:
        """Declare the schedules of decorated tasks, of ``app.declare`` and of the configured file, each after
        those that it depends on. Those in the code only lose the rows that earlier versions of the code
        declared.

        With ``known``, only those that are not in it, and add them to it.
        """
        known = set() if known is None else known
        tenant = self._rows.session.tenant
        new = [task for task in tasks if task.is_scheduled and (tenant, task.name) not in known]
        durable = [task for task in new if not is_code_only(task, settings.schedule_mode)]
        code_only = [schedule for task in new if (schedule := self._without_row(task, settings)) is not None]
        if code_only:
            _log.warning(
                "schedules are in the code only: they can't be paused or edited, and ticks that all nodes "
                "miss for longer than their grace do not run; durable=True gives them a row",
                extra={"schedules": [row.name for row in code_only]},
            )
        others = [
            wanted
            for wanted in (*self._declared.from_calls(), *self._declared.from_file())
            if wanted.record.key not in known
        ]
        other_keys = {wanted.record.key for wanted in others}
        wanted_rows = in_order([*(Wanted(self._declared.of_task(task)) for task in durable), *others])
        self._refuse_dependencies(wanted_rows)
        for wanted in wanted_rows:
            if wanted.record.key in other_keys:
                self._declare_other(wanted)
            else:
                self._with_owner(wanted)
        keys = tuple(wanted.record.key for wanted in wanted_rows)
        known.update(keys, (row.key for row in code_only))
        return Declared(keys, tuple(code_only))

    def _refuse_dependencies(self, wanted_rows: Iterable[Wanted]) -> None:
        """Refuse declarations that wait for each other, before the first of them is written."""
        records = [wanted.record for wanted in wanted_rows]
        writes: list[tuple[ScheduleRecord, ScheduleRecord | None]] = []
        for record in records:
            waits = predecessors(record.trigger, record.after)
            row = self._rows.session.row(*record.key) if waits else None
            # A schedule that was made by hand, or that another source declares, stays as it is.
            if row is None or row.state == "deleted" or may_move(row, record.managed_by):
                writes.append((record, row))
        for error in refused_dependencies(self._rows.session.store(), writes).values():
            raise error

    def declare_by_mode(self, task: Task[..., Any], settings: NodeSettings) -> ScheduleRecord | None:
        """Declare the schedule of a task; return it if it is in the code only."""
        schedule = self._without_row(task, settings)
        if schedule is None:
            self.declare_task(task)
        return schedule

    def _without_row(self, task: Task[..., Any], settings: NodeSettings) -> ScheduleRecord | None:
        """Return the schedule of a task if it is in the code only, and delete the row that it had."""
        if not is_code_only(task, settings.schedule_mode):
            return None
        wanted = checked_code_schedule(self._declared.of_task(task), task)
        delete_row(self._rows, wanted)
        return wanted

    def _declare_other(self, wanted: Wanted) -> None:
        """Declare a schedule of ``app.declare`` or of the configured file. One that was made by hand, or that
        another source declares, stays as it is."""
        row = self._rows.session.row(*wanted.record.key)
        if row is None or row.state == "deleted" or may_move(row, wanted.record.managed_by):
            self._with_owner(wanted)
            return
        _log.warning(
            "a schedule was made by hand, or is declared elsewhere, and stays as it is; "
            "to take it over: evenbeat apply --adopt",
            extra={"schedule_id": row.name, "tenant": row.tenant, "managed_by": row.managed_by},
        )

    def _with_owner(self, wanted: Wanted) -> Schedule:
        """Declare a schedule under the label of its source, and log edits by hand that stay."""
        try:
            schedule = self.declare(wanted.record, wanted.start, run_now=False)
        except InvalidTrigger as error:
            raise wanted.refusal(error) from None
        stored = owner_text(schedule.managed_by, schedule.source)
        if stored != wanted.record.managed_by:
            schedule = self._moved(wanted.record)
        if schedule.edited:
            _log.warning(
                "a schedule was edited by hand, and stays so until its declaration changes; "
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
