"""Define schedules: add, declare, update, reset, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from msgspec.structs import replace

from evenbeat.app.definitions import (
    CHANGEABLE,
    ScheduleChanges,
    changed_fields,
    new_schedule,
    start_of,
    task_warnings,
)
from evenbeat.app.dependencies import delete_warnings
from evenbeat.app.inheriting import follow_template, names_template, options_of_template
from evenbeat.app.schedules.calls import ScheduleCalls, written
from evenbeat.core.awaitable import twin
from evenbeat.core.instants import Moment
from evenbeat.core.json_text import read_definition
from evenbeat.core.records import ScheduleRecord
from evenbeat.core.results import ChangeWarning, DeletedSchedule, Schedule
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules import changes
from evenbeat.rules.inheritance import template_of
from evenbeat.tasks.options import NewScheduleOptions, refuse_unknown
from evenbeat.tasks.task import Call, Task
from evenbeat.triggers import Trigger


class DefinitionCalls(ScheduleCalls):
    """Creates schedules, changes what they are, and deletes them."""

    def add(
        self,
        name: str,
        trigger: Trigger | str | None = None,
        task: Task[..., Any] | Call | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        start_at: Moment | None = None,
        run_now: bool = False,
        **options: Unpack[NewScheduleOptions],
    ) -> Schedule:
        """Create a schedule; ``ScheduleExists`` if the name is taken.

        Its first run is at the next tick, not before ``start_at``, which is also the phase of an interval.
        ``run_now`` adds one run at once. With ``paused=True`` the schedule waits until it is resumed. If
        neither the app nor a live node has the task, the result's ``warnings`` say so. Options that are not
        given, and the trigger, may come from a ``template``; ``@name`` as the trigger names one, too.
        """
        wanted = new_schedule(self._session, name, trigger, task, payload, tenant, options)
        warnings = task_warnings(self._session, wanted.task)
        made = self._rows.create(wanted, start_of(self._session, start_at, wanted), run_now)
        if wanted.template:
            made = follow_template(self._rows, made.tenant, made.name) or made
        return replace(made, warnings=warnings)

    def declare(
        self,
        name: str,
        trigger: Trigger | str | None = None,
        task: Task[..., Any] | Call | str | None = None,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        start_at: Moment | None = None,
        run_now: bool = False,
        **options: Unpack[NewScheduleOptions],
    ) -> Schedule:
        """Create the schedule, or update it to match if this declaration differs from the last one.

        Edits by hand stay, as a pause does, until the declaration itself changes; ``reset`` undoes them. A
        trigger that means the same keeps the next tick. ``start_at``, ``run_now``, ``paused`` and ``note``
        only apply when the schedule is created.
        """
        wanted = new_schedule(self._session, name, trigger, task, payload, tenant, options)
        decorated = self._session.tasks.get(name)
        if decorated is not None and decorated.is_scheduled and wanted.task != name:
            # Otherwise each declaration would undo the other whenever a node starts.
            raise InvalidValue(
                f"name {shown(name)} is that of a task with a schedule of its own",
                field="name",
                value=name,
                hint="give this schedule, or the task, another name",
            )
        warnings = task_warnings(self._session, wanted.task)
        made = self._declarations.declare(wanted, start_of(self._session, start_at, wanted), run_now)
        return replace(made, warnings=warnings)

    def update(
        self,
        name: str,
        *,
        tenant: str | None = None,
        if_revision: int | None = None,
        **changed: Unpack[ScheduleChanges],
    ) -> Schedule:
        """Change some fields of a schedule; the others, and its pause, stay.

        An option that it inherits from its template becomes its own by this. ``inherit`` gives options back:
        they get the values of the template. ``template`` gives it another one; None: none. ``@name`` as the
        trigger gives it a template and its trigger.
        """
        refuse_unknown(changed, CHANGEABLE, "a schedule")
        warnings: tuple[ChangeWarning, ...] = ()
        for attempt in self._tries(name, "update", tenant, if_revision):
            row = attempt.existing()
            fields = changed_fields(self._session, row, changed)
            if "task" in changed:
                warnings = task_warnings(self._session, fields["task"])
            if attempt.write(self._rows.changed(row, fields, attempt.now)):
                break
        made = written(attempt.view)
        if names_template(changed):
            made = follow_template(self._rows, made.tenant, made.name) or made
        return replace(made, warnings=warnings)

    def reset(self, name: str, *, tenant: str | None = None, if_revision: int | None = None) -> Schedule:
        """Undo edits by hand: the schedule becomes what ``declare``, or the code, last defined."""
        for attempt in self._tries(name, "reset", tenant, if_revision):
            row = attempt.existing()
            template = self._declared_template(row)
            trigger = changes.declared_fields(row, template)["trigger"]
            copies = self._rows.copies(row.tenant, trigger)
            if attempt.write(changes.reset(row, attempt.now, self._rows.active(row), template, copies)):
                break
        return written(attempt.view)

    def _declared_template(self, row: ScheduleRecord) -> Mapping[str, Any] | None:
        """Return the options of the template that the declaration of a schedule names."""
        name = template_of(read_definition(row.declared)["template"]) if row.declared else ""
        return options_of_template(self._session, row.tenant, name) if name else None

    def delete(
        self, name: str, *, tenant: str | None = None, if_revision: int | None = None
    ) -> DeletedSchedule:
        """Delete a schedule; its runs and their history stay. ``ScheduleNotFound`` if there is none.

        ``warnings`` name the schedules that wait for it.
        """
        for attempt in self._tries(name, "delete", tenant, if_revision):
            row = attempt.existing()
            if attempt.write(changes.delete(row, attempt.now)):
                break
        warnings = delete_warnings(self._session.store(), [row])
        return DeletedSchedule(name=row.name, tenant=row.tenant, warnings=warnings)

    aadd = twin(add)
    adeclare = twin(declare)
    aupdate = twin(update)
    areset = twin(reset)
    adelete = twin(delete)
