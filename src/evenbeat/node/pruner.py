"""The pruner: deletes history that the retention rules, or the node's setting, do not keep."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import FIRST, LAST, Instant
from evenbeat.core.records import Record
from evenbeat.rules import retention as rules
from evenbeat.rules.code_only import CODE
from evenbeat.rules.flow_parts import is_begun
from evenbeat.stores.base import EVERYTHING, LARGE_FIELDS, EndedRuns, RunQuery, Store
from evenbeat.stores.pages import every_run

PURGE_EVERY = 60_000
_PAGE = 500
_LONGEST_FLOW = 30 * 86_400_000
SMALLEST_BATCH, FIRST_BATCH, LARGEST_BATCH = 20, 100, 500
# Seconds that a batch should take: writers of SQLite, and all clients of Redis, wait as long.
_QUICK, _SLOW = 0.005, 0.02
# After a batch, the pruner rests for so many times as long as the batch took, in the given bounds (ms).
_REST = 4
_SHORTEST_REST, _LONGEST_REST = 50, 1_000
# All runs are looked at again after so many ms: some may have ended long before they were written (imports).
_AGAIN = 3_600_000
# The record of the purge is written once in this part of the retention: every 43 minutes for 30 days.
_NOTED_PART = 1_000
_KIND, _TENANT = "purged", "default"
_FOR_ALL, _FOR_TENANT = "before", "own"
"""The keys of the records: of what was purged of all tenants, and of one tenant by its own rules."""


class _Task(NamedTuple):
    """Old rows to delete."""

    before: Instant
    runs: EndedRuns
    age: int
    """How long such rows are kept, in milliseconds; 0 if their number decides."""


class Pruner:
    """Deletes ended runs, skipped ticks and expired records in small batches.

    Once a minute, it reads the retention rules and decides what is too old: see ``rules.retention``. Without
    rules that is one purge of everything that is older than ``retention`` ms. Each round also deletes records
    that have expired. The size of the batches, and the rest between them, depend on how long the last batch
    took.

    Before it deletes anything, it records the instant before which the history is incomplete.
    """

    def __init__(self, store: Store, retention: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._store = store
        self._retention = retention
        self._clock = clock
        self._noted: dict[tuple[str, str], Instant] = {}
        self._tasks: deque[_Task] = deque()
        self._batch = FIRST_BATCH
        self._next_round: Instant = 0
        self._swept: dict[tuple[object, ...], Instant] = {}
        """By sweep that spares runs: the instant before which it has nothing left to delete. Without it, each
        purge would read the spared runs again."""
        self._swept_at: Instant = 0

    def step(self, now: Instant) -> Instant:
        if not self._next_round - PURGE_EVERY <= now < self._next_round:
            self._next_round = now + PURGE_EVERY
            before = self._oldest_flow(now)
            held = rules.held_runs(now, self._retention)
            # The steps of a flow under way still need the results of those that have ended.
            self._tasks = deque(
                _holding(task._replace(before=min(task.before, before)), held) if task.runs.states else task
                for task in self._plan(now)
            )
        while self._tasks:
            task = self._tasks.popleft()
            self._note(task)
            began = self._clock()
            purged = self._store.purge(task.before, self._batch, self._runs(task))
            took = self._clock() - began
            if task.runs.spared:
                # Runs of code-only schedules that are held now are looked at again: they go soon.
                edges = (held.before for held in task.runs.held if held.mark == CODE)
                self._swept[_identity(task)] = min([purged.until, *edges])
            if purged.until < task.before:
                # The others first: a long backlog of one tenant must not keep the rest from being purged.
                self._tasks.append(_continued(task, purged.until))
            elif not purged.deleted:
                continue
            self._adapt(took, purged.deleted)
            # Firing and claiming are more urgent than a long backlog of old rows.
            rest = min(max(round(_REST * took * 1000), _SHORTEST_REST), _LONGEST_REST)
            return min(now + rest, self._next_round) if self._tasks else self._next_round
        return self._next_round

    def _oldest_flow(self, now: Instant) -> Instant:
        """Return when the oldest flow was made that has not ended; the end of time if there is none.

        A flow that has not ended for a month counts no more: it must not keep all history.
        """
        running = every_run(self._store, RunQuery(states=("running",), without=LARGE_FIELDS, limit=_PAGE))
        since = now - _LONGEST_FLOW
        begun = (run.created_at for run in running if is_begun(run))
        return min((created_at for created_at in begun if created_at >= since), default=LAST)

    def _plan(self, now: Instant) -> Iterator[_Task]:
        known = rules.read_rules(self._store.find_records(rules.KIND))
        if not known:
            yield _Task(now - self._retention, EVERYTHING, self._retention)
            return
        if abs(now - self._swept_at) >= _AGAIN:
            self._swept.clear()
            self._swept_at = now
        yield _Task(now - self._retention, EndedRuns(states=(), others=True), self._retention)
        for sweep in rules.sweeps(known, self._retention, now):
            runs = EndedRuns(states=sweep.states, tenant=sweep.tenant, spared=sweep.spared)
            yield _Task(sweep.before, runs, sweep.age)
        for rule in rules.counted(known):
            assert rule.most is not None
            states = rules.states_of(rule)
            if self._store.ended_at(rule.most + 1, rule.tenant, states) is None:
                continue
            last = self._store.ended_at(rule.most, rule.tenant, states)
            if last is not None:
                yield _Task(rules.newest_counted(last, now), EndedRuns(states=states, tenant=rule.tenant), 0)

    def _runs(self, task: _Task) -> EndedRuns:
        since = self._swept.get(_identity(task)) if task.runs.spared else None
        return task.runs if since is None else replace(task.runs, since=max(since, task.runs.since or since))

    def _adapt(self, took: float, deleted: int) -> None:
        if took > _SLOW:
            self._batch = max(SMALLEST_BATCH, self._batch // 2)
        elif took < _QUICK and deleted >= self._batch:
            self._batch = min(LARGEST_BATCH, self._batch * 2)

    def _note(self, task: _Task) -> None:
        place = (_TENANT, _FOR_ALL) if task.runs.tenant is None else (task.runs.tenant, _FOR_TENANT)
        noted = self._noted.get(place)
        if noted is None or task.before > noted:
            part = max(1, task.age // _NOTED_PART)
            self._noted[place] = _note_purge(self._store, place, -(-task.before // part) * part)


def _holding(task: _Task, held: Sequence[rules.Held]) -> _Task:
    """Return a task that keeps the runs that are held; many tasks are about older runs only."""
    younger = tuple(each for each in held if each.before < task.before)
    return task._replace(runs=replace(task.runs, held=younger)) if younger else task


def _continued(task: _Task, until: Instant) -> _Task:
    """Return the rest of a task. In the same round, it does not read again the runs that are held."""
    return task._replace(runs=replace(task.runs, since=until)) if task.runs.held and until > FIRST else task


def _identity(task: _Task) -> tuple[object, ...]:
    """Return what a sweep has in common with that of the minute before."""
    return (task.age, task.runs.states, task.runs.spared)


def purged_before(store: Store, tenant: str) -> Instant | None:
    """Return the instant before which nodes may have deleted history of a tenant; None if they have deleted
    none."""
    records = (store.get_record(_KIND, _TENANT, _FOR_ALL), store.get_record(_KIND, tenant, _FOR_TENANT))
    return max((noted for record in records if record and (noted := _read(record)) is not None), default=None)


def _note_purge(store: Store, place: tuple[str, str], before: Instant) -> Instant:
    """Record that history before an instant is deleted, unless a later instant is recorded; return the
    recorded one."""
    tenant, key = place
    while True:
        present = store.get_record(_KIND, tenant, key)
        noted = None if present is None else _read(present)
        if noted is not None and noted >= before:
            return noted
        version = 1 if present is None else present.version + 1
        record = Record(kind=_KIND, tenant=tenant, key=key, body=str(before), version=version)
        if store.put_record(record, None if present is None else present.version):
            return before


def _read(record: Record) -> Instant | None:
    try:
        return int(record.body)
    except ValueError:
        return None  # edited by hand: the next purge writes it again
