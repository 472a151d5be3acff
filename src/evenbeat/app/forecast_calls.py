"""The calls of a scheduler about times to come: the forecast, the timeline, triggers in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from evenbeat.app.forecasting import firing_schedules, forecast_of
from evenbeat.app.inheriting import timed_text
from evenbeat.app.lanes import MOST_LANES, timeline_of
from evenbeat.app.scheduler_parts import SchedulerParts
from evenbeat.core.awaitable import twin
from evenbeat.core.cells import ScheduleTimeline
from evenbeat.core.checks import check_whole
from evenbeat.core.forecasts import Forecast, ForecastStep, TriggerExplanation
from evenbeat.core.instants import Moment
from evenbeat.core.records import ScheduleState
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.calendar_copies import resolved
from evenbeat.observe.trigger_explanations import explain_trigger
from evenbeat.stores.base import ScheduleQuery
from evenbeat.tasks.task import Task


class ForecastCalls(SchedulerParts):
    """Reads and explains coming ticks."""

    def forecast(
        self,
        hours: int = 24,
        *,
        since: Moment | None = None,
        by: ForecastStep = "minute",
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> Forecast:
        """Return how many runs start in each minute or hour from now, or ``since``, on: at most 7 days by the
        minute, 31 days by the hour.

        Names the busiest minutes with their schedules, quiet windows for maintenance, and spreads that would
        lower the peaks. Retries, runs by hand and delays by overlap are left out. Needs numpy, which the
        extra ``timeline`` installs: ``ImportError`` without it.
        """
        owner = None if all_tenants else self._session.tenant_of(tenant)
        store = self._session.store()
        rows = firing_schedules(store, owner)
        return forecast_of(rows, store.now(), hours, since=since, by=by, with_tenant=all_tenants)

    def timeline(
        self,
        since: Moment = "1h",
        until: Moment = "1h",
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
        limit: int = 50,
    ) -> ScheduleTimeline:
        """Return the ticks of many schedules over a range, past and future, in at most 360 columns.

        A duration as ``since`` counts back from now, at most 40 days, as ``until`` forward, at most 31 days.
        The filter is that of ``schedules.list``; ``limit`` is at most 100. If a schedule has more runs in the
        past than can be read, the figures of the nodes are shown instead.
        """
        check_whole("limit", limit, 1, MOST_LANES)
        chosen = self.schedules.list(
            tenant=tenant,
            all_tenants=all_tenants,
            state=state,
            task=task,
            name=name,
            text=text,
            queue=queue,
            tag=tag,
            managed_by=managed_by,
            template=template,
            failing=failing,
            late=late,
            limit=limit,
        )
        return self.timeline_of([(each.tenant, each.name) for each in chosen], since, until)

    def timeline_of(
        self, keys: Sequence[tuple[str, str]], since: Moment = "1h", until: Moment = "1h"
    ) -> ScheduleTimeline:
        """Return the ``timeline`` of schedules by (tenant, name), in this order; without those that do not
        exist."""
        check_whole("number of schedules", len(keys), 0, MOST_LANES)
        store = self._session.store()
        query = ScheduleQuery(keys=tuple(keys), limit=max(1, len(keys)))
        rows = {row.key: row for row in store.find_schedules(query).items} if keys else {}
        return timeline_of(store, [rows[key] for key in keys if key in rows], since, until)

    def explain(
        self,
        trigger: str,
        count: int = 10,
        *,
        tz: str | None = None,
        since: datetime | str | None = None,
        name: str | None = None,
        tenant: str | None = None,
    ) -> TriggerExplanation:
        """Return the trigger of a text in words, with its next ``count`` ticks (at most 1,000) after now, or
        ``since``, and the effect of coming clock changes.

        ``tz`` is the zone of a cron that names none; ``name`` is that of the schedule, which decides ``H``.
        ``@name`` stands for the trigger of the template of that name, which has its own zone. Templates and
        calendars that it names are those of ``tenant``.
        ``InvalidTrigger``, with the position of the refused part, if the text is not valid.
        """
        # With a time to start from, the store is not needed.
        now = self._session.store().now() if since is None else 0
        owner = self._session.tenant_of(tenant)
        text = timed_text(self._session, owner, trigger)
        if tz is not None and text != trigger:
            raise InvalidValue(
                f"tz {shown(tz)} goes with a trigger, and template {trigger} has its own zone",
                field="tz",
                value=tz,
                hint="leave it out",
            )
        return explain_trigger(
            text,
            count,
            now=now,
            tz=tz,
            since=since,
            name=name,
            resolve=lambda found: resolved(self._session.store(), owner, found),
        )

    aforecast = twin(forecast)
    atimeline = twin(timeline)
    atimeline_of = twin(timeline_of)
    aexplain = twin(explain)
