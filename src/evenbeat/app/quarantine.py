"""``app.quarantine``: schedules and runs that nodes can't process, and what to do about them."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from evenbeat.app.audit import write_audited
from evenbeat.app.figures import read_quarantine
from evenbeat.app.repairs import is_asleep, planning_problem, wake
from evenbeat.app.rows import ScheduleRows
from evenbeat.app.runs import Runs
from evenbeat.app.session import AppSession
from evenbeat.core.awaitable import twin
from evenbeat.core.figures import QuarantineNote
from evenbeat.core.instants import FIRST, LAST, from_ms, write_instant
from evenbeat.core.json_form import json_form
from evenbeat.core.quarantine import QuarantineChange, QuarantinedKind, QuarantinedRow
from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.errors import ScheduleConflict
from evenbeat.record_errors import QuarantineNotFound, QuarantineRefused
from evenbeat.rules import auditing, changes
from evenbeat.stores.base import RunQuery

# Inside the class, ``list`` is a method.
NoteList: TypeAlias = list[QuarantineNote]
_TRIES = 20
_INSTANTS = frozenset(
    (
        *("next_tick", "moved", "wake_at", "last_fire", "paused_until", "paused_at", "anchor", "created_at"),
        *("updated_at", "tick", "scheduled_at", "run_at", "lease_until", "started_at", "finished_at"),
    )
)


class _Case(NamedTuple):
    """A quarantined row: its note, and the row itself as far as it can be read."""

    note: Record
    row: ScheduleRecord | None
    run: RunRecord | None

    @property
    def subject(self) -> QuarantinedKind:
        return "run" if self.row is None else "schedule"


class Quarantine:
    """The quarantine of a scheduler; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own. ``id`` is the name of a schedule or the id of a run, as
    ``list`` shows it.
    """

    def __init__(self, session: AppSession, rows: ScheduleRows, runs: Runs) -> None:
        self._session = session
        self._rows = rows
        self._runs = runs

    def list(self, *, tenant: str | None = None, all_tenants: bool = False) -> NoteList:
        """Return the schedules and runs that nodes can't process, by name, each with the reason."""
        owner = None if all_tenants else self._session.tenant_of(tenant)
        return [found.note for found in read_quarantine(self._session.store(), owner)]

    def show(self, id: str, *, tenant: str | None = None) -> QuarantinedRow:
        """Return why a row is in quarantine, what can be read of it, and what ``retry`` and ``drop`` would
        do. ``QuarantineNotFound`` if it is not in quarantine."""
        case = self._case(id, tenant)
        problem = self._problem(case)
        fields, unreadable = _fields(case)
        return QuarantinedRow(
            kind="deferred" if case.note.kind == "deferred" else "quarantine",
            subject=case.subject,
            tenant=case.note.tenant,
            name=case.note.key,
            reason=case.note.body,
            problem=problem,
            fields=fields,
            unreadable=unreadable,
            on_retry=_on_retry(case, problem),
            on_drop=_on_drop(case),
        )

    def retry(self, id: str, *, tenant: str | None = None) -> QuarantineChange:
        """Give a schedule its wake-up again, or queue a run again; delete the note.

        ``QuarantineRefused``, with what is still wrong, if the row can't be read or planned here.
        """
        case = self._case(id, tenant)
        problem = self._problem(case)
        if problem is not None:
            hint = (
                "mend its row in the database, or drop it"
                if case.row is None
                else "declare or update it (what can't be read gets its default), or drop it"
            )
            raise QuarantineRefused(case.note.tenant, case.note.key, problem, hint)
        words = _on_retry(case, None)
        store = self._session.store()
        if case.row is not None and is_asleep(case.row):
            if not wake(store, case.row, store.now(), "retry"):
                raise ScheduleConflict(*case.row.key)
            store.hint()
        elif case.run is not None and case.run.state in ("failed", "cancelled"):
            again = self._runs.retry(case.run.id, tenant=case.run.tenant)
            if again.id != case.run.id:
                words = f"Added run {again.id} with the same payload, since its schedule bounds its runs."
        self._forget(case)
        return _change("retry", case, words)

    def drop(self, id: str, *, tenant: str | None = None) -> QuarantineChange:
        """Delete the note of a row and, if it is a schedule that nodes can't process, the schedule. A run
        stays as it is: failed."""
        case = self._case(id, tenant)
        if case.note.kind == "deferred":
            raise QuarantineRefused(
                case.note.tenant,
                case.note.key,
                "it is deferred, and nodes try again by themselves",
                "pause or delete the schedule instead",
            )
        words = _on_drop(case)
        if case.row is not None and case.row.state != "deleted" and _is_broken(case.row):
            # Another writer may mend the row meanwhile: then it stays.
            for attempt in self._rows.tries(case.row.tenant, case.row.name, "drop"):
                row = attempt.row
                if row is None or row.state == "deleted" or not _is_broken(row):
                    break
                if attempt.write(changes.delete(row, attempt.now)):
                    break
            self._forget(case)
        else:
            store = self._session.store()
            before = {"quarantine": case.note.body}
            change = auditing.Change(case.subject, case.note.key, case.note.tenant, "drop", before, {})
            delete = partial(
                store.delete_record, case.note.kind, case.note.tenant, case.note.key, case.note.version
            )
            write_audited(store, change, delete)
        return _change("drop", case, words)

    def _case(self, name: str, tenant: str | None) -> _Case:
        owner = self._session.tenant_of(tenant)
        store = self._session.store()
        for kind in ("quarantine", "deferred"):
            note = store.get_record(kind, owner, name)
            if note is not None:
                row = self._session.row(owner, name)
                runs = (
                    store.find_runs(RunQuery(ids=(name,), tenant=owner, limit=1)).items if row is None else ()
                )
                return _Case(note, row, next(iter(runs), None))
        row = self._session.row(owner, name)
        if row is not None and row.state != "deleted" and (row.damage or is_asleep(row)):
            # Damaged since it last fired: no node has written a note yet.
            body = row.damage or "it is active and has no wake-up"
            return _Case(Record(kind="quarantine", tenant=owner, key=name, body=body, version=0), row, None)
        raise QuarantineNotFound(owner, name)

    def _problem(self, case: _Case) -> str | None:
        """Return what is still wrong with a row; None if ``retry`` would work."""
        if case.row is not None:
            if case.row.state == "deleted":
                return "the schedule is deleted"
            if case.row.damage or is_asleep(case.row) or case.note.kind == "deferred":
                return planning_problem(case.row, self._session.store().now())
            return None
        if case.run is None:
            return f"the run can't be read: {case.note.body}"
        return None

    def _forget(self, case: _Case) -> None:
        """Delete the note, if it is still the one that was read."""
        store = self._session.store()
        store.delete_record(case.note.kind, case.note.tenant, case.note.key, case.note.version)

    alist = twin(list)
    ashow = twin(show)
    aretry = twin(retry)
    adrop = twin(drop)


def _is_broken(row: ScheduleRecord) -> bool:
    return bool(row.damage) or is_asleep(row)


def _change(action: Literal["retry", "drop"], case: _Case, words: str) -> QuarantineChange:
    return QuarantineChange(
        action=action, subject=case.subject, tenant=case.note.tenant, name=case.note.key, words=words
    )


def _on_retry(case: _Case, problem: str | None) -> str:
    if problem is not None:
        return f"It is refused: {problem}."
    if case.row is not None:
        if is_asleep(case.row):
            assert case.row.next_tick is not None
            return (
                f"The schedule gets its wake-up at {write_instant(case.row.next_tick)} again, and the note "
                "is deleted; its catch-up policy decides about missed ticks."
            )
        if case.note.kind == "deferred":
            return "The note is deleted; nodes plan the schedule at its next wake-up, as before."
        return "The schedule is fine already: only the note is deleted."
    assert case.run is not None
    if case.run.state in ("failed", "cancelled"):
        return "The run is queued again, with all its retries, and the note is deleted."
    return f"The run is {case.run.state} already: only the note is deleted."


def _on_drop(case: _Case) -> str:
    if case.note.kind == "deferred":
        return "It is refused: nodes try again by themselves."
    if case.row is None:
        state = "as it is" if case.run is None else case.run.state
        return f"Only the note is deleted; the run stays {state}, until it is purged."
    if case.row.state != "deleted" and _is_broken(case.row):
        return "The schedule is deleted, with its note; its runs and their history stay."
    return "Only the note is deleted; the schedule stays as it is."


def _fields(case: _Case) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields that can be read, and the names of those that can't."""
    record: ScheduleRecord | RunRecord | None = case.row or case.run
    if record is None:
        return {}, ()
    blank = {field.name: field.default for field in msgspec.structs.fields(type(record))}
    kept: dict[str, Any] = {}
    unreadable = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "damage" or name == "declared":
            continue
        # What can't be read has the value with which a damaged row is completed.
        if isinstance(record, ScheduleRecord) and record.damage and value == "" and name in _REQUIRED:
            unreadable.append(name)
        elif value != blank.get(name) or name in _SHOWN:
            is_time = name in _INSTANTS and isinstance(value, int) and FIRST <= value <= LAST
            kept[name] = json_form(from_ms(value)) if is_time else msgspec.to_builtins(value)
    return kept, tuple(unreadable)


_REQUIRED = ("task", "trigger", "payload")
_SHOWN = ("tenant", "name", "id", "task", "state", "queue")
