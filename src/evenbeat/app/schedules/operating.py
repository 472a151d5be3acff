"""Operate a schedule, whose definition stays: pause, resume, move the next tick, run now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenbeat.app.acting import current_actor
from evenbeat.app.run_changes import cancelled_by_hand
from evenbeat.app.schedules.calls import ScheduleCalls, written
from evenbeat.app.settling import settle_by_hand
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_flag
from evenbeat.core.instants import Instant, Moment, read_moment
from evenbeat.core.results import ResumePreview, Run, Schedule
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.flows import End
from evenbeat.observe.resuming import resume_preview
from evenbeat.rules import changes
from evenbeat.stores.base import VALUES, RunQuery
from evenbeat.triggers.zones import read_zone

_PAGE = 500


class OperationCalls(ScheduleCalls):
    """Pauses, resumes, moves and runs schedules."""

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
            end = end_of_pause(until, attempt.now)
            # A pause starts no run, so it need not read the active ones: without that query the write wins
            # against nodes that fire the schedule every few milliseconds.
            if attempt.write(changes.pause(attempt.existing(), attempt.now, note, end, actor)):
                break
        if cancel_queued:
            self._cancel_queued(tenant, name)
        return written(attempt.view)

    def _cancel_queued(self, tenant: str, name: str) -> None:
        store = self._session.store()
        query = RunQuery(tenant=tenant, schedule=name, states=("queued",), without=VALUES, limit=_PAGE)
        while True:
            queued = store.find_runs(query).items
            now = store.now()
            cancels = [(run, cancelled_by_hand(run, now)) for run in queued]
            wanted = [End(run, cancel) for run, cancel in cancels if cancel is not None]
            # A run that a worker claimed meanwhile is not queued any more.
            if not any(settle_by_hand(self._session, wanted, now)):
                return

    def resume(
        self, name: str, *, catch_up: bool = False, tenant: str | None = None, if_revision: int | None = None
    ) -> Schedule:
        """End the pause: the next tick fires again. Does nothing if the schedule is not paused.

        The ledger records the ticks of the pause as skipped. With ``catch_up``, the schedule's catch-up
        policy decides about them instead, as after a time without nodes.
        """
        check_flag("catch_up", catch_up)
        for attempt in self._tries(name, "resume", tenant, if_revision):
            row = attempt.existing()
            if attempt.write(changes.resume(row, attempt.now, self._rows.active(row), catch_up=catch_up)):
                break
        return written(attempt.view)

    def preview_resume(
        self, name: str, *, catch_up: bool = False, tz: str | None = None, tenant: str | None = None
    ) -> ResumePreview:
        """Return what ``resume`` would do now: what becomes of the missed ticks, and when it fires next.

        Changes nothing. ``tz`` is the zone of the times; by default that of the trigger.
        """
        zone = None if tz is None else read_zone(tz).info
        row = self._rows.existing(name, self._session.tenant_of(tenant))
        now = self._session.store().now()
        planned = changes.resume(row, now, self._rows.active(row), catch_up=catch_up)
        return resume_preview(row, planned, now, zone)

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
        return written(attempt.view)

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

    apause = twin(pause)
    aresume = twin(resume)
    apreview_resume = twin(preview_resume)
    areschedule = twin(reschedule)
    arun_now = twin(run_now)


def end_of_pause(until: Moment | None, now: Instant) -> Instant | None:
    """Return ``until`` as an instant; refuse one that is past."""
    end = None if until is None else read_moment(until, "until", now)
    if end is not None and end <= now:
        raise InvalidValue(
            f"until {shown(until)} is in the past",
            field="until",
            value=until,
            hint='give a time to come, or how long, like "2h"',
        )
    return end
