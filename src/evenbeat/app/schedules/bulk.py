"""Act on all schedules that match a filter: change, pause, resume, run, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, Unpack

from evenbeat.app.acting import current_actor
from evenbeat.app.bulk import MOST_AT_ONCE, Progress
from evenbeat.app.definitions import CHANGEABLE, ScheduleChanges, changed_fields
from evenbeat.app.inheriting import follow_template, named_template, names_template
from evenbeat.app.schedule_bulk import BulkChange, Decide
from evenbeat.app.schedule_search import BulkFilter, ScheduleSearch, read_states
from evenbeat.app.schedules.calls import ScheduleCalls
from evenbeat.app.schedules.operating import end_of_pause
from evenbeat.core.audits import AuditAction
from evenbeat.core.awaitable import twin
from evenbeat.core.ids import new_run_id
from evenbeat.core.instants import Instant, Moment
from evenbeat.core.options import SCHEDULE
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.core.results import BulkResult, Schedule
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules import changes as rules
from evenbeat.rules.firing import Planned
from evenbeat.rules.templates import template_word
from evenbeat.tasks.options import refuse_unknown
from evenbeat.triggers import check_trigger, parse_trigger


class BulkCalls(ScheduleCalls):
    """Changes many schedules at once."""

    def update_all(
        self,
        changes: ScheduleChanges,
        *,
        state: Literal["active", "paused", "finished"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``update`` all schedules that match the filter, as in ``list``, up to ``limit``.

        ``changes`` are the arguments of ``update``: ``update_all({"retries": 3}, tag="billing")``. Each
        schedule gets all of them or none: one that can't take them stays as it is, and the result names it
        with the reason. A schedule that changes between the count and its own change is matched again.
        ``dry_run`` counts, and names those that would be refused. ``progress`` is called with the result so
        far, again and again.
        """
        _check_changes(changes)
        if not chosen.get("all_tenants"):  # each tenant has its own templates
            owner = self._session.tenant_of(chosen.get("tenant"))
            named_template(self._session, owner, changes.get("trigger"))
        done = self._bulk(
            "update",
            read_states(state, ("active", "paused", "finished")),
            lambda row, now: self._plan_update(row, changes, now),
            chosen,
        ).run(limit, dry_run=dry_run, progress=progress)
        if names_template(changes):
            for item in done.changed:
                follow_template(self._rows, item.tenant, item.id)
        return done

    def _plan_update(self, row: ScheduleRecord, changed: ScheduleChanges, now: Instant) -> Planned | None:
        fields = changed_fields(self._session, row, changed)
        return self._rows.changed(row, fields, now)

    def pause_all(
        self,
        note: str = "",
        *,
        until: Moment | None = None,
        state: Literal["active", "paused"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``pause`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` is ``paused``: that gives them another note or end. A schedule that
        can't be paused stays as it is, and the result names it with the reason. ``dry_run`` and ``progress``
        are as in ``update_all``, here and in the calls below.
        """
        actor = current_actor().name
        end = end_of_pause(until, self._session.store().now())
        return self._bulk(
            "pause",
            read_states(state, ("active", "paused")) or ("active",),
            lambda row, now: rules.pause(row, now, note, end, actor),
            chosen,
        ).run(limit, dry_run=dry_run, progress=progress)

    def resume_all(
        self,
        *,
        catch_up: bool = False,
        state: Literal["paused"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``resume`` all paused schedules that match the filter, as in ``list``, up to ``limit``.

        With ``catch_up``, the catch-up policy of each decides about the ticks of its pause.
        """
        return self._bulk(
            "resume",
            read_states(state, ("paused",)) or ("paused",),
            lambda row, now: rules.resume(row, now, self._rows.active(row), catch_up=catch_up),
            chosen,
        ).run(limit, dry_run=dry_run, progress=progress)

    def run_all(
        self,
        *,
        state: Literal["active", "paused", "finished"] | None = None,
        limit: int = MOST_AT_ONCE,
        dry_run: bool = False,
        progress: Progress | None = None,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``run_now`` all schedules that match the filter, as in ``list``, up to ``limit``.

        Active ones, unless ``state`` names another state. Each call adds a run to each of them.
        """
        new: Counter[str] = Counter()

        def check_run(row: ScheduleRecord, now: Instant) -> Planned:
            planned = self._rows.plan_run(row, new_run_id(now), now)
            self._rows.quotas.check_runs(row.tenant, new[row.tenant] + 1)
            new[row.tenant] += 1
            return planned

        return self._bulk(
            "run_now",
            read_states(state, ("active", "paused", "finished")) or ("active",),
            check_run if dry_run else self._plan_run,
            chosen,
        ).run(limit, dry_run=dry_run, progress=progress)

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
        progress: Progress | None = None,
        **chosen: Unpack[BulkFilter],
    ) -> BulkResult[Schedule]:
        """``delete`` all schedules that match the filter, as in ``list``, up to ``limit``."""
        return self._bulk(
            "delete", read_states(state, ("active", "paused", "finished")), rules.delete, chosen
        ).run(limit, dry_run=dry_run, progress=progress)

    def _bulk(
        self,
        action: AuditAction,
        states: tuple[ScheduleState, ...] | None,
        decide: Decide,
        chosen: BulkFilter,
    ) -> BulkChange:
        return BulkChange(self._rows, ScheduleSearch(self._session, chosen, states), action, decide)

    aupdate_all = twin(update_all)
    apause_all = twin(pause_all)
    aresume_all = twin(resume_all)
    arun_all = twin(run_all)
    adelete_all = twin(delete_all)


def _check_changes(changes: object) -> None:
    if not isinstance(changes, Mapping) or not changes:
        raise InvalidValue(
            f"changes {shown(changes)} says nothing to change",
            field="changes",
            value=changes,
            hint='write {"retries": 3}',
        )
    refuse_unknown(changes, CHANGEABLE, "a schedule")
    # Checked here, too, so that a wrong value is refused once, not for each schedule.
    for name, value in changes.items():
        if name in SCHEDULE:
            SCHEDULE[name].read(value)
    if "trigger" in changes and template_word(changes["trigger"]) is None:
        parse_trigger(str(check_trigger(changes["trigger"], "trigger")))
