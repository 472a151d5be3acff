"""The rows of schedules: read, decide, compare-and-set. Shared by the façade's parts, not for users."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from evenbeat.app.audit import audited
from evenbeat.app.dependencies import by_waiting_successes, link
from evenbeat.app.quotas import Quotas
from evenbeat.app.schedule_search import similar_schedules
from evenbeat.app.session import AppSession, refuse_other
from evenbeat.core.audits import AuditAction
from evenbeat.core.checks import check_name, check_run, is_name
from evenbeat.core.ids import making_token, new_run_id
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Statistics
from evenbeat.core.results import Run, Schedule
from evenbeat.errors import DamagedSchedule, RunRefused, ScheduleChanged, ScheduleConflict, ScheduleNotFound
from evenbeat.node.calendar_copies import calendar_times, copies_for, replan
from evenbeat.node.presence import live_nodes
from evenbeat.observe.phrases import count
from evenbeat.observe.tracing import traceparent
from evenbeat.observe.views import schedule_view
from evenbeat.rules import auditing, changes
from evenbeat.rules.dependencies import predecessors
from evenbeat.rules.firing import Active, Planned, may_be_stuck, needs_active
from evenbeat.rules.refusals import NOTE, is_refusal
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store, Write
from evenbeat.stores.pages import every_run

# A write loses only while another one wins: losing so often in a row means a fault.
_TRIES = 50
_PAGE = 500

IN_CODE = "it is in the code only: durable=True gives it a row"
DID_YOU_MEAN = "did you mean"
_NOBODY_KNOWS = "it may be in the code of nodes only, and no node is alive now"

Describe: TypeAlias = Callable[[ScheduleRecord | None, Planned], auditing.Change]
"""Returns what a plan changes about a row, for the audit."""


def audited_write(
    store: Store, row: ScheduleRecord | None, planned: Planned, now: Instant, describe: Describe
) -> Write:
    """Return the write of a plan, together with its entry in the audit, and with the successes of another
    schedule that the change keeps from firing.

    A part of a long plan has no entry: the last part carries the change.
    """
    planned = by_waiting_successes(store, row, planned, now)
    if not planned.unfinished:
        planned = planned._replace(records=planned.records + audited(describe(row, planned), now))
    return Write(planned, None if row is None else row.version)


class Try:
    """One round of read, decide, compare-and-set: ``row`` and ``now`` are what to decide by."""

    def __init__(
        self, rows: ScheduleRows, tenant: str, name: str, row: ScheduleRecord | None, describe: Describe
    ) -> None:
        self._rows = rows
        self._tenant = tenant
        self._name = name
        self._describe = describe
        self.row = row
        """The schedule as it was read, also if it is deleted; None if there is none."""
        self.now: Instant = rows.session.store().now()
        self.next_row: ScheduleRecord | None = None
        """The row that the next round reads, if this one did not complete the change."""
        self.is_lost = False
        """Whether another write was faster."""
        self.view: Schedule | None = None
        """The schedule as it is now, after the last write."""

    def existing(self) -> ScheduleRecord:
        """Return the row; ``ScheduleNotFound`` if there is none."""
        if self.row is None:
            raise self._rows.not_found(self._name, self._tenant)
        return self.row

    def write(self, planned: Planned | None) -> bool:
        """Write the plan unless the row has changed since it was read; None means that nothing changes.

        The entry of the audit is a part of the write. Return whether the change is complete. If not, the next
        round decides again.
        """
        if planned is None:
            self.view = self._rows.views([self.existing()])[0]
            return True
        store, row = self._rows.session.store(), self.row
        record = link(self._rows.session, planned.schedule, row)
        write = audited_write(store, row, planned, self.now, self._describe)._replace(record=record)
        written = store.put_schedules([write])[0]
        self.next_row = written.current
        if not written.accepted:
            if row is not None and row.damage and written.current is None:
                # The database can't even write the row anew.
                raise DamagedSchedule(self._tenant, self._name, row.damage)
            self.is_lost = True
            return False
        store.hint()
        if write.planned.unfinished:
            return False
        planned = planned._replace(schedule=self._rows.after_write(row, planned.schedule))
        # A new schedule has no statistics yet.
        self.view = (
            schedule_view(planned.schedule) if row is None else self._rows.views([planned.schedule])[0]
        )
        return True


def concerns_others(before: ScheduleRecord, after: ScheduleRecord) -> bool:
    """Return whether a change of a schedule also concerns schedules that it waits for, or calendars."""
    if before.calendars != after.calendars:
        return True
    return predecessors(before.trigger, before.after) != predecessors(after.trigger, after.after)


class ScheduleRows:
    """Reads and writes the rows of schedules for the parts of a scheduler."""

    def __init__(self, session: AppSession, quotas: Quotas) -> None:
        self.session = session
        self.quotas = quotas

    def tries(
        self,
        tenant: str,
        name: str,
        action: AuditAction,
        retried: RunRecord | None = None,
        *,
        if_revision: int | None = None,
    ) -> Iterator[Try]:
        """Yield rounds of a write until one of them is complete. ``action`` is its name in the audit.

        ``ScheduleChanged`` if ``if_revision`` is given and the schedule has another one, in any round until
        a part of the write is done. ``ScheduleConflict`` if other writes win too often. A plan that stopped
        at its budget goes on in the next round, and counts as progress.
        """
        check_name(name, "name")
        row = self.session.row(tenant, name)
        describe: Describe = partial(auditing.schedule_change, action)
        if retried is not None:
            describe = partial(auditing.retry_by_schedule, retried)
        losses = 0
        while losses < _TRIES:
            if if_revision is not None and row is not None and row.revision != if_revision:
                raise ScheduleChanged(tenant, name, if_revision, row.revision)
            attempt = Try(self, tenant, name, row, describe)
            yield attempt
            if attempt.is_lost:
                losses += 1
            else:
                if_revision = None
            row = attempt.next_row
        raise ScheduleConflict(tenant, name)

    def create(self, wanted: ScheduleRecord, start: Instant | None, run_now: bool) -> Schedule:
        """Create the schedule; ``ScheduleExists`` if the name is taken."""
        first = FirstWrite(self, wanted, run_now)
        for attempt in self.tries(wanted.tenant, wanted.name, "add"):
            wanted = self.with_calendars(wanted)
            planned = changes.create(wanted, attempt.now, attempt.row, start)
            if attempt.write(first.completed(planned, attempt)):
                break
        assert attempt.view is not None
        return attempt.view

    def with_calendars(self, wanted: ScheduleRecord) -> ScheduleRecord:
        """Return the schedule with copies of the calendars that its trigger names; refuse unknown ones."""
        return replace(wanted, calendars=self.copies(wanted.tenant, wanted.trigger))

    def changed(self, row: ScheduleRecord, fields: Mapping[str, Any], now: Instant) -> Planned | None:
        """Plan a change of some fields of the definition; None if they have these values already."""
        copies = self.copies(row.tenant, fields["trigger"]) if "trigger" in fields else None
        return changes.change(row, dict(fields), now, self.active(row), copies)

    def copies(self, tenant: str, trigger: str) -> str:
        """Return copies of the calendars that a trigger names. Reads nothing if all of them are built in."""
        return copies_for(self.session.store(), tenant, trigger)

    def after_write(self, before: ScheduleRecord | None, written: ScheduleRecord) -> ScheduleRecord:
        """Do what follows a write of a schedule; return the schedule as it is then."""
        self.forget_quarantine(before)
        return self._with_present_calendars(written) if written.calendars else written

    def _with_present_calendars(self, row: ScheduleRecord) -> ScheduleRecord:
        """Plan a schedule anew that was just written, if one of its calendars has changed since it was read.

        A calendar that changes later finds the schedule.
        """
        store = self.session.store()
        if not replan(store, row, lambda: calendar_times(store, row.tenant)):
            return row
        return self.session.row(row.tenant, row.name) or row

    def run_now(
        self,
        name: str,
        payload: str | None,
        run_id: str | None,
        tenant: str,
        retried: RunRecord | None = None,
    ) -> Run:
        """Add one run beside the ticks; a payload of None is the schedule's own.

        ``RunRefused`` if the schedule's policies leave no room. A run with this id that the schedule already
        has is returned as it is. ``retried`` is the run that a user retries by this one.
        """
        is_given = run_id is not None
        present = None if run_id is None else self._present(run_id, name, tenant)
        if present is not None:
            return present
        is_counted = retried is not None  # a retry is not refused
        for attempt in self.tries(tenant, name, "run_now", retried):
            run_id = run_id or new_run_id(attempt.now)
            planned = self.plan_run(attempt.existing(), run_id, attempt.now, payload)
            if not is_counted:
                self.quotas.admit_runs(tenant)
                is_counted = True
            if attempt.write(planned):
                break
        # Another call may have added a run with the same id since: then the store has kept that one.
        present = self._present(str(run_id), name, tenant) if is_given else None
        return self.session.run_view(planned.runs[0]) if present is None else present

    def plan_run(self, row: ScheduleRecord, run_id: str, now: Instant, payload: str | None = None) -> Planned:
        """Plan one run beside the ticks; ``RunRefused`` if the schedule's policies leave no room."""
        active = self.active(row)
        planned = changes.run_now(row, run_id, now, active, payload, traceparent())
        if planned is None:
            raise RunRefused(
                f"schedule {row.name} has {count(len(active), 'active run')}, and its policies (overlap="
                f"{row.overlap}, max_concurrent={row.max_concurrent}) leave no room for another",
                subject=row.name,
            )
        runs = [replace(run, claim=making_token(run.id, run.created_at)) for run in planned.runs]
        for run in runs:
            check_run(run)
        return planned._replace(runs=tuple(runs))

    def _present(self, run_id: str, name: str, tenant: str) -> Run | None:
        """Return the run of the schedule that has this id; ``RunExists`` if that is a run of another one."""
        found = self.session.store().find_runs(RunQuery(ids=(run_id,))).items
        if not found:
            return None
        refuse_other(found[0], tenant=tenant, schedule=name)
        return self.session.run_view(found[0])

    def active(self, row: ScheduleRecord) -> tuple[Active, ...]:
        """Return the active runs of a schedule, if its policies depend on them.

        Read after the row: adding a run changes the row, so a stale answer loses the compare-and-set.
        """
        if not needs_active(row):
            return ()
        query = RunQuery(
            tenant=row.tenant,
            schedule=row.name,
            states=("queued", "running"),
            without=LARGE_FIELDS,
            limit=_PAGE,
        )
        runs = every_run(self.session.store(), query)
        return tuple(Active(run.id, run.state, run.cancel_requested) for run in runs)

    def existing(self, name: str, tenant: str) -> ScheduleRecord:
        """Return the row of a schedule that is not deleted."""
        row = self.known(name, tenant)
        if row.state == "deleted":
            raise ScheduleNotFound(tenant, name)
        return row

    def known(self, name: str, tenant: str) -> ScheduleRecord:
        """Return the row of a schedule, also if it is deleted."""
        row = self.session.row(tenant, name)
        if row is None:
            raise self.not_found(name, tenant)
        return row

    def not_found(self, name: str, tenant: str) -> ScheduleNotFound:
        """Return the error about a schedule without a row; it may be in the code only."""
        task = self.session.tasks.get(name)
        if task is not None and task.is_scheduled and tenant == self.session.tenant:
            if task.durable is False:
                return ScheduleNotFound(tenant, name, IN_CODE, is_row=True)
            hint = "it is declared when a node starts, or by app.declare_tasks()"
            return ScheduleNotFound(tenant, name, hint)
        if not is_name(name):
            return ScheduleNotFound(tenant, name)
        nodes = live_nodes(self.session.store())
        if any(name in node.code_only for node in nodes) and tenant == self.session.tenant:
            return ScheduleNotFound(tenant, name, IN_CODE, is_row=True)
        if near := similar_schedules(self.session.store(), tenant, name):
            # A misspelt name is likelier than one that only nodes know.
            return ScheduleNotFound(tenant, name, f"{DID_YOU_MEAN} {' or '.join(near)}?")
        return ScheduleNotFound(tenant, name, None if nodes else _NOBODY_KNOWS, is_row=not nodes)

    def views(self, rows: Sequence[ScheduleRecord]) -> list[Schedule]:
        """Return the rows as users see them, with what other tables know of them."""
        return [schedule for schedule, _ in self.views_with_stats(rows)]

    def views_with_stats(self, rows: Sequence[ScheduleRecord]) -> list[tuple[Schedule, Statistics]]:
        """Return the rows as users see them, each with the statistics that the view was made from."""
        store = self.session.store()
        figures = store.statistics([row.key for row in rows])
        now = store.now()
        stuck = {row.key for row in rows if may_be_stuck(row, now)}
        notes: dict[tuple[str, str], str] = {}
        # Almost never is a row late, and then the notes need not be read.
        if stuck:
            for kind in (NOTE, "quarantine"):
                for record in store.find_records(kind):
                    if (record.tenant, record.key) in stuck:
                        notes[record.tenant, record.key] = record.body
        return [
            (schedule_view(row, known.last_run, notes.get(row.key)), with_refusal(known, notes.get(row.key)))
            for row, known in zip(rows, figures, strict=True)
        ]

    def forget_quarantine(self, before: ScheduleRecord | None) -> None:
        """Delete the note on a row that could not be read, now that it is written anew."""
        if before is None or not (before.damage or (before.state == "active" and before.wake_at is None)):
            return
        store = self.session.store()
        note = store.get_record("quarantine", *before.key)
        if note is not None:
            store.delete_record("quarantine", *before.key, note.version)


def with_refusal(known: Statistics, note: str | None) -> Statistics:
    """Return the statistics of a schedule whose run the database refuses now: that is its last error."""
    return known if note is None or not is_refusal(note) else replace(known, last_error=note)


class FirstWrite:
    """What the first write of a schedule adds: a mark of its own, and the run that ``run_now`` asks for."""

    def __init__(self, rows: ScheduleRows, wanted: ScheduleRecord, run_now: bool) -> None:
        self._rows = rows
        self._wanted = wanted
        # Two callers who create the same schedule in the same millisecond would write the same row, and the
        # store would take the second for a repetition of the first: only one of them may succeed.
        self._mark = secrets.randbits(31)
        self._runs_now = run_now
        self._run_id: str | None = None

    def completed(self, planned: Planned | None, attempt: Try) -> Planned | None:
        """Return the plan with these additions, if it creates the schedule."""
        previous = attempt.row
        if planned is None or not (previous is None or previous.state == "deleted"):
            return planned
        self._rows.quotas.admit_schedule(self._wanted.tenant)
        marked = replace(planned.schedule, fire_seq=planned.schedule.fire_seq + self._mark)
        planned = planned._replace(schedule=marked)
        if not self._runs_now:
            return planned
        self._run_id = self._run_id or new_run_id(attempt.now)
        # In the same write: the schedule is created together with its first run, or not at all.
        # Runs of a deleted schedule of the same name may still be active.
        active = self._rows.active(marked)
        first = changes.run_now(marked, self._run_id, attempt.now, active, trace=traceparent())
        if first is None:
            raise RunRefused(
                f"run_now: runs of an earlier schedule {self._wanted.name} are still active, and overlap="
                f"{self._wanted.overlap} leaves no room; create it without run_now",
                subject=self._wanted.name,
            )
        return planned._replace(schedule=first.schedule, runs=planned.runs + first.runs)
