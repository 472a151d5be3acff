"""Counts of queues, of active runs and of tenants. Stores count queued, running and ended runs apart; here
they are added up."""

from __future__ import annotations

from collections.abc import Iterable

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.stores.base import ActiveCounts, QueueCounts, TenantCounts


def of_run(run: RunRecord, now: Instant, since: Instant) -> QueueCounts | None:
    """Return what one run adds to the counts of its queue; None if it ended before the period."""
    came_due = int(since <= run.run_at <= now)
    if run.state == "running":
        return QueueCounts(queue=run.queue, running=1, came_due=came_due)
    if run.state == "queued":
        due = run.run_at <= now
        return QueueCounts(
            queue=run.queue,
            due=int(due),
            later=int(not due),
            retrying=int(run.failures > 0),
            oldest_due=run.run_at if due else None,
            came_due=came_due,
        )
    if (run.finished_at or 0) < since:
        return None
    return QueueCounts(queue=run.queue, came_due=came_due, ended=1)


def added_up(parts: Iterable[QueueCounts]) -> list[QueueCounts]:
    """Add up the counts of each queue, in the order of names."""
    found: dict[str, QueueCounts] = {}
    for part in parts:
        before = found.get(part.queue)
        found[part.queue] = part if before is None else _sum(before, part)
    return [found[queue] for queue in sorted(found)]


def _sum(one: QueueCounts, other: QueueCounts) -> QueueCounts:
    due_since = [at for at in (one.oldest_due, other.oldest_due) if at is not None]
    return QueueCounts(
        queue=one.queue,
        due=one.due + other.due,
        later=one.later + other.later,
        retrying=one.retrying + other.retrying,
        running=one.running + other.running,
        oldest_due=min(due_since, default=None),
        came_due=one.came_due + other.came_due,
        ended=one.ended + other.ended,
    )


def active_counts(runs: Iterable[RunRecord], now: Instant) -> list[ActiveCounts]:
    """Count active runs by tenant, queue, priority, task and cohort."""
    found: dict[tuple[str, str, int, str, str | None], list[RunRecord]] = {}
    for run in runs:
        found.setdefault((run.tenant, run.queue, run.priority, run.task, run.cohort), []).append(run)
    counts = []
    for (tenant, queue, priority, task, cohort), group in found.items():
        due = [run.run_at for run in group if run.state == "queued" and run.run_at <= now]
        running = sum(run.state == "running" for run in group)
        counts.append(
            ActiveCounts(
                tenant=tenant,
                queue=queue,
                priority=priority,
                task=task,
                cohort=cohort,
                due=len(due),
                later=len(group) - len(due) - running,
                running=running,
                oldest_due=min(due, default=None),
            )
        )
    return counts


def tenant_counts(parts: Iterable[tuple[str, str | None]]) -> list[TenantCounts]:
    """Count the schedules of each tenant by state, in the order of names. A state of None counts none."""
    found: dict[str, list[str | None]] = {}
    for tenant, state in parts:
        found.setdefault(tenant, []).append(state)
    return [
        TenantCounts(
            tenant=tenant,
            schedules=len(states) - states.count(None),
            active=states.count("active"),
            paused=states.count("paused"),
        )
        for tenant, states in sorted(found.items())
    ]


def with_tenants(counts: Iterable[TenantCounts], others: Iterable[str]) -> list[TenantCounts]:
    """Add tenants that have no schedules, in the order of names."""
    found = {each: TenantCounts(tenant=each) for each in others}
    found |= {each.tenant: each for each in counts}
    return [found[tenant] for tenant in sorted(found)]
