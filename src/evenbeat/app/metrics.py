"""Metrics: reads from the store what Prometheus sees. Nothing comes from the memory of this process, so every
process gives the same answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from evenbeat.app.limits import read_usage
from evenbeat.core.checks import check_whole
from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, Statistics
from evenbeat.node.counters import read_counters
from evenbeat.node.metered_store import OPERATIONS
from evenbeat.node.presence import live_nodes
from evenbeat.observe.limit_usage import LimitUsage
from evenbeat.observe.metrics import Exposition
from evenbeat.rules import counters, rollups
from evenbeat.rules.counters import CALLS, CLAIMS, NUMBERS, Sums, new_spread
from evenbeat.rules.rollups import Tally, add_tallies, new_tally
from evenbeat.rules.schedule_filters import LATE_AFTER
from evenbeat.rules.ticks import next_start
from evenbeat.stores.base import QueueCounts, ScheduleQuery, Store

MOST_SCHEDULES = 1_000
"""The default bound of schedules that have series of their own."""
HIGHEST_BOUND = 100_000
MOST_LABELLED = 200
"""How many tenants, pairs of tenant and task, and limits have series of their own."""
MOST_OVERDUE = 100
_PAGE = 500
_STATUSES = {"succeeded": rollups.SUCCEEDED, "failed": rollups.FAILED, "cancelled": rollups.CANCELLED}
_COUNTS = {
    "evenbeat_attempts_total": rollups.STARTED,
    "evenbeat_retries_total": rollups.RETRIED,
    "evenbeat_takeovers_total": rollups.CRASHED,
    "evenbeat_handed_back_total": rollups.RELEASED,
    "evenbeat_ticks_fired_total": rollups.FIRED,
}
NUMBER_METRICS = {
    "lease_losses": "evenbeat_lease_losses_total",
    "duplicates": "evenbeat_duplicates_prevented_total",
    "lock_failures": "scheduler_lock_failures_total",
    "store_errors": "evenbeat_store_errors_total",
    "alerts": "evenbeat_alerts_sent_total",
}
# Exported as 0 before they happen: a rate needs a value before the first one.
_ZEROS = (
    "lease_losses",
    "duplicates/tick",
    "duplicates/end",
    "lock_failures/schedules/held",
    "lock_failures/schedules/refused",
    "lock_failures/schedules/error",
    "lock_failures/named/held",
    "lock_failures/named/lost",
    "lock_failures/named/error",
    *(f"store_errors/{operation}" for operation in dict.fromkeys((*OPERATIONS.values(), "heartbeat"))),
)


def read_metrics(store: Store, *, tenant: str | None = None, schedules: int = MOST_SCHEDULES) -> Exposition:
    """Return all metrics, or those of one tenant.

    At most ``schedules`` schedules have series of their own: if there are more, none has. Reads that many
    schedules and one more, whatever the store holds, and never the history of runs.
    """
    check_whole("schedules", schedules, 0, HIGHEST_BOUND)
    made = Exposition(("tenant", "store") if tenant is None else ("tenant",))
    now = store.now()
    sums = read_counters(store)
    figures = _Figures.of(sums, tenant)
    rows = _labelled_schedules(store, tenant, schedules)
    if rows is None:
        _add_runs(made, "scheduler_runs_total", figures.tenants)
    else:
        _add_schedules(made, rows, store)
    _add_figures(made, figures)
    query = ScheduleQuery(
        tenant=tenant, states=("active",), wakes_before=now - LATE_AFTER, limit=MOST_OVERDUE
    )
    made.add("evenbeat_schedules_overdue", len(store.find_schedules(query).items))
    if tenant is None:
        _add_numbers(made, sums)
        _add_present(made, store, now)
    return made


# -- schedules -----------------------------------------------------------------------------------------------


def _labelled_schedules(store: Store, tenant: str | None, most: int) -> list[ScheduleRecord] | None:
    """Return all schedules; None if there are more than so many."""
    if most == 0:
        return None
    found: list[ScheduleRecord] = []
    query = ScheduleQuery(tenant=tenant, limit=min(most + 1, _PAGE))
    while True:
        page = store.find_schedules(query)
        found += page.items
        if len(found) > most:
            return None
        if page.cursor is None:
            return found
        query = ScheduleQuery(tenant=tenant, limit=min(most + 1 - len(found), _PAGE), cursor=page.cursor)


def _add_schedules(made: Exposition, rows: list[ScheduleRecord], store: Store) -> None:
    for at in range(0, len(rows), _PAGE):
        part = rows[at : at + _PAGE]
        for row, figures in zip(part, store.statistics([row.key for row in part]), strict=True):
            _add_schedule(made, row, figures)


def _add_schedule(made: Exposition, row: ScheduleRecord, figures: Statistics) -> None:
    labels = {"tenant": row.tenant, "schedule_id": row.name}
    cancelled = figures.run_count - figures.success_count - figures.failure_count
    for status, number in (
        ("succeeded", figures.success_count),
        ("failed", figures.failure_count),
        ("cancelled", cancelled),
    ):
        made.add("scheduler_runs_total", number, **labels, status=status)
    if figures.last_run is not None:
        made.add("scheduler_last_run_timestamp", figures.last_run / 1000, **labels)
    if row.state == "active" and not row.damage and (start := next_start(row)) is not None:
        made.add("scheduler_next_run_timestamp", start / 1000, **labels)


# -- what nodes have counted ---------------------------------------------------------------------------------


class _Figures(NamedTuple):
    """The counts of ticks and runs, with as many labels as the bounds allow."""

    tenants: dict[tuple[tuple[str, str], ...], Tally]
    """By their labels: the tenant's, or none if there are too many tenants."""
    tasks: dict[tuple[tuple[str, str], ...], Tally]
    """By their labels: those of tenant and task, of the tenant alone, or none."""

    @classmethod
    def of(cls, sums: Sums, tenant: str | None) -> _Figures:
        chosen = {pair: tally for pair, tally in sums.tallies.items() if tenant in (None, pair[0])}
        if tenant is not None and not chosen:
            chosen = {(tenant, rollups.OTHER): new_tally()}
        has_tenants = len({owner for owner, _ in chosen}) <= MOST_LABELLED
        has_tasks = len(chosen) <= MOST_LABELLED
        made = cls({}, {})
        for (owner, task), tally in chosen.items():
            labels = (("tenant", owner),) if has_tenants else ()
            add_tallies(made.tenants.setdefault(labels, new_tally()), tally)
            named = (*labels, ("task", task)) if has_tasks else labels
            add_tallies(made.tasks.setdefault(named, new_tally()), tally)
        return made


def _add_figures(made: Exposition, figures: _Figures) -> None:
    _add_runs(made, "evenbeat_runs_total", figures.tenants)
    for labels, tally in figures.tenants.items():
        named = dict(labels)
        for name, place in _COUNTS.items():
            made.add(name, tally[place], **named)
        for reason, place in rollups.SKIPPED.items():
            made.add("evenbeat_ticks_skipped_total", tally[place], **named, reason=reason)
        late = tally[rollups.LATE : rollups.TOOK_SUM]
        made.add_histogram("evenbeat_tick_lateness_seconds", late, tally[rollups.LATE_SUM], **named)
    for labels, tally in figures.tasks.items():
        took = tally[rollups.TOOK : rollups.LATE]
        made.add_histogram("scheduler_run_duration_seconds", took, tally[rollups.TOOK_SUM], **dict(labels))


def _add_runs(made: Exposition, name: str, tenants: dict[tuple[tuple[str, str], ...], Tally]) -> None:
    for labels, tally in tenants.items():
        for status, place in _STATUSES.items():
            made.add(name, tally[place], **dict(labels), status=status)


def _add_numbers(made: Exposition, sums: Sums) -> None:
    for text, number in {**dict.fromkeys(_ZEROS, 0), **sums.numbers}.items():
        name, values = counters.read_name(text)
        labels = NUMBERS.get(name)
        # A later version may count more, or with other labels.
        if labels is not None and len(labels) == len(values):
            made.add(NUMBER_METRICS[name], number, **dict(zip(labels, values, strict=True)))
    claims = sums.lengths.get(CLAIMS) or new_spread()
    made.add_histogram("evenbeat_claim_latency_seconds", claims[1:], claims[0])
    for text, spread in sums.lengths.items():
        name, values = counters.read_name(text)
        if name == CALLS and len(values) == 1:
            made.add_histogram("evenbeat_store_call_seconds", spread[1:], spread[0], operation=values[0])


# -- the present ---------------------------------------------------------------------------------------------


def _add_present(made: Exposition, store: Store, now: Instant) -> None:
    nodes = live_nodes(store)
    for node in nodes:
        labels = {"node": node.key, "host": node.host or "", "version": node.version or ""}
        made.add("evenbeat_node_up", 1, **labels)
    made.add("evenbeat_nodes", sum(node.ticker for node in nodes), duty="ticker")
    made.add("evenbeat_nodes", sum(node.worker for node in nodes), duty="worker")
    served = {queue for node in nodes if node.worker for queue in node.queues}
    _add_queues(made, store.count_queues(now, now), served, now)
    _add_limits(made, read_usage(store))


def _add_limits(made: Exposition, usage: LimitUsage | None) -> None:
    limits = () if usage is None else tuple(usage.limits)
    if usage is None or len(limits) > MOST_LABELLED:
        return
    for limit in limits:
        counts = usage.of(limit)
        made.add("evenbeat_limit_running", sum(each.running for each in counts), limit=limit.name)
        made.add("evenbeat_limit_waiting", sum(each.waiting for each in counts), limit=limit.name)


def _add_queues(made: Exposition, counted: Iterable[QueueCounts], served: set[str], now: Instant) -> None:
    """Add the queues that hold runs, and the empty ones from which a live node takes."""
    queues = {queue: QueueCounts(queue=queue) for queue in served}
    queues |= {counts.queue: counts for counts in counted}
    for name, counts in sorted(queues.items()):
        made.add("evenbeat_queue_depth", counts.due, queue=name, state="due")
        made.add("evenbeat_queue_depth", counts.later, queue=name, state="later")
        waited = 0 if counts.oldest_due is None else max(0, now - counts.oldest_due)
        made.add("evenbeat_queue_oldest_seconds", waited / 1000, queue=name)
        made.add("evenbeat_runs_in_flight", counts.running, queue=name)
