"""The calls of a scheduler that report on its work: queues, figures, failures, nodes, metrics."""

from __future__ import annotations

from typing import Any

from evenbeat.app.figures import MOST_FAILURES, Scope
from evenbeat.app.metrics import MOST_SCHEDULES, read_metrics
from evenbeat.app.scheduler_parts import SchedulerParts
from evenbeat.core.attention import Attention
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.figures import FailureReport, FigureSeries, NodeView
from evenbeat.core.instants import Moment
from evenbeat.core.results import QueueStats
from evenbeat.node.presence import live_nodes
from evenbeat.observe.views import queue_view
from evenbeat.rules.rollups import By
from evenbeat.stores.base import QueueCounts
from evenbeat.tasks.task import Task


class ReportCalls(SchedulerParts):
    """Reads how the work goes."""

    def queues(self, period: Duration = "5m") -> list[QueueStats]:
        """Return each queue over all tenants: how many runs it holds, which live nodes take from it, and how
        many came due and ended in the last ``period``."""
        length = read_duration(period, "period")
        store = self._session.store()
        now = store.now()
        counted = {counts.queue: counts for counts in store.count_queues(now, now - length)}
        nodes = [node for node in live_nodes(store) if node.worker]
        names = sorted({*counted, *(queue for node in nodes for queue in node.queues)})
        return [
            queue_view(
                counted.get(name) or QueueCounts(queue=name),
                tuple(node.key for node in nodes if name in node.queues),
            )
            for name in names
        ]

    def statistics(
        self,
        since: Moment = "1h",
        until: Moment | None = None,
        *,
        by: By | None = None,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        top: int = 0,
    ) -> FigureSeries:
        """Return how many ticks fired and runs ended, and how long and how late they were, over time.

        Reads what nodes write once a minute, never the history of runs. ``by`` is ``minute``, for the last
        three hours, or ``hour``, for 40 days; it defaults to minutes if they go back to ``since``. A duration
        as ``since`` or ``until`` counts back from now. ``top`` adds the figures of so many schedules and
        tasks, the busiest.
        """
        scope = self._figures.scope(schedule, task, tenant, all_tenants)
        return self._figures.statistics(since, until, by, scope, top)

    def failures(
        self,
        since: Moment | None = "1d",
        *,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = MOST_FAILURES,
    ) -> FailureReport:
        """Return the newest failed runs, at most ``limit``, grouped by their error.

        Errors that differ only in numbers, ids and quoted values are one group. ``since`` selects runs that
        failed then or later; None: all, which may take long if few of many runs failed.
        ``app.runs.retry_all(ids=group.runs)`` retries a group.
        """
        name = task.name if isinstance(task, Task) else task
        owner = None if all_tenants else self._session.tenant_of(tenant)
        return self._figures.failures(since, Scope(owner, schedule, name), limit)

    def nodes(self) -> list[NodeView]:
        """Return the live nodes: those that have given a sign of life within about a minute."""
        return self._figures.nodes()

    def attention(self, *, tenant: str | None = None, all_tenants: bool = False) -> Attention:
        """Return what needs somebody now, the worst first: late and failing schedules, stuck runs, missing
        nodes, quarantined rows, an unsafe store.

        Problems with the same cause are one item, which counts the schedules or runs. This reads every
        schedule, but no history. ``GET /attention`` is cheaper: the web process keeps schedules in memory.
        """
        return self._attention.read(None if all_tenants else self._session.tenant_of(tenant))

    def metrics(self, *, tenant: str | None = None, schedules: int = MOST_SCHEDULES) -> str:
        """Return all metrics in the text format of Prometheus, as ``GET /metrics`` does; with ``tenant``,
        only what concerns that tenant.

        Up to ``schedules`` schedules have series of their own; if there are more, none has. Needs
        prometheus-client, which the extra ``metrics`` installs: ``ImportError`` without it.
        """
        if tenant is not None:
            check_label(tenant, "tenant")
        made = read_metrics(self._session.store(), tenant=tenant, schedules=schedules)
        return made.encode()[0].decode()

    aqueues = twin(queues)
    astatistics = twin(statistics)
    afailures = twin(failures)
    anodes = twin(nodes)
    aattention = twin(attention)
    ametrics = twin(metrics)
