"""Reads work that does not go on: late schedules, due runs that wait, runs that run for too long.

A few bounded searches, none of which reads the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, get_args

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.observe.attention import LONG, MOST_OF_A_KIND, WAITED, is_stuck
from evenbeat.rules.schedule_filters import LATE_AFTER
from evenbeat.stores.base import LARGE_FIELDS, QueueCounts, RunQuery, ScheduleQuery, Store
from evenbeat.stores.pages import cursor_at

_PAGE = 500
_LATEST = 10
"""How many of the latest runs of a schedule are read, to count failures in a row and to know how long its
runs take."""


class StuckWork(NamedTuple):
    """Work that may need somebody. Each list is bounded; its ``more_…`` says whether it left some out."""

    late: tuple[ScheduleRecord, ...]
    more_late: bool
    waiting: list[RunRecord]
    """Due runs that have waited for over a minute."""
    more_waiting: bool
    orphaned: list[RunRecord]
    """Those of them whose schedule is deleted."""
    running: list[RunRecord]
    """Runs that have been running for a while."""
    more_running: bool
    usual: dict[str, int]
    """By id of a run that may be stuck: how many ms the longest of the schedule's latest runs took."""


def read_stuck_work(
    store: Store, owner: str | None, now: Instant, queues: Sequence[QueueCounts]
) -> StuckWork:
    """Read the work of one tenant or of all. ``queues`` are the counts of all queues now."""
    late = store.find_schedules(
        ScheduleQuery(tenant=owner, states=("active",), wakes_before=now - LATE_AFTER, limit=_PAGE)
    )
    waiting, more_waiting = _waiting(store, owner, now, queues)
    running: list[RunRecord] = []
    more_running = False
    if any(counts.running for counts in queues):
        running, more_running = _long_running(store, owner, now)
    return StuckWork(
        late=late.items,
        more_late=late.cursor is not None,
        waiting=waiting,
        more_waiting=more_waiting,
        orphaned=_orphaned(store, waiting),
        running=running,
        more_running=more_running,
        usual=_usual(store, running, now),
    )


def latest_runs(store: Store, tenant: str, schedule: str) -> tuple[RunRecord, ...]:
    """Return a few of the latest runs of a schedule, the newest first."""
    query = RunQuery(tenant=tenant, schedule=schedule, without=LARGE_FIELDS, limit=_LATEST)
    return store.find_runs(query).items


def _waiting(
    store: Store, owner: str | None, now: Instant, counted: Iterable[QueueCounts]
) -> tuple[list[RunRecord], bool]:
    """Return due runs that have waited for over a minute, and whether there may be others.

    Counting the active runs tells which queues have such runs: mostly none. Of a long queue it reads the
    newest runs and the newest of those that are old enough.
    """
    edge = now - WAITED
    queues = [
        counts.queue for counts in counted if counts.oldest_due is not None and counts.oldest_due < edge
    ]
    found: dict[str, RunRecord] = {}
    has_more = False
    for queue in queues:
        query = RunQuery(tenant=owner, states=("queued",), queue=queue, without=LARGE_FIELDS, limit=_PAGE)
        page = store.find_runs(query)
        runs = page.items
        if page.cursor is not None:
            has_more = True
            runs += store.find_runs(replace(query, cursor=cursor_at(edge))).items
        found |= {run.id: run for run in runs if run.run_at < edge}
    return list(found.values()), has_more


def _orphaned(store: Store, waiting: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs whose schedule is deleted."""
    keys = tuple(dict.fromkeys((run.tenant, run.schedule) for run in waiting if run.schedule is not None))
    if not keys:
        return []
    query = ScheduleQuery(keys=keys, states=get_args(ScheduleState), limit=len(keys))
    present = {row.key for row in store.find_schedules(query).items if row.state != "deleted"}
    return [run for run in waiting if run.schedule and (run.tenant, run.schedule) not in present]


def _long_running(store: Store, owner: str | None, now: Instant) -> tuple[list[RunRecord], bool]:
    """Return runs that have been running for a while: those of over an hour, and the newest of the others;
    and whether there are others."""
    found: dict[str, RunRecord] = {}
    has_more = False
    for since in (now - LONG, now - WAITED):
        query = RunQuery(tenant=owner, states=("running",), until=since, without=LARGE_FIELDS, limit=_PAGE)
        page = store.find_runs(query)
        found |= {run.id: run for run in page.items}
        has_more = has_more or page.cursor is not None
    return list(found.values()), has_more


def _usual(store: Store, running: Sequence[RunRecord], now: Instant) -> dict[str, int]:
    """Return how long the latest runs of a schedule took, for runs that may be stuck: by id of the run."""
    usual: dict[str, int] = {}
    suspects = (run for run in running if run.schedule is not None and is_stuck(run, now, None))
    for run in islice(suspects, MOST_OF_A_KIND):
        took = [
            each.finished_at - each.started_at
            for each in latest_runs(store, run.tenant, run.schedule or "")
            if each.state == "succeeded" and each.finished_at is not None and each.started_at is not None
        ]
        if took:
            usual[run.id] = max(took)
    return usual
