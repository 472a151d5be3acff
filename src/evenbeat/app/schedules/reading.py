"""Read schedules as they are now, one or all that match a filter, and their coming ticks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias, get_args

from evenbeat.app.calendar_users import calendars_of
from evenbeat.app.dependencies import dependencies_of
from evenbeat.app.inheriting import timed_text
from evenbeat.app.schedule_search import BulkFilter, ScheduleSearch, read_states
from evenbeat.app.schedules.calls import ScheduleCalls
from evenbeat.core.awaitable import twin
from evenbeat.core.calendars import ScheduleCalendars
from evenbeat.core.checks import is_name
from evenbeat.core.dependencies import Dependencies
from evenbeat.core.instants import from_ms, read_instant
from evenbeat.core.records import ScheduleState
from evenbeat.core.results import Schedule, ScheduleStats
from evenbeat.node.calendar_copies import resolved
from evenbeat.observe import views
from evenbeat.observe.trigger_explanations import check_count, coming_ticks
from evenbeat.rules.ticks import trigger_of, upcoming_tick
from evenbeat.stores.base import ScheduleQuery, check_limit
from evenbeat.tasks.task import Task
from evenbeat.triggers import Calendared, Trigger, parse_trigger

# Inside the class, ``list`` is a method.
Moments: TypeAlias = list[datetime]
SchedulesWithStats: TypeAlias = list[tuple[Schedule, ScheduleStats]]


class ReadingCalls(ScheduleCalls):
    """Finds schedules, and returns when they run."""

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
        name: str | None = None,
        text: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        managed_by: str | None = None,
        template: str | None = None,
        failing: bool | None = None,
        late: bool | None = None,
        limit: int | None = None,
    ) -> list[Schedule]:
        """Return schedules in the order of tenant and name; deleted ones only if ``state`` asks for them.

        ``name`` is a pattern: ``report-*``, where ``*`` stands for any characters and ``?`` for one; upper
        and lower case differ. ``text`` is a part of the name, the task, a tag or the description, in upper or
        lower case. ``managed_by`` is ``code`` or ``file`` for those that these declare, else ``api``. It is
        ``failing`` if its last run failed, and ``late`` if it should have fired more than 30 s ago.
        """
        chosen = BulkFilter(
            name=name,
            text=text,
            task=task,
            queue=queue,
            tag=tag,
            managed_by=managed_by,
            template=template,
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
        ``preview("every 10m")``; ``@name`` stands for the trigger of a template. ``count`` is at most 1,000;
        ticks more than 100 years after the first one are left out. A schedule that fires on success has no
        ticks to come: the list is empty.
        """
        check_count(count)
        now = self._session.store().now()
        owner = self._session.tenant_of(tenant)
        if isinstance(schedule, str) and not is_name(schedule):
            schedule = parse_trigger(timed_text(self._session, owner, schedule))
        if isinstance(schedule, Calendared):
            schedule = resolved(self._session.store(), owner, schedule)
        if isinstance(schedule, Trigger):
            trigger, first = schedule.bind("preview", now), None
        else:
            row = self._rows.existing(schedule, owner)
            trigger, first = trigger_of(row), upcoming_tick(row)
            if first is None:
                return []
        if since is not None:
            now, first = read_instant(since, "since"), None
        if first is None:
            first = trigger.next_ms(now)
        return [from_ms(tick, trigger.tzinfo) for tick in coming_ticks(trigger, first, count)]

    def dependencies(self, name: str, *, tenant: str | None = None) -> Dependencies:
        """Return what the schedule waits for, with the last successes, and the schedules that wait for it."""
        row = self._rows.existing(name, self._session.tenant_of(tenant))
        return dependencies_of(self._session.store(), row)

    def calendars(self, name: str, *, tenant: str | None = None) -> ScheduleCalendars:
        """Return the calendars that the schedule's trigger names, and the next ticks that they remove."""
        row = self._rows.existing(name, self._session.tenant_of(tenant))
        return calendars_of(self._session.store(), row)

    aget = twin(get)
    acalendars = twin(calendars)
    adependencies = twin(dependencies)
    aget_with_stats = twin(get_with_stats)
    alist = twin(list)
    anext_run = twin(next_run)
    apreview = twin(preview)
