"""``app.schedules``: make, look at, change, pause, move, trigger and delete schedules."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, TypeAlias, Unpack, get_args
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from evenbeat import views
from evenbeat.access import Access, refuse_other, this_user
from evenbeat.errors import (
    Conflict,
    DamagedSchedule,
    InvalidValue,
    RunRefused,
    ScheduleNotFound,
    shown,
)
from evenbeat.ids import new_run_id
from evenbeat.instants import Instant, from_ms, read_instant
from evenbeat.model import (
    CatchUp,
    Execution,
    Run,
    Schedule,
    ScheduleState,
    check_name,
    check_one_of,
    check_run,
    from_json,
    is_name,
)
from evenbeat.moments import Moment, read_moment
from evenbeat.options import (
    NEW_SCHEDULE,
    SCHEDULE,
    NewScheduleOptions,
    ScheduleOptions,
    read_schedule_fields,
    refuse_unknown,
)
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import (
    Active,
    Planned,
    coming,
    may_be_stuck,
    needs_active,
    trigger_of,
)
from evenbeat.stores.base import RunQuery, ScheduleQuery, Write, check_limit
from evenbeat.tasks import Call, Task
from evenbeat.triggers import Trigger, check_trigger, parse_trigger
from evenbeat.twins import twin
from evenbeat.views import RunInfo, ScheduleHistory, ScheduleInfo, SkippedInfo

# A write loses against another one only while that one wins: so many in a row mean a fault.
_TRIES = 50
_PAGE = 500

# Inside the class, ``list`` is a method.
Moments: TypeAlias = list[datetime]
Ledger: TypeAlias = list[SkippedInfo]
Histories: TypeAlias = list[ScheduleHistory]
Infos: TypeAlias = list[ScheduleInfo]

_log = logging.getLogger("evenbeat.schedules")


class ScheduleChanges(ScheduleOptions, total=False):
    """What ``update`` may change."""

    task: Task[..., Any] | Call | str
    trigger: Trigger | str
    payload: Mapping[str, Any] | None


class Schedules:
    """The schedules of a scheduler. Each call is one atomic step; ``a…`` twins are awaited.

    ``tenant`` is the scheduler's own unless another one is named.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    def add(
        self,
        name: str,
        trigger: Trigger | str,
        task: Task[..., Any] | Call | str,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        start_at: Moment | None = None,
        run_now: bool = False,
        **options: Unpack[NewScheduleOptions],
    ) -> ScheduleInfo:
        """Make a schedule. A name that is taken is an error (``ScheduleExists``).

        It first runs at the next tick, not before ``start_at``, which is also the phase of an interval;
        ``run_now`` asks for one run at once besides. With ``paused=True`` it waits to be resumed.
        """
        wanted = self._wanted(name, trigger, task, payload, tenant, options)
        return self._create(wanted, self._start(start_at, wanted), run_now, changes.create)

    def declare(
        self,
        name: str,
        trigger: Trigger | str,
        task: Task[..., Any] | Call | str,
        payload: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        start_at: Moment | None = None,
        run_now: bool = False,
        **options: Unpack[NewScheduleOptions],
    ) -> ScheduleInfo:
        """Have a schedule be so: made if it is not there, changed if this says something else than before.

        What was edited by hand since then stays, as a pause does, until the declaration itself changes;
        ``reset`` takes such edits back. A trigger that means the same keeps the next tick. ``start_at``,
        ``run_now``, ``paused`` and ``note`` count only when it is made.
        """
        wanted = self._wanted(name, trigger, task, payload, tenant, options)
        decorated = self._access.tasks.get(name)
        if decorated is not None and decorated.trigger is not None and wanted.task != name:
            # Each would take back what the other one says whenever a node starts.
            raise InvalidValue(
                f"name {shown(name)} is that of a task with a schedule of its own", field="name", value=name,
                hint="give this schedule, or the task, another name",
            )  # fmt: skip
        return self._declare(wanted, self._start(start_at, wanted), run_now)

    def declare_task(self, task: Task[..., Any]) -> ScheduleInfo:
        """Declare the schedule that a task was decorated with. A node does so when it starts."""
        assert task.trigger is not None
        wanted = self._wanted(task.name, task.trigger, task, None, None, task.policies)
        info = self._declare(replace(wanted, managed_by="code"), None, run_now=False)
        if info.edited:
            _log.warning(
                "a schedule was edited by hand, and stays so until its definition in the code changes; "
                f"to take the edit back: evenbeat schedules reset {info.name}",
                extra={"schedule_id": info.name, "tenant": info.tenant, "code_says": info.edited},
            )
        return info

    def get(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """The schedule of that name; ``ScheduleNotFound`` if there is none."""
        return self._infos([self._present(name, self._access.tenant_of(tenant))])[0]

    def list(
        self,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        state: ScheduleState | None = None,
        task: Task[..., Any] | str | None = None,
        limit: int | None = None,
    ) -> list[ScheduleInfo]:
        """The schedules in the order of tenant and name; deleted ones only if their state is asked for."""
        query = ScheduleQuery(
            tenant=None if all_tenants else self._access.tenant_of(tenant),
            task=task.name if isinstance(task, Task) else task,
            limit=_PAGE if limit is None else min(check_limit(limit), _PAGE),
        )
        if state is not None:
            check_one_of("state", state, get_args(ScheduleState))
            query = replace(query, states=(state,))
        found: list[ScheduleInfo] = []
        while True:
            page = self._access.store().find_schedules(query)
            found += self._infos(page.items)
            if page.cursor is None or (limit is not None and len(found) >= limit):
                return found[:limit]
            query = replace(query, cursor=page.cursor)

    def next_run(self, name: str, *, tenant: str | None = None) -> datetime | None:
        """When it runs next; None while nothing is to come or it is paused without an end."""
        schedule = self.get(name, tenant=tenant)
        waiting = schedule.state == "paused" and schedule.paused_until is None
        return None if waiting else schedule.next_run

    def preview(
        self,
        schedule: Trigger | str,
        count: int = 5,
        *,
        since: datetime | None = None,
        tenant: str | None = None,
    ) -> Moments:
        """The coming ticks of a trigger, or of the schedule of that name: the real ones, not yet fired. They
        fire later if the schedule has a spread.

        A text that can't be a name is a trigger's: ``preview("every 10m")``.
        """
        now = self._access.store().now()
        if isinstance(schedule, str) and not is_name(schedule):
            schedule = parse_trigger(schedule)
        if isinstance(schedule, Trigger):
            trigger, first = schedule.bind("preview", now), None
        else:
            row = self._present(schedule, self._access.tenant_of(tenant))
            trigger, first = trigger_of(row), coming(row)
            if first is None:
                return []
        if since is not None:
            now, first = read_instant(since, "since"), None
        if first is None:
            first = trigger.next_ms(now)
        ticks = _ticks(trigger, first)
        return [from_ms(tick, trigger.tzinfo) for tick in islice(ticks, count)]

    def pause(
        self,
        name: str,
        note: str = "",
        *,
        until: Moment | None = None,
        by: str | None = None,
        cancel_queued: bool = False,
        tenant: str | None = None,
    ) -> ScheduleInfo:
        """No ticks from now on, until it is resumed or ``until`` comes; they are recorded as skipped, also
        those that are due and not fired yet.

        Runs that are queued already still run, unless ``cancel_queued`` ends them; those that a worker has
        taken go on, begun or not: ``runs.cancel_all(schedule=…)`` asks them to stop. ``by`` says who paused
        it (the user of this process).
        """
        actor = this_user() if by is None else by

        def paused(row: Schedule, now: Instant, _: tuple[Active, ...]) -> Planned | None:
            end = None if until is None else read_moment(until, "until", now)
            if end is not None and end <= now:
                raise InvalidValue(
                    f"until {shown(until)} is over already", field="until", value=until,
                    hint='give a time to come, or how long, like "2h"',
                )  # fmt: skip
            return changes.pause(row, now, note, end, actor)

        info = self._change(name, tenant, paused, starts_nothing=True)
        if cancel_queued:
            self._cancel_queued(info.tenant, name)
        return info

    def _cancel_queued(self, tenant: str, name: str) -> None:
        store = self._access.store()
        query = RunQuery(tenant=tenant, schedule=name, states=("queued",), limit=_PAGE)
        while True:
            waiting = store.find_runs(query).items
            wishes = [attempts.cancel(run, store.now(), uuid4().hex) for run in waiting]
            # A run that was claimed in between is not queued any more.
            if not any(store.settle_runs([wish for wish in wishes if wish is not None])):
                return

    def resume(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """Ticks again, from the next one on. No harm if it is not paused."""
        return self._change(name, tenant, changes.resume)

    def reschedule(self, name: str, at: Moment, *, tenant: str | None = None) -> ScheduleInfo:
        """Move the next tick, and it alone: those after it come as the trigger says."""

        def moved(row: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned | None:
            tick = read_moment(at, "at", now)
            if tick < now:
                raise InvalidValue(
                    f"at {shown(at)} is over already", field="at", value=at,
                    hint="give a time to come; trigger() runs it now",
                )  # fmt: skip
            return changes.reschedule(row, tick, now, active)

        return self._change(name, tenant, moved)

    def update(
        self, name: str, *, tenant: str | None = None, **changed: Unpack[ScheduleChanges]
    ) -> ScheduleInfo:
        """Change some of what was said about a schedule; the rest, and its pause, stay."""
        refuse_unknown(changed, (*SCHEDULE, "task", "trigger", "payload"), "a schedule")

        def updated(row: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned | None:
            return changes.change(row, self._wishes(row, dict(changed)), now, active)

        return self._change(name, tenant, updated)

    def reset(self, name: str, *, tenant: str | None = None) -> ScheduleInfo:
        """Take edits by hand back: the schedule as ``declare``, or the code, said it last."""
        return self._change(name, tenant, changes.reset)

    def delete(self, name: str, *, tenant: str | None = None) -> None:
        """Delete a schedule; its runs and their history stay. ``ScheduleNotFound`` if there is none."""
        self._change(name, tenant, lambda row, now, _: changes.delete(row, now), starts_nothing=True)

    def trigger(
        self,
        name: str,
        payload: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002  # the run's id: what everybody calls it
        tenant: str | None = None,
    ) -> RunInfo:
        """One run at once, beside the ticks: the next tick stays where it is.

        ``RunRefused`` if the schedule's overlap policy has no room for it now. With an ``id`` of your own
        it can be repeated after a lost answer: a run of this schedule that is there already is what you get.
        ``RunExists`` if it is another's.
        """
        # Without one it is the schedule's own, which was checked when it was said.
        row = None if payload is None else self._present(name, self._access.tenant_of(tenant))
        text = None if row is None else self._access.call(row.task, payload)[1]
        return self._trigger(name, text, id, tenant)

    def _trigger(self, name: str, payload: str | None, run_id: str | None, tenant: str | None) -> RunInfo:
        """With a payload that is JSON text already; None: the schedule's own."""
        store = self._access.store()
        run_id = run_id or new_run_id(store.now())
        found = store.find_runs(RunQuery(ids=(run_id,))).items
        if found:
            refuse_other(found[0], tenant=self._access.tenant_of(tenant), schedule=name)
            return self._access.info(found[0])
        made: list[Run] = []

        def triggered(row: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned | None:
            planned = changes.trigger_now(row, run_id, now, active, payload)
            if planned is None:
                raise RunRefused(
                    f"schedule {name} has {len(active)} active run(s), and its policies (overlap="
                    f"{row.overlap}, max_concurrent={row.max_concurrent}) leave no room for another",
                    subject=name,
                )
            made[:] = [check_run(run) for run in planned.runs]
            return planned

        self._change(name, tenant, triggered)
        return self._access.info(made[0])

    def skipped(self, name: str, limit: int = 100, *, tenant: str | None = None) -> Ledger:
        """The ledger: which ticks did not become runs of their own, and why; the newest first."""
        rows = self._access.store().find_skipped(self._access.tenant_of(tenant), name, limit)
        if not rows:
            self._known(name, self._access.tenant_of(tenant))
        return [views.skipped_info(row) for row in rows]

    def history(self, name: str, *, tenant: str | None = None) -> ScheduleHistory:
        """How often it ran, when last, and with what error: also of runs whose records are purged."""
        key = (self._access.tenant_of(tenant), name)
        figures = self.histories([key])[0]
        if figures.run_count == 0:
            self._known(name, key[0])
        return figures

    def histories(self, schedules: Sequence[tuple[str, str]]) -> Histories:
        """``history`` of many, by (tenant, name), in this order."""
        return [views.history(figures) for figures in self._access.store().statistics(schedules)]

    aadd = twin(add)
    adeclare = twin(declare)
    aget = twin(get)
    alist = twin(list)  # noqa: A003  # the method, not the type
    anext_run = twin(next_run)
    apreview = twin(preview)
    apause = twin(pause)
    aresume = twin(resume)
    areschedule = twin(reschedule)
    aupdate = twin(update)
    areset = twin(reset)
    adelete = twin(delete)
    atrigger = twin(trigger)
    askipped = twin(skipped)
    ahistory = twin(history)
    ahistories = twin(histories)

    def _wanted(
        self,
        name: str,
        trigger: Trigger | str,
        task: Task[..., Any] | Call | str,
        payload: Mapping[str, Any] | None,
        tenant: str | None,
        options: NewScheduleOptions,
    ) -> Schedule:
        refuse_unknown(options, NEW_SCHEDULE, "a schedule")
        is_paused, note = options.get("paused", False), options.get("note", "")
        if note and not is_paused:
            raise InvalidValue(
                f"note {shown(note)} says why a schedule is paused, and it is not", field="note", value=note,
                hint="add paused=True, or use description",
            )  # fmt: skip
        task_name, text, local = self._access.call(task, payload)
        fields: dict[str, Any] = {} if local is None else {"queue": local.queue, "priority": local.priority}
        base = Execution() if local is None else local.execution
        fields |= read_schedule_fields(options, base, CatchUp())
        return Schedule(
            tenant=self._access.tenant_of(tenant),
            name=name,
            task=task_name,
            trigger=str(check_trigger(trigger, "trigger")),
            payload=text,
            state="paused" if is_paused else "active",
            pause_note=note,
            paused_by=this_user() if is_paused else "",
            **fields,
        )

    def _wishes(self, row: Schedule, changed: dict[str, Any]) -> dict[str, Any]:
        wishes: dict[str, Any] = {}
        if "trigger" in changed:
            wishes["trigger"] = str(check_trigger(changed["trigger"], "trigger"))
        if "task" in changed or "payload" in changed:
            task = changed.get("task", row.task)
            says_payload = "payload" in changed or isinstance(task, Call)
            payload = changed.get("payload") if says_payload else from_json(row.payload)
            wishes["task"], text, _ = self._access.call(task, payload)
            if says_payload:
                wishes["payload"] = text
        return wishes | read_schedule_fields(changed, row.execution, row.catch_up)

    def _start(self, start_at: Moment | None, wanted: Schedule) -> Instant | None:
        """Where only a wall clock is given, it is that of the trigger."""
        if start_at is None:
            return None
        return read_moment(
            start_at, "start_at", self._access.store().now(), parse_trigger(wanted.trigger).tzinfo
        )

    def _create(
        self,
        wanted: Schedule,
        start: Instant | None,
        run_now: bool,
        decide: Callable[[Schedule, Instant, Schedule | None, Instant | None], Planned | None],
    ) -> ScheduleInfo:
        check_name(wanted.name, "name")
        run_id = new_run_id(self._access.store().now())
        mark = secrets.randbits(31)

        def decided(previous: Schedule | None, now: Instant) -> Planned | None:
            planned = decide(wanted, now, previous, start)
            fresh = previous is None or previous.state == "deleted"
            if planned is None or not fresh:
                return planned
            # Two who make the same schedule in the same millisecond write the same row, and a store takes the
            # second for a repetition of the first: only one of them may be told that it is new.
            marked = replace(planned.schedule, fire_seq=planned.schedule.fire_seq + mark)
            planned = planned._replace(schedule=marked)
            if not run_now:
                return planned
            # The same step: a schedule that was made to run at once does, or was not made.
            # Runs of a deleted namesake may still be active.
            first = changes.trigger_now(planned.schedule, run_id, now, self._active(planned.schedule))
            if first is None:
                raise RunRefused(
                    f"run_now: runs of an earlier schedule {wanted.name} are still active, and overlap="
                    f"{wanted.overlap} leaves no room; make it without run_now",
                    subject=wanted.name,
                )
            return planned._replace(schedule=first.schedule, runs=planned.runs + first.runs)

        return self._write(wanted.tenant, wanted.name, decided)

    def _declare(self, wanted: Schedule, start: Instant | None, run_now: bool) -> ScheduleInfo:
        dropped: dict[str, Any] = {}

        def declared(
            wanted: Schedule, now: Instant, previous: Schedule | None, start: Instant | None
        ) -> Planned | None:
            active = () if previous is None else self._active(previous)
            planned = changes.declare(wanted, now, previous, active, start)
            dropped.clear()
            if planned is not None and previous is not None and not previous.damage:
                with suppress(InvalidValue, msgspec.MsgspecError):  # what was declared is damaged: so be it
                    dropped.update({name: edit.present for name, edit in changes.edits(previous).items()})
            return planned

        info = self._create(wanted, start, run_now, declared)
        if dropped:
            _log.warning(
                "the definition of a schedule changed in the code, which replaces what was edited by hand",
                extra={"schedule_id": info.name, "tenant": info.tenant, "replaced": dropped},
            )
        return info

    def _change(
        self,
        name: str,
        tenant: str | None,
        decide: Callable[[Schedule, Instant, tuple[Active, ...]], Planned | None],
        *,
        starts_nothing: bool = False,
    ) -> ScheduleInfo:
        """``starts_nothing``: nobody has to know the active runs. Without that question a write gets through
        beside nodes that fire the schedule every few milliseconds."""
        owner = self._access.tenant_of(tenant)
        check_name(name, "name")

        def decided(row: Schedule | None, now: Instant) -> Planned | None:
            if row is None:
                raise self._not_found(name, owner)
            return decide(row, now, () if starts_nothing else self._active(row))

        return self._write(owner, name, decided)

    def _write(
        self, tenant: str, name: str, decide: Callable[[Schedule | None, Instant], Planned | None]
    ) -> ScheduleInfo:
        """Read, decide, write if nothing happened in between; else again, with what happened."""
        store = self._access.store()
        row = self._access.row(tenant, name)
        tries = 0
        while tries < _TRIES:
            planned = decide(row, store.now())
            if planned is None:
                assert row is not None
                return self._infos([row])[0]
            written = store.put_schedules([Write(planned, None if row is None else row.version)])[0]
            if written.accepted:
                store.hint()
                if not planned.unfinished:
                    self._forget_quarantine(row)
                    # Of a new one there is nothing to be known yet.
                    return (
                        views.schedule_info(planned.schedule)
                        if row is None
                        else self._infos([planned.schedule])[0]
                    )
            elif row is not None and row.damage and written.current is None:
                raise DamagedSchedule(tenant, name, row.damage)  # the database can't even write it anew
            else:
                tries += 1
            row = written.current
        raise Conflict(tenant, name)

    def _forget_quarantine(self, before: Schedule | None) -> None:
        """Drop the note on a row that could not be read, now that it was written anew."""
        if before is None or not (before.damage or (before.state == "active" and before.wake_at is None)):
            return
        note = self._access.store().get_record("quarantine", *before.key)
        if note is not None:
            self._access.store().delete_record("quarantine", *before.key, note.version)

    def _infos(self, rows: Sequence[Schedule]) -> Infos:
        """Rows as users see them, with what other tables know of them."""
        figures = self._access.store().statistics([row.key for row in rows])
        notes: dict[tuple[str, str], str] = {}
        # All but always no row is late, and nobody has to be asked why.
        if any(may_be_stuck(row) for row in rows):
            for kind in ("deferred", "quarantine"):
                for record in self._access.store().find_records(kind):
                    notes[record.tenant, record.key] = record.body
        return [
            views.schedule_info(row, known.last_run, notes.get(row.key) if may_be_stuck(row) else None)
            for row, known in zip(rows, figures, strict=True)
        ]

    def _present(self, name: str, tenant: str) -> Schedule:
        row = self._known(name, tenant)
        if row.state == "deleted":
            raise self._not_found(name, tenant)
        return row

    def _known(self, name: str, tenant: str) -> Schedule:
        """Its row, also if it was deleted."""
        row = self._access.row(tenant, name)
        if row is None:
            raise self._not_found(name, tenant)
        return row

    def _not_found(self, name: str, tenant: str) -> ScheduleNotFound:
        task = self._access.tasks.get(name)
        decorated = task is not None and task.trigger is not None and tenant == self._access.tenant
        hint = "it is declared when a node starts, or by app.declare_tasks()" if decorated else None
        return ScheduleNotFound(tenant, name, hint)

    def trigger_again(self, run: Run) -> RunInfo:
        """For ``runs.retry``: a new run with the payload of this one, within the bounds of its schedule."""
        assert run.schedule is not None
        return self._trigger(run.schedule, run.payload, None, run.tenant)

    def _active(self, row: Schedule) -> tuple[Active, ...]:
        """Its active runs, if its policies ask for them. Read after the row: whoever adds one changes it."""
        if not needs_active(row):
            return ()
        query = RunQuery(tenant=row.tenant, schedule=row.name, states=("queued", "running"), limit=_PAGE)
        found: list[Active] = []
        while True:
            page = self._access.store().find_runs(query)
            found += (Active(run.id, run.state, run.cancel_requested) for run in page.items)
            if page.cursor is None:
                return tuple(found)
            query = replace(query, cursor=page.cursor)


def _ticks(trigger: Trigger, first: Instant | None) -> Iterator[Instant]:
    while first is not None:
        yield first
        first = trigger.next_ms(first)
