"""Reads which queues have runs that have waited for long although live nodes could take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenbeat.app.limits import read_usage
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.node.presence import LiveNode
from evenbeat.observe.backlogs import LONG_WAIT, TOO_LONG_WAIT, Backlog
from evenbeat.rules.waiting import takers
from evenbeat.stores.base import LARGE_FIELDS, QueueCounts, RunQuery, Store
from evenbeat.stores.pages import cursor_at

_PAGE = 500
_MOST_QUEUES = 50
_MOST_NODES = 20


def read_backlogs(
    store: Store, owner: str | None, now: Instant, queues: Sequence[QueueCounts], nodes: Sequence[LiveNode]
) -> Iterator[Backlog]:
    """Yield a backlog for each queue that has one. Mostly there is none, and nothing is read."""
    edge = now - LONG_WAIT
    slow = [each for each in queues if each.oldest_due is not None and each.oldest_due < edge]
    slow.sort(key=lambda each: each.oldest_due or now)
    able = [node.taker for node in nodes]
    limits = read_usage(store) if slow else None
    for counts in slow[:_MOST_QUEUES]:
        found: dict[tuple[str, str], RunRecord] = {}
        has_more = False
        # The newest of those that have waited for over an hour, too: in a long queue, the newest of all do
        # not tell how long others wait.
        for wait in (LONG_WAIT, TOO_LONG_WAIT):
            query = RunQuery(
                tenant=owner,
                states=("queued",),
                queue=counts.queue,
                without=LARGE_FIELDS,
                limit=_PAGE,
                cursor=cursor_at(now - wait - 1),
            )
            page = store.find_runs(query)
            has_more = has_more or page.cursor is not None
            found |= {(run.tenant, run.id): run for run in page.items}
        waiting = [
            run
            for run in found.values()
            if _since(run) < edge
            and takers(run, able)
            # More nodes would not help a run that waits for a limit.
            and (limits is None or limits.hold(run) is None)
        ]
        if waiting:
            oldest = min(waiting, key=_since)
            executor, slots = _slots(store, oldest, nodes)
            yield Backlog(counts.queue, owner, len(waiting), has_more, _since(oldest), executor, slots)


def _since(run: RunRecord) -> Instant:
    """Return since when a run waits. The run of a tick that was caught up was due before there was a run."""
    return max(run.run_at, run.created_at)


def _slots(
    store: Store, run: RunRecord, nodes: Sequence[LiveNode]
) -> tuple[str | None, tuple[int, int] | None]:
    """Return the executor of a run, and how many slots for it are in use and exist on the nodes that could
    take it; None if one of them does not tell it, or there are too many nodes."""
    names = takers(run, [node.taker for node in nodes])
    able = [node for node in nodes if node.key in names]
    executor = next((kind for node in able if (kind := node.kinds.get(run.task)) is not None), None)
    if len(able) > _MOST_NODES:
        return executor, None
    known = [node.slots_in_use(store, run.task) for node in able]
    used = [each for each in known if each is not None]
    if len(used) < len(known):
        return executor, None
    return executor, (sum(each[0] for each in used), sum(each[1] for each in used))
