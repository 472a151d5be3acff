"""``app.schedules``: create, read, change, pause, move, run and delete schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, Unpack, get_args, overload

from msgspec.structs import replace

from evenbeat.app import audit
from evenbeat.app.accounting import account_of
from evenbeat.app.acting import current_actor
from evenbeat.app.bulk import MOST_AT_ONCE
from evenbeat.app.declarations import Declarations
from evenbeat.app.definitions import ScheduleChanges, changed_fields, new_schedule, start_of, task_warnings
from evenbeat.app.explaining import explain_schedule
from evenbeat.app.rows import ScheduleRows, Try
from evenbeat.app.run_changes import cancelled_by_hand
from evenbeat.app.schedule_bulk import BulkChange, Decide
from evenbeat.app.schedule_search import ScheduleFilter, ScheduleSearch, read_states
from evenbeat.app.session import AppSession
from evenbeat.core.audits import AuditAction, AuditEntry
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import is_name
from evenbeat.core.explanations import Account, Why
from evenbeat.core.ids import new_run_id
from evenbeat.core.instants import Instant, Moment, from_ms, read_instant, read_moment
from evenbeat.core.options import SCHEDULE
from evenbeat.core.records import ScheduleState
from evenbeat.core.results import BulkResult, Run, Schedule, ScheduleStats, ScheduleWarning, SkippedTicks
from evenbeat.errors import InvalidValue, shown
from evenbeat.observe import views
from evenbeat.observe.trigger_explanations import check_count, coming_ticks
from evenbeat.rules import changes
from evenbeat.rules.ticks import trigger_of, upcoming_tick
from evenbeat.stores.base import VALUES, RunQuery, ScheduleQuery, check_limit
from evenbeat.tasks.options import NewScheduleOptions, refuse_unknown
from evenbeat.tasks.task import Call, Task
from evenbeat.triggers import Trigger, parse_trigger

_PAGE = 500

# Inside the class, ``list`` is a method.
Moments: TypeAlias = list[datetime]
Ledger: TypeAlias = list[SkippedTicks]
StatsList: TypeAlias = list[ScheduleStats]
SchedulesWithStats: TypeAlias = list[tuple[Schedule, ScheduleStats]]
Entries: TypeAlias = list[AuditEntry]
# Not a Sequence: a str is a sequence of str.
StatsOf: TypeAlias = list[str] | list[Schedule] | tuple[str | Schedule, ...]


class Schedules:
    """The schedules of a scheduler. Each call is one atomic step; the ``a…`` twins are awaited.

    ``tenant`` defaults to the scheduler's own. Changes take ``if_revision``, the revision of the schedule as
    the caller read it: ``ScheduleChanged`` if it has another one by now.
    """

    def __init__(self, session: AppSession, rows: ScheduleRows, declarations: Declarations) -> None:
        self._session = session
        self._rows = rows
        self._declarations = declarations

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
    ) -> Schedule:
        """Create a schedule; ``ScheduleExists`` if the name is taken.

        Its first run is at the next tick, not before ``start_at``, which is also the phase of an interval.
        ``run_now`` adds one run at once. With ``paused=True`` the schedule waits until it is resumed. If
        neither the app nor a live node has the task, the result's ``warnings`` say so.
        """
        wanted = new_schedule(self._session, name, trigger, task, payload, tenant, options)
        warnings = task_warnings(self._session, wanted.task)
        made = self._rows.create(wanted, start_of(self._session, start_at, wanted), run_now)
        return replace(made, warnings=warnings)

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
    ) -> Schedule:
        """Create the schedule, or update it to match if this declaration differs from the last one.

        Edits by hand stay, as a pause does, until the declaration itself changes; ``reset`` undoes them. A
        trigger that means the same keeps the next tick. ``start_at``, ``run_now``, ``paused`` and ``note``
        only apply when the schedule is created.
        """
        wanted = new_schedule(self._session, name, trigger, task, payload, tenant, options)
        decorated = self._session.tasks.get(name)
        if decorated is not None and decorated.trigger is not None and wanted.task != name:
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

    def get(self, name: str, *, tenant: str | None = None) -> Schedule:
        """Return the schedule of that name; ``ScheduleNotFound`` if there is none."""
        return self._rows.views([self._rows.existing(name, self._session.tenant_of(tenant))])[0]

    def get_with_stats(self, keys: Sequence[tuple[str, str]]) -> SchedulesWithStats:
        """Return schedules by (tenant, name), each with its statistics, in this order, also deleted ones;
        without those that do not exist."""
        query = ScheduleQuery(keys=tuple(keys), states=get_args(ScheduleState), limit=max(1, len(keys)))
        rows = {row.key: row for row in self._session.store().find_schedules(query).items}
        found = self._rows.views_with_stats([rows[key] for key in keys if key in rows])
        return [(schedule, views.stats_view(figures)) for schedule, figures in found]

    def list(
        self,
        *,
        tenant: str | None = None,
        all_tenants: bool = False,
        state: ScheduleState | None = None,
        task: Task[..., Any] | str | None = None,
        text: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        managed_by: str | None = None,
        failing: bool | None = None,
        late: bool | None = None,
        limit: int | None = None,
    ) -> list[Schedule]:
        """Return schedules in the order of tenant and name; deleted ones only if ``state`` asks for them.

        ``text`` is a part of the name, the task, a tag or the description, in upper or lower case.
        ``managed_by`` is ``code`` for schedules of decorated tasks, else ``api``. A schedule is ``failing``
        if its last run failed, and ``late`` if it should have fired more than 30 s ago.
        """
        chosen = ScheduleFilter(
            text=text,
            task=task,
            queue=queue,
            tag=tag,
            managed_by=managed_by,
            failing=failing,
            late=late,
            tenant=tenant,
            all_tenants=all_tenants,
        )
        search = ScheduleSearch(self._session, chosen, read_states(state))
        found: list[Schedule] = []
        for page in search.pages(None if limit is None else check_limit(limit)):
            found += self._rows.views(page)
            if limit is not None and len(found) >= limit:
                break
        return found[:limit]

    def next_run(self, name: str, *, tenant: str | None = None) -> datetime | None:
        """Return when the schedule runs next; None if it has no tick to come or is paused without an end."""
        schedule = self.get(name, tenant=tenant)
        is_held = schedule.state == "paused" and schedule.paused_until is None
        return None if is_held else schedule.next_run

    def preview(
        self,
        schedule: Trigger | str,
        count: int = 5,
        *,
        since: datetime | None = None,
        tenant: str | None = None,
    ) -> Moments:
        """Return the coming ticks of a trigger, or of the schedule of that name, without firing them.

        With a spread, runs start up to that much later. A text that can't be a name is read as a trigger:
        ``preview("every 10m")``. ``count`` is at most 1,000; ticks more than 100 years after the
        first one are left out.
        """
        check_count(count)
        now = self._session.store().now()
        if isinstance(schedule, str) and not is_name(schedule):
            schedule = parse_trigger(schedule)
        if isinstance(schedule, Trigger):
            trigger, first = schedule.bind("preview", now), None
        else:
            row = self._rows.existing(schedule, self._session.tenant_of(tenant))
            trigger, first = trigger_of(row), upcoming_tick(row)
            if first is None:
                return []
        if since is not None:
            now, first = read_instant(since, "since"), None
        if first is None:
            first = trigger.next_ms(now)
        return [from_ms(tick, trigger.tzinfo) for tick in coming_ticks(trigger, first, count)]

    def pause(
        self,
        name: str,
        note: str = "",
        *,
        until: Moment | None = None,
        cancel_queued: bool = False,
        tenant: str | None = None,
        if_revision: int | None = None,
    ) -> Schedule:
        """Pause the schedule until it is resumed or ``until`` comes. The ledger records its ticks as skipped,
        also those that are due and not fired yet.

        Queued runs still run; ``cancel_queued`` cancels them. A run that a worker has claimed goes on, begun
        or not: ``runs.cancel_all(schedule=…)`` asks it to stop.
        """
        actor = current_actor().name
        tenant = self._session.tenant_of(tenant)
        for attempt in self._rows.tries(tenant, name, "pause", if_revision=if_revision):
            end = _end_of_pause(until, attempt.now)
            # A pause starts no run, so it need not read the active ones: without that query the write wins
            # against nodes that fire the schedule every few milliseconds.
            if attempt.write(changes.pause(attempt.existing(), attempt.now, note, end, actor)):
                break
        if cancel_queued:
            self._cancel_queued(tenant, name)
        return _written(attempt.view)

    def _tries(
        self, name: str, action: AuditAction, tenant: str | None, if_revision: int | None
    ) -> Iterator[Try]:
        return self._rows.tries(self._session.tenant_of(tenant), name, action, if_revision=if_revision)

    def _cancel_queued(self, tenant: str, name: str) -> None:
        store = self._session.store()
        query = RunQuery(tenant=tenant, schedule=name, states=("queued",), without=VALUES, limit=_PAGE)
        while True:
            queued = store.find_runs(query).items
            cancels = [cancelled_by_hand(run, store.now()) for run in queued]
            # A run that a worker claimed meanwhile is not queued any more.
            if not any(store.settle_runs([cancel for cancel in cancels if cancel is not None])):
                return

    def resume(self, name: str, *, tenant: str | None = None, if_revision: int | None = None) -> Schedule:
        """End the pause: the next tick fires again. Does nothing if the schedule is not paused."""
        for attempt in self._tries(name, "resume", tenant, if_revision):
            row = attempt.existing()
            if attempt.write(changes.resume(row, attempt.now, self._rows.active(row))):
                break
        return _written(attempt.view)

    def reschedule(
        self, name: str, at: Moment, *, tenant: str | None = None, if_revision: int | None = None
    ) -> Schedule:
        """Move the next tick, and only that one; later ticks follow the trigger."""
        for attempt in self._tries(name, "reschedule", tenant, if_revision):
            row = attempt.existing()
            tick = read_moment(at, "at", attempt.now)
            if tick < attempt.now:
                raise InvalidValue(
                    f"at {shown(at)} is in the past",
                    field="at",
                    value=at,
                    hint="give a time to come, or run it now",
                )
            if attempt.write(changes.reschedule(row, tick, attempt.now, self._rows.active(row))):
                break
        return _written(attempt.view)

    def update(
        self,
        name: str,
        *,
        tenant: str | None = None,
        if_revision: int | None = None,
        **changed: Unpack[ScheduleChanges],
    ) -> Schedule:
        """Change some fields of a schedule; the others, and its pause, stay."""
        refuse_unknown(changed, (*SCHEDULE, "task", "trigger", "payload"), "a schedule")
        warnings: tuple[ScheduleWarning, ...] = ()
        for attempt in self._tries(name, "update", tenant, if_revision):
            row = attempt.existing()
            fields = changed_fields(self._session, row, changed)
            if "task" in changed:
                warnings = task_warnings(self._session, fields["task"])
            if attempt.write(changes.change(row, fields, attempt.now, self._rows.active(row))):
                break
        return replace(_written(attempt.view), warnings=warnings)

    def reset(self, name: str, *, tenant: str | None = None, if_revision: int | None = None) -> Schedule:
        """Undo edits by hand: the schedule becomes what ``declare``, or the code, last defined."""
        for attempt in self._tries(name, "reset", tenant, if_revision):
            row = attempt.existing()
            if attempt.write(changes.reset(row, attempt.now, self._rows.active(row))):
                break
        return _written(attempt.view)

    def delete(self, name: str, *, tenant: str | None = None, if_revision: int | None = None) -> None:
        """Delete a schedule; its runs and their history stay. ``ScheduleNotFound`` if there is none."""
        for attempt in self._tries(name, "delete", tenant, if_revision):
            if attempt.write(changes.delete(attempt.existing(), attempt.now)):
                break

    def run_now(
        self,
        name: str,
        payload: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        tenant: str | None = None,
    ) -> Run:
        """Add one run at once, beside the ticks: the next tick stays where it is.

        ``RunRefused`` if the schedule's overlap policy leaves no room for it now. With an ``id`` of your own
        the call can be repeated after a lost reply: it then returns the run that is there already.
        ``RunExists`` if that run belongs to something else.
        """
        tenant = self._session.tenant_of(tenant)
        # The schedule's own payload was checked when it was set.
        row = None if payload is None else self._rows.existing(name, tenant)
        text = None if row is None else self._session.call(row.task, payload)[1]
        return self._rows.run_now(name, text, id, tenant)

    def pause_all(
        self,
        note: str = "",
        *,
        until: Moment | None = None,
        state: Literal["active", "paused"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[ScheduleFilter],
    ) -> BulkResult[Schedule]:
        """``pause`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` is ``paused``: that gives them another note or end. A schedule that
        can't be paused stays as it is, and the result names it with the reason. ``dry_run`` only counts.
        """
        actor = current_actor().name
        end = _end_of_pause(until, self._session.store().now())
        return self._bulk(
            "pause",
            read_states(state, ("active", "paused")) or ("active",),
            lambda row, now: changes.pause(row, now, note, end, actor),
            chosen,
        ).run(limit, dry_run=dry_run)

    def resume_all(
        self,
        *,
        state: Literal["paused"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[ScheduleFilter],
    ) -> BulkResult[Schedule]:
        """``resume`` all paused schedules that match the filter, as in ``list``, up to ``limit``."""
        return self._bulk(
            "resume",
            read_states(state, ("paused",)) or ("paused",),
            lambda row, now: changes.resume(row, now, self._rows.active(row)),
            chosen,
        ).run(limit, dry_run=dry_run)

    def run_all(
        self,
        *,
        state: Literal["active", "paused", "finished"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[ScheduleFilter],
    ) -> BulkResult[Schedule]:
        """``run_now`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` names another state. Each call adds a run to each of them.
        """
        return self._bulk(
            "run_now",
            read_states(state, ("active", "paused", "finished")) or ("active",),
            lambda row, now: self._rows.plan_run(row, new_run_id(now), now),
            chosen,
        ).run(limit, dry_run=dry_run)

    def delete_all(
        self,
        *,
        state: Literal["active", "paused", "finished"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[ScheduleFilter],
    ) -> BulkResult[Schedule]:
        """``delete`` all schedules that match the filter, as in ``list``, up to ``limit``."""
        return self._bulk(
            "delete", read_states(state, ("active", "paused", "finished")), changes.delete, chosen
        ).run(limit, dry_run=dry_run)

    def _bulk(
        self,
        action: AuditAction,
        states: tuple[ScheduleState, ...] | None,
        decide: Decide,
        chosen: ScheduleFilter,
    ) -> BulkChange:
        return BulkChange(self._rows, ScheduleSearch(self._session, chosen, states), action, decide)

    def history(self, name: str, limit: int = 100, *, tenant: str | None = None) -> Entries:
        """Return who changed the schedule by hand, and what, the newest first: see ``app.audit``."""
        owner = self._session.tenant_of(tenant)
        entries = audit.history(self._session, "schedule", name, owner, limit)
        if not entries:
            self._rows.known(name, owner)
        return entries

    def skipped(self, name: str, limit: int = 100, *, tenant: str | None = None) -> Ledger:
        """Return the ledger: which ticks did not become runs of their own, and why; the newest first."""
        rows = self._session.store().find_skipped(self._session.tenant_of(tenant), name, limit)
        if not rows:
            self._rows.known(name, self._session.tenant_of(tenant))
        return [views.skipped_view(row) for row in rows]

    @overload
    def stats(self, schedules: str | Schedule, *, tenant: str | None = None) -> ScheduleStats: ...
    @overload
    def stats(self, schedules: StatsOf, *, tenant: str | None = None) -> StatsList: ...

    def stats(
        self, schedules: str | Schedule | StatsOf, *, tenant: str | None = None
    ) -> ScheduleStats | StatsList:
        """Return how often a schedule ran, when last, and its last error; purged runs are counted, too.

        Give a name or a ``Schedule``. For a list of them, return a list in the same order.
        """
        owner = self._session.tenant_of(tenant)
        many = [schedules] if isinstance(schedules, (str, Schedule)) else schedules
        keys = [(each.tenant, each.name) if isinstance(each, Schedule) else (owner, each) for each in many]
        figures = [views.stats_view(each) for each in self._session.store().statistics(keys)]
        if not isinstance(schedules, (str, Schedule)):
            return figures
        if figures[0].run_count == 0:
            self._rows.known(keys[0][1], keys[0][0])
        return figures[0]

    def why(self, name: str, at: Moment | None = None, *, tenant: str | None = None) -> Why:
        """Return why the schedule ran, or did not run, at a time; without one, why it is as it is now.

        A text without an offset is a wall-clock time in the trigger's zone: ``"2026-03-29 02:30"``, or
        ``"02:30"``, the latest one in the past. A duration counts back from now, with a plus sign
        forward. A whole minute stands for all ticks in it.
        """
        return explain_schedule(self._session, name, at, self._session.tenant_of(tenant))

    def account(
        self,
        name: str,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        tenant: str | None = None,
    ) -> Account:
        """Return what became of each tick of the schedule from ``since`` to before ``until``.

        By default from when it got its present trigger, until now. A duration counts back from now; a text
        without an offset is a time in the trigger's zone. ``InvalidValue`` for more than 100,000 ticks,
        and for an end that is more than a year ahead.
        """
        row = self._rows.known(name, self._session.tenant_of(tenant))
        return account_of(self._session.store(), row, since, until)

    aadd = twin(add)
    adeclare = twin(declare)
    aget = twin(get)
    aget_with_stats = twin(get_with_stats)
    alist = twin(list)
    anext_run = twin(next_run)
    apreview = twin(preview)
    apause = twin(pause)
    aresume = twin(resume)
    areschedule = twin(reschedule)
    aupdate = twin(update)
    areset = twin(reset)
    adelete = twin(delete)
    arun_now = twin(run_now)
    apause_all = twin(pause_all)
    aresume_all = twin(resume_all)
    arun_all = twin(run_all)
    adelete_all = twin(delete_all)
    ahistory = twin(history)
    askipped = twin(skipped)
    astats = twin(stats)
    awhy = twin(why)
    aaccount = twin(account)


def _written(view: Schedule | None) -> Schedule:
    """Return the schedule of a write that is complete."""
    assert view is not None
    return view


def _end_of_pause(until: Moment | None, now: Instant) -> Instant | None:
    end = None if until is None else read_moment(until, "until", now)
    if end is not None and end <= now:
        raise InvalidValue(
            f"until {shown(until)} is in the past",
            field="until",
            value=until,
            hint='give a time to come, or how long, like "2h"',
        )
    return end
