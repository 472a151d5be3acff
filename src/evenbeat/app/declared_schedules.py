"""Schedules that the code or a file declares, kept until a node, a plan or ``apply`` reads them.

Keeping them does not open the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from evenbeat.app.code_only import checked_code_schedule, is_code_only
from evenbeat.app.definitions import new_schedule, start_of
from evenbeat.app.session import AppSession
from evenbeat.core.checks import check_label, check_name
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.errors import EvenbeatError, InvalidTrigger, InvalidValue, shown
from evenbeat.node.settings import ScheduleMode
from evenbeat.rules.dependencies import predecessors
from evenbeat.rules.ownership import SourceKind, owner
from evenbeat.schedule_files import DeclaredSchedule, ScheduleFile, declared_schedules, read_schedule_file
from evenbeat.tasks.options import NewScheduleOptions
from evenbeat.tasks.task import Call, Task
from evenbeat.triggers import Trigger, parse_trigger

T = TypeVar("T")


class Wanted(NamedTuple):
    """A schedule that is declared."""

    record: ScheduleRecord
    start: Instant | None = None
    """``start_at``: used only when the schedule is created."""
    declared: DeclaredSchedule | None = None
    """What the file has; None if the code declares it."""

    def refusal(self, error: InvalidTrigger) -> InvalidValue:
        """Return a refusal of its trigger that names the schedule, and the place in the file."""
        if self.declared is not None:
            return _refusal(self.declared, error)
        return _of_trigger(f"schedule {self.record.name}: trigger", error)


class _Kept(NamedTuple):
    name: str
    trigger: Trigger | str | None
    task: Task[..., Any] | Call | str | None
    payload: Mapping[str, Any] | None
    tenant: str | None
    options: NewScheduleOptions


class DeclaredSchedules:
    """What the code and the files of one scheduler declare. ``source`` is the label of the app."""

    def __init__(self, session: AppSession, source: str, mode: ScheduleMode = "durable") -> None:
        if source:
            check_label(source, "source")
        self._session = session
        self.mode = mode
        """That of nodes: which schedules of decorated tasks have a row."""
        self.source = source
        self.file: ScheduleFile | None = None
        """What the configured file declares."""
        self._kept: dict[tuple[str, str], _Kept] = {}

    @property
    def has_code(self) -> bool:
        """Whether the app has code at all: a scheduler that was only made for its store has none."""
        return bool(self._kept) or len(self._session.tasks) > 0

    def keep(
        self,
        name: str,
        trigger: Trigger | str | None,
        task: Task[..., Any] | Call | str | None,
        payload: Mapping[str, Any] | None,
        tenant: str | None,
        options: NewScheduleOptions,
    ) -> None:
        """Keep a schedule that the code declares; ``InvalidValue`` if its values are wrong."""
        kept = _Kept(name, trigger, task, payload, tenant, options)
        record = self._of_code(kept)
        decorated = self._session.tasks.get(name)
        is_taken = decorated is not None and decorated.is_scheduled and record.tenant == self._tenant
        if is_taken or record.key in self._kept:
            raise InvalidValue(
                f"name {shown(name)} is that of a schedule that the code declares already",
                field="name",
                value=name,
                hint="give the second one another name",
            )
        self._kept[record.key] = kept

    def from_tasks(self) -> list[Wanted]:
        """Return the schedules of decorated tasks, but for those that are in the code only."""
        return [
            Wanted(self.of_task(task))
            for task in self._session.tasks
            if task.is_scheduled and not is_code_only(task, self.mode)
        ]

    def code_only(self) -> list[ScheduleRecord]:
        """Return the schedules of decorated tasks that are in the code only, which have no row."""
        return [
            checked_code_schedule(self.of_task(task), task)
            for task in self._session.tasks
            if is_code_only(task, self.mode)
        ]

    def of_task(self, task: Task[..., Any]) -> ScheduleRecord:
        """Return the schedule that a task was decorated with."""
        assert task.is_scheduled
        made = new_schedule(self._session, task.name, task.trigger, task, None, None, task.policies)
        return _owned(made, self.owner_of_code)

    def from_calls(self) -> list[Wanted]:
        """Return the schedules that ``app.declare`` declares."""
        return [Wanted(self._of_code(kept)) for kept in self._kept.values()]

    def from_file(self, file: ScheduleFile | None = None, source: str | None = None) -> list[Wanted]:
        """Return the schedules of a file, by default of the configured one."""
        file = self.file if file is None else file
        if file is None:
            return []
        made_by = self.owner_of_file(file, source)
        return [self._of_file(declared, made_by) for declared in file.schedules]

    def check_file(self, file: ScheduleFile) -> None:
        """Refuse wrong values, but for ``start_at``, which may count from the store's time."""
        for declared in file.schedules:
            fields = {name: value for name, value in declared.fields.items() if name != "start_at"}
            self._of_file(replace(declared, fields=fields), "file")

    def owner_of_file(self, file: ScheduleFile, source: str | None = None) -> str:
        """Return who manages the schedules of a file: the given label, else its own, else that of the app."""
        kind: SourceKind = "file"
        return owner(kind, source or file.source or self.source)

    @property
    def owner_of_code(self) -> str:
        return owner("code", self.source)

    @property
    def _tenant(self) -> str:
        return self._session.tenant

    def _of_code(self, kept: _Kept) -> ScheduleRecord:
        check_name(kept.name, "name")
        made = new_schedule(
            self._session, kept.name, kept.trigger, kept.task, kept.payload, kept.tenant, kept.options
        )
        return _owned(made, self.owner_of_code)

    def _of_file(self, declared: DeclaredSchedule, managed_by: str) -> Wanted:
        fields: Any = dict(declared.fields)
        start = fields.pop("start_at", None)
        trigger, task = fields.pop("trigger", None), fields.pop("task")
        payload, tenant = fields.pop("payload", None), fields.pop("tenant", None)
        try:
            record = new_schedule(self._session, declared.name, trigger, task, payload, tenant, fields)
            return Wanted(_owned(record, managed_by), start_of(self._session, start, record), declared)
        except InvalidValue as error:
            raise _refusal(declared, error) from None
        except EvenbeatError as error:
            raise InvalidValue(f"{declared.place()}: {error}", field=declared.name, value=fields) from None


def _refusal(declared: DeclaredSchedule, error: InvalidValue) -> InvalidValue:
    """Return the refusal of a value of a file, with its place."""
    if isinstance(error, InvalidTrigger):
        keys = ("trigger",) if "trigger" in declared.fields else ()
        return _of_trigger(f"{declared.place(*keys)}: trigger", error)
    place = declared.place(error.field) if error.field in declared.fields else declared.place()
    return InvalidValue(f"{place}: {error.problem}", field=error.field, value=error.value, hint=error.hint)


def _of_trigger(what: str, error: InvalidTrigger) -> InvalidValue:
    problem = f"{what} {shown(error.text)}: {error.problem}"
    return InvalidValue(problem, field="trigger", value=error.text, hint=error.hint)


def _owned(record: ScheduleRecord, managed_by: str) -> ScheduleRecord:
    """Return a record as it is declared: with its owner, and the canonical text of its trigger."""
    return replace(record, managed_by=managed_by, trigger=str(parse_trigger(record.trigger)))


def in_order(wanted: list[Wanted]) -> list[Wanted]:
    """Return schedules with those that others depend on before these; otherwise in their order."""
    return [each for level in in_levels(wanted, lambda each: each.record) for each in level]


def in_levels(items: Sequence[T], record_of: Callable[[T], ScheduleRecord]) -> list[list[T]]:
    """Return the items in groups: the schedules of a group depend on none of the same or of a later one.

    Schedules that depend on each other in a cycle come last: the first one that is written is refused.
    """
    levels: list[list[T]] = []
    left = list(items)
    while left:
        waiting = {record_of(each).key for each in left}
        free = [each for each in left if waiting.isdisjoint(_predecessors(record_of(each)))]
        levels.append(free or left)
        left = [each for each in left if each not in free] if free else []
    return levels


def _predecessors(record: ScheduleRecord) -> set[tuple[str, str]]:
    return {(record.tenant, name) for name in predecessors(record.trigger, record.after)}


def read_file(file: str | os.PathLike[str] | ScheduleFile) -> ScheduleFile:
    """Return what a file declares."""
    return file if isinstance(file, ScheduleFile) else read_schedule_file(file)


def read_mapping(schedules: Mapping[str, Mapping[str, Any]], tenant: str | None) -> ScheduleFile:
    """Return schedules that a call declares, as if a file did.

    ``tenant`` is that of schedules without one; ``InvalidValue`` for a schedule of another tenant.
    """

    def place(*keys: str) -> str:
        return ".".join(("schedules", *keys))

    found: Iterable[DeclaredSchedule] = declared_schedules(schedules, place)
    if tenant is not None:
        found = [replace(each, fields={"tenant": tenant, **each.fields}) for each in found]
        for each in found:
            if each.fields["tenant"] != tenant:
                other = each.fields["tenant"]
                raise InvalidValue(
                    f"{each.place()}: tenant {shown(other)} is not {shown(tenant)}, which was asked for",
                    field="tenant",
                    value=other,
                    hint="leave it out, or deploy for that tenant",
                )
    return ScheduleFile(schedules=tuple(found), source=None)
