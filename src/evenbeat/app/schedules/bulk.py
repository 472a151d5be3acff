"""Act on all schedules that match a filter: pause, resume, run, delete."""

from __future__ import annotations

from typing import Literal, Unpack

from evenbeat.app.acting import current_actor
from evenbeat.app.bulk import MOST_AT_ONCE
from evenbeat.app.schedule_bulk import BulkChange, Decide
from evenbeat.app.schedule_search import BulkFilter, ScheduleSearch, read_states
from evenbeat.app.schedules.calls import ScheduleCalls
from evenbeat.app.schedules.operating import end_of_pause
from evenbeat.core.audits import AuditAction
from evenbeat.core.awaitable import twin
from evenbeat.core.ids import new_run_id
from evenbeat.core.instants import Instant, Moment
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.core.results import BulkResult, Schedule
from evenbeat.rules import changes
from evenbeat.rules.firing import Planned


class BulkCalls(ScheduleCalls):
    """Changes many schedules at once."""

    def pause_all(
        self,
        note: str = "",
        *,
        until: Moment | None = None,
        state: Literal["active", "paused"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``pause`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` is ``paused``: that gives them another note or end. A schedule that
        can't be paused stays as it is, and the result names it with the reason. ``dry_run`` only counts.
        """
        actor = current_actor().name
        end = end_of_pause(until, self._session.store().now())
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
        **chosen: Unpack[BulkFilter],
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
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``run_now`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` names another state. Each call adds a run to each of them.
        """
        return self._bulk(
            "run_now",
            read_states(state, ("active", "paused", "finished")) or ("active",),
            self._plan_run,
            chosen,
        ).run(limit, dry_run=dry_run)

    def _plan_run(self, row: ScheduleRecord, now: Instant) -> Planned:
        planned = self._rows.plan_run(row, new_run_id(now), now)
        self._rows.quotas.admit_runs(row.tenant)
        return planned

    def delete_all(
        self,
        *,
        state: Literal["active", "paused", "finished"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        **chosen: Unpack[BulkFilter],
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
        chosen: BulkFilter,
    ) -> BulkChange:
        return BulkChange(self._rows, ScheduleSearch(self._session, chosen, states), action, decide)

    apause_all = twin(pause_all)
    aresume_all = twin(resume_all)
    arun_all = twin(run_all)
    adelete_all = twin(delete_all)
