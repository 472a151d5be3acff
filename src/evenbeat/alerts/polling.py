"""Conditions that leave no signal: the watch asks the store whether they hold, in each of its turns.

Each condition is read only if a rule has it, and at most once a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.alerts.turns import KnownNode, TurnBody
from evenbeat.core.alerts import ConditionKind
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.node.presence import LiveNode, live_nodes
from evenbeat.observe.phrases import utc_time
from evenbeat.observe.reasons import lack_reason
from evenbeat.rules.alert_rules import Subject
from evenbeat.rules.conditions import Condition
from evenbeat.rules.firing import may_be_stuck
from evenbeat.rules.incidents import Finding
from evenbeat.rules.refusals import NOTE
from evenbeat.rules.ticks import spread_delay
from evenbeat.rules.waiting import takers, why_no_taker
from evenbeat.stores.base import LARGE_FIELDS, QueueCounts, RunQuery, ScheduleQuery, Store
from evenbeat.stores.pages import cursor_at, every_run, every_schedule

POLLED: tuple[ConditionKind, ...] = ("late", "stuck", "queue", "no_node", "node_lost", "store_unsafe")
"""The kinds of conditions that are polled."""

_PAGE = 500
_MOST_ROWS = 2_000
"""How many schedules, or runs, are read for one condition in one turn."""
_QUEUE_PERIOD = 60_000
"""A queue gets fewer if more runs ended than came due in this time."""
_CHECK_SERVER_EVERY = 300_000
_LONGEST_GAP = 30_000
"""If no turn looked at the nodes for longer, a node that vanished meanwhile may have been stopped."""


class Findings(NamedTuple):
    """The subjects for which a condition holds."""

    found: tuple[Finding, ...]
    is_complete: bool = True
    """Whether the condition holds for no other subject."""


class Poller:
    """Reads what polled conditions depend on. ``begin`` starts a turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._server_checked_at: Instant | None = None
        self._now: Instant = 0
        self._shortest = 0
        self._queues: list[QueueCounts] | None = None
        self._waiting: tuple[list[RunRecord], bool] | None = None
        self._nodes: list[LiveNode] | None = None
        self._rows: dict[tuple[str, str], ScheduleRecord] = {}

    def begin(self, now: Instant, conditions: Iterable[Condition]) -> None:
        """Forget what was read in the turn before. ``conditions`` are all that this turn asks for."""
        waits = [each.number for each in conditions if each.kind in ("late", "no_node")]
        self._now, self._shortest = now, min(waits, default=0)
        self._queues = self._waiting = self._nodes = None
        self._rows = {}

    def find(self, condition: Condition, before: TurnBody) -> Findings | None:
        """Return the subjects for which a condition holds; None if it was not looked at in this turn."""
        if condition.kind == "late":
            return self._late(condition.number)
        if condition.kind == "no_node":
            return self._without_node(condition.number)
        if condition.kind == "stuck":
            return self._stuck(condition.number)
        if condition.kind == "queue":
            return self._growing(condition.number)
        if condition.kind == "node_lost":
            return self._lost_nodes(before)
        return self._unsafe_store()

    def nodes(self) -> list[LiveNode]:
        """Return the live nodes."""
        if self._nodes is None:
            self._nodes = live_nodes(self._store)
        return self._nodes

    def known_nodes(self) -> dict[str, KnownNode]:
        """Return the live nodes as the next turn needs them."""
        return {node.key: KnownNode(node.expires or 0, node.host) for node in self.nodes()}

    # -- conditions ----------------------------------------------------------------------------------------

    def _late(self, bound: int) -> Findings:
        query = ScheduleQuery(states=("active",), wakes_before=self._now - bound, limit=_PAGE)
        rows = list(islice(every_schedule(self._store, query), _MOST_ROWS))
        self._rows |= {row.key: row for row in rows}
        runs, is_complete = self._waiting_runs()
        late = [run for run in runs if run.run_at < self._now - bound]
        self._read_rows(late)
        found: dict[Subject, Finding] = {}
        # The oldest run of a subject replaces newer ones, and a tick that has not fired replaces runs.
        for run in sorted(late, key=lambda each: each.run_at, reverse=True):
            subject = self._subject_of(run)
            reason = "a run is due, and has not started"
            found[subject] = Finding(subject, reason, run.run_at, run.id, run.tick)
        notes = {(note.tenant, note.key): note.body for note in self._store.find_records(NOTE)}
        waiting = self._waiting_rows(notes, bound)
        due = [(row, row.wake_at or 0) for row in rows]
        due += [(row, (row.next_tick or 0) + spread_delay(row)) for row in waiting]
        for row, since in due:
            reason = f"the tick of {utc_time(row.next_tick or since)} has not fired"
            if (note := notes.get(row.key)) is not None:
                reason = f"{reason}: {note}"
            subject = schedule_subject(row)
            found[subject] = Finding(subject, reason, since, tick=row.next_tick)
        return Findings(tuple(found.values()), is_complete and len(rows) < _MOST_ROWS)

    def _waiting_rows(self, notes: Mapping[tuple[str, str], str], bound: int) -> list[ScheduleRecord]:
        """Return the active schedules that nodes could not fire for longer than ``bound``, and that wait."""
        rows = list(schedules_of(self._store, list(notes)[:_MOST_ROWS])) if notes else []
        late = [
            row
            for row in rows
            if row.state == "active"
            and may_be_stuck(row, self._now)
            and row.next_tick is not None
            and row.next_tick + spread_delay(row) < self._now - bound
        ]
        self._rows |= {row.key: row for row in late}
        return late

    def _without_node(self, bound: int) -> Findings:
        nodes = [node.taker for node in self.nodes()]
        runs, is_complete = self._waiting_runs()
        found: dict[tuple[str, str], Finding] = {}
        for run in sorted(runs, key=lambda each: each.run_at, reverse=True):
            if run.run_at < self._now - bound and not takers(run, nodes):
                reason = lack_reason(why_no_taker(run.task, nodes), run.task, run.queue)
                subject = Subject("task", run.task, run.tenant, task=run.task)
                found[run.tenant, run.task] = Finding(subject, reason, run.run_at, run.id, run.tick)
        return Findings(tuple(found.values()), is_complete)

    def _stuck(self, bound: int) -> Findings:
        limit = self._now - bound
        query = RunQuery(states=("running",), until=limit, without=LARGE_FIELDS, limit=_PAGE)
        runs = list(islice(every_run(self._store, query), _MOST_ROWS))
        stuck = [run for run in runs if run.started_at is not None and run.started_at < limit]
        self._read_rows(stuck)
        reason = f"an attempt has been running for over {write_duration(bound)}"
        found = tuple(
            Finding(
                self._subject_of(run)._replace(kind="run", name=run.id),
                reason,
                run.started_at or 0,
                run.id,
                run.tick,
            )
            for run in stuck
        )
        return Findings(found, len(runs) < _MOST_ROWS)

    def _growing(self, bound: int) -> Findings:
        found = tuple(
            Finding(
                Subject("queue", counts.queue),
                f"{counts.due:,} due runs wait, and they are not getting fewer",
                counts.oldest_due or self._now,
            )
            for counts in self._queue_counts()
            if counts.due >= bound and counts.ended <= counts.came_due
        )
        return Findings(found)

    def is_full(self, queue: str, bound: int) -> bool:
        """Return whether so many due runs wait in a queue, also if they are getting fewer."""
        return any(counts.queue == queue and counts.due >= bound for counts in self._queue_counts())

    def _lost_nodes(self, before: TurnBody) -> Findings:
        if self._now - before.nodes_at > _LONGEST_GAP:
            return Findings(())
        alive = {node.key for node in self.nodes()}
        # A node that vanished before its record expired has deleted it: it was stopped.
        lost = {
            name: node
            for name, node in before.nodes.items()
            if name not in alive and node.expires <= self._now
        }
        found = tuple(
            Finding(
                Subject("node", name),
                "the node stopped heartbeating" + (f"; it ran on {node.host}" if node.host else ""),
                node.expires,
            )
            for name, node in sorted(lost.items())
        )
        return Findings(found)

    def _unsafe_store(self) -> Findings | None:
        last = self._server_checked_at
        if last is not None and last <= self._now < last + _CHECK_SERVER_EVERY:
            return None
        bad = [setting for setting in self._store.server() if setting.level != "ok"]
        self._server_checked_at = self._now
        if not bad:
            return Findings(())
        reason = "; ".join(
            f"{each.name} is {each.value}" + (f": {each.hint}" if each.hint else "") for each in bad
        )
        return Findings((Finding(Subject("store", "store"), reason, self._now),))

    # -- reading -------------------------------------------------------------------------------------------

    def _queue_counts(self) -> list[QueueCounts]:
        if self._queues is None:
            self._queues = self._store.count_queues(self._now, self._now - _QUEUE_PERIOD)
        return self._queues

    def _waiting_runs(self) -> tuple[list[RunRecord], bool]:
        """Return due runs that wait, and whether these are all that have waited for the shortest bound.

        Of a long queue it reads the newest runs and, behind these, those that are old enough.
        """
        if self._waiting is None:
            limit = self._now - self._shortest
            queues = [
                counts.queue
                for counts in self._queue_counts()
                if counts.oldest_due is not None and counts.oldest_due < limit
            ]
            runs: dict[str, RunRecord] = {}
            is_complete = True
            for queue in queues:
                query = RunQuery(states=("queued",), queue=queue, without=LARGE_FIELDS, limit=_PAGE)
                read = list(islice(every_run(self._store, query), _MOST_ROWS))
                if len(read) == _MOST_ROWS:
                    is_complete = False
                    older = replace(query, cursor=cursor_at(limit))
                    read += islice(every_run(self._store, older), _MOST_ROWS)
                runs |= {run.id: run for run in read if run.run_at < limit}
            self._waiting = list(runs.values()), is_complete
        return self._waiting

    def _read_rows(self, runs: Iterable[RunRecord]) -> None:
        """Read the schedules of runs, for their tags and pauses."""
        keys = {(run.tenant, run.schedule) for run in runs if run.schedule is not None} - self._rows.keys()
        self._rows |= {row.key: row for row in schedules_of(self._store, keys)}

    def _subject_of(self, run: RunRecord) -> Subject:
        row = None if run.schedule is None else self._rows.get((run.tenant, run.schedule))
        if row is not None:
            return schedule_subject(row)
        return run_subject(run.tenant, run.schedule, run.task)


def schedule_subject(row: ScheduleRecord) -> Subject:
    """Return the subject of a schedule, with what rules and windows compare."""
    return Subject(
        "schedule", row.name, row.tenant, row.name, row.task, row.tags, is_paused=row.state == "paused"
    )


def run_subject(tenant: str, schedule: str | None, task: str) -> Subject:
    """Return the subject of a run whose schedule is not known: the schedule's name, or the task."""
    if schedule is None:
        return Subject("task", task, tenant, task=task)
    return Subject("schedule", schedule, tenant, schedule, task)


def schedules_of(store: Store, keys: Iterable[tuple[str, str]]) -> Iterator[ScheduleRecord]:
    """Read schedules by (tenant, name), without deleted ones."""
    wanted = sorted(set(keys))
    for at in range(0, len(wanted), _PAGE):
        part = tuple(wanted[at : at + _PAGE])
        yield from every_schedule(store, ScheduleQuery(keys=part, limit=_PAGE))
