"""``MemoryStore``: decides and writes under one lock."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant
from evenbeat.core.records import (
    ACTIVE_STATES,
    FINAL_STATES,
    FORMAT,
    LogChunk,
    Record,
    RunRecord,
    RunState,
    ScheduleRecord,
    Skipped,
    Statistics,
    Transition,
)
from evenbeat.errors import InvalidValue
from evenbeat.rules.firing import Active, Planned, needs_active, wakes_on_run_end
from evenbeat.stores.base import (
    LEFT_OUT,
    Claim,
    Claimed,
    Fired,
    Lost,
    Page,
    PlanFunction,
    QueueCounts,
    RunQuery,
    ScheduleQuery,
    Schema,
    Setting,
    Write,
    Written,
    check_limit,
)
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.decisions import (
    Budget,
    RunStatus,
    added,
    may_be_repetition,
    passes,
    verdict,
    with_transition,
)
from evenbeat.stores.memory.queues import QueuedRuns
from evenbeat.stores.memory.records import MemoryRecords
from evenbeat.stores.pages import read_run_cursor, read_schedule_cursor, run_page, schedule_page
from evenbeat.stores.queue_counts import added_up, of_run
from evenbeat.stores.waking import Waker

_Key = tuple[str, str]
# How many claims can still be repeated: far more than workers make at a time.
_CLAIMS_KEPT = 10_000


class MemoryStore:
    """A store of dictionaries and a lock. Its data ends with the process."""

    def __init__(self, clock: Callable[[], Instant] = wall_clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waker = Waker()
        self._schedules: dict[_Key, ScheduleRecord] = {}
        # Heaps may contain outdated entries, which are recognised when they are popped.
        self._wakes: list[tuple[Instant, str, str]] = []
        self._runs: dict[str, RunRecord] = {}
        self._queued = QueuedRuns(self._runs)
        self._active: dict[_Key, dict[str, None]] = {}
        self._claims: dict[str, list[str]] = {}
        self._skipped: dict[_Key, list[Skipped]] = {}
        self._statistics: dict[_Key, Statistics] = {}
        self._records = MemoryRecords(self.now)
        self._logs: dict[str, dict[tuple[int, int], LogChunk]] = {}

    def open(self) -> None:
        pass

    def open_to_join(self) -> bool:
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()

    def schema(self) -> Schema:
        return Schema(0, 0)

    def server(self) -> list[Setting]:
        return []

    def now(self) -> Instant:
        return self._clock()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        with self._lock:
            return [self._put(write) for write in writes]

    def _put(self, write: Write) -> Written:
        wanted = write.planned.schedule
        current = self._schedules.get(wanted.key)
        if write.expect != (None if current is None else current.version):
            repeated = may_be_repetition(current, wanted)
            return Written(repeated and all(run.id in self._runs for run in write.planned.runs), current)
        self._apply(write.planned)
        return Written(True, wanted)

    def _apply(self, planned: Planned) -> None:
        schedule = planned.schedule
        self._schedules[schedule.key] = schedule
        if schedule.wake_at is not None:
            heapq.heappush(self._wakes, (schedule.wake_at, *schedule.key))
        for run in planned.runs:
            self._add(run)
        if planned.skipped:
            self._skipped.setdefault(schedule.key, []).extend(planned.skipped)
        for run_id in planned.cancels:
            active = self._runs.get(run_id)
            if active is not None and active.state in ACTIVE_STATES:
                self._store(replace(active, cancel_requested=True))
        self._records.add(planned.records)

    def find_schedules(self, query: ScheduleQuery) -> Page[ScheduleRecord]:
        after = read_schedule_cursor(query.cursor)
        with self._lock:
            found = sorted(
                (
                    schedule
                    for key, schedule in self._schedules.items()
                    if (after is None or key > after) and _wanted(schedule, query)
                ),
                key=lambda schedule: schedule.key,
            )
        return schedule_page(found, query.limit)

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        check_limit(limit)
        now = min(now, self.now())
        fired: list[Planned] = []
        quarantined: list[_Key] = []
        with self._lock:
            due = list(islice(self._due(now), limit))
            budget = Budget()
            for schedule in due:
                if budget.is_spent:
                    # It stays due for the next call.
                    heapq.heappush(self._wakes, (schedule.wake_at or 0, *schedule.key))
                    continue
                active = self._active_runs(schedule.key) if needs_active(schedule) else ()
                try:
                    if schedule.damage:
                        raise Unreadable(schedule.damage)
                    planned = plan(schedule, now, active)
                except Exception as error:
                    quarantined.append(schedule.key)
                    self._quarantine(schedule, error)
                else:
                    self._apply(planned)
                    fired.append(planned)
                    budget.spend(planned)
            return Fired(tuple(fired), self._next_wake(), tuple(quarantined))

    def _due(self, now: Instant) -> Iterator[ScheduleRecord]:
        # A row that was written twice with the same wake-up has two entries, and is due once.
        taken: set[_Key] = set()
        while self._wakes and self._wakes[0][0] <= now:
            wake_at, tenant, name = heapq.heappop(self._wakes)
            schedule = self._schedules.get((tenant, name))
            if (tenant, name) in taken:
                continue
            if schedule is not None and schedule.wake_at == wake_at and schedule.format <= FORMAT:
                taken.add(schedule.key)
                yield schedule

    def _next_wake(self) -> Instant | None:
        while self._wakes:
            wake_at, tenant, name = self._wakes[0]
            schedule = self._schedules.get((tenant, name))
            if schedule is not None and schedule.wake_at == wake_at and schedule.format <= FORMAT:
                return wake_at
            heapq.heappop(self._wakes)
        return None

    def _quarantine(self, schedule: ScheduleRecord, error: Exception) -> None:
        self._schedules[schedule.key] = replace(schedule, wake_at=None)
        self._records.overwrite("quarantine", schedule.tenant, schedule.name, quarantine_note(error))

    def add_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        with self._lock:
            return [self._add(run) for run in runs]

    def add_runs_within(self, connection: object, runs: Sequence[RunRecord]) -> list[RunRecord]:
        raise InvalidValue(
            "a store in memory cannot join a transaction",
            field="within",
            value=connection,
            hint="enqueue after the commit, or use PostgreSQL or SQLite; in tests, use virtual time: "
            "evenbeat.testing.virtual(app)",
        )

    def _add(self, run: RunRecord) -> bool:
        if run.id in self._runs:
            return False
        self._store(run)
        return True

    def _store(self, run: RunRecord) -> None:
        self._runs[run.id] = run
        if run.state == "queued":
            self._queued.add(run)
        if run.schedule is not None:
            key = (run.tenant, run.schedule)
            if run.state in ACTIVE_STATES:
                self._active.setdefault(key, {})[run.id] = None
            elif key in self._active:
                self._active[key].pop(run.id, None)

    def _active_runs(self, key: _Key) -> tuple[Active, ...]:
        runs = (self._runs[run_id] for run_id in self._active.get(key, ()))
        return tuple(Active(run.id, run.state, run.cancel_requested) for run in runs)

    def claim_runs(self, claim: Claim) -> Claimed:
        with self._lock:
            runs = self._held(claim) if claim.token in self._claims else self._claim(claim)
            return Claimed(tuple(runs), self._queued.next_due(claim))

    def _held(self, claim: Claim) -> list[RunRecord]:
        """Return the runs of a repeated claim that are still held."""
        held = (self._runs[run_id] for run_id in self._claims[claim.token] if run_id in self._runs)
        return [run for run in held if run.claim == claim.token and run.state == "running"]

    def _claim(self, claim: Claim) -> list[RunRecord]:
        now = min(claim.now, self.now())
        claimed: list[RunRecord] = []
        for run in islice(self._queued.due(claim, now), claim.limit):
            taken = replace(
                run,
                state="running",
                attempt=run.attempt + 1,
                worker=claim.worker,
                claim=claim.token,
                lease_until=self.now() + claim.lease,
                started_at=self.now(),
            )
            # Stored at once: a run that was written twice while it was queued has two entries in its heap.
            self._store(taken)
            claimed.append(taken)
        if claimed:
            self._claims[claim.token] = [run.id for run in claimed]
            if len(self._claims) > _CLAIMS_KEPT:
                del self._claims[next(iter(self._claims))]
        return claimed

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._lock:
            return [self._settle(transition) for transition in transitions]

    def _settle(self, transition: Transition) -> bool:
        run = self._runs.get(transition.run)
        if run is None:
            return False
        status = RunStatus(run.state, run.attempt, run.settled, run.lease_until)
        decision = verdict(status, transition, self.now())
        if decision != "apply":
            return decision == "repeat"
        if transition.gate is not None:
            row = self._schedules.get(transition.gate[:2])
            if not passes(transition, {} if row is None else {row.key: (row.generation, row.revision)}):
                return False
        self._store(with_transition(run, transition, self.now()))
        for following in transition.adds:
            self._add(following)
        self._records.add(transition.records)
        if transition.counts is not None:
            key = (transition.counts.tenant, transition.counts.schedule)
            before = self._statistics.get(key) or Statistics(tenant=key[0], schedule=key[1])
            self._statistics[key] = added(before, transition.counts)
        if transition.wakes is not None:
            self._wake(transition.wakes)
        return True

    def _wake(self, key: _Key) -> None:
        schedule = self._schedules.get(key)
        if schedule is not None and wakes_on_run_end(schedule):
            self._apply(Planned(replace(schedule, wake_at=schedule.next_tick)))
            self.hint()

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        after = read_run_cursor(query.cursor)
        with self._lock:
            candidates = self._runs.values()
            if query.ids is not None:
                candidates = {
                    run_id: self._runs[run_id] for run_id in query.ids if run_id in self._runs
                }.values()
            found = [run for run in candidates if query.matches(run)]
        found.sort(key=lambda run: (-run.created_at, run.id))
        if after is not None:
            found = [run for run in found if (-run.created_at, run.id) > (-after[0], after[1])]
        page = run_page(found, query.limit)
        if not query.without:
            return page
        left_out = {name: LEFT_OUT[name] for name in query.without}
        return Page(tuple(replace(run, **left_out) for run in page.items), page.cursor)

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        check_limit(limit)
        ended_by = min(ended_by, self.now())
        with self._lock:
            running = [run for run in self._runs.values() if run.state == "running"]
        running.sort(key=lambda run: (run.lease_until or 0, run.id))
        ended = sum(1 for run in running if (run.lease_until or 0) <= ended_by)
        runs = tuple(running[: min(ended, limit)])
        return Lost(runs, running[len(runs)].lease_until if len(runs) < len(running) else None)

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        counts: dict[RunState, int] = {}
        with self._lock:
            for run in self._runs.values():
                if tenant is None or run.tenant == tenant:
                    counts[run.state] = counts.get(run.state, 0) + 1
        return counts

    def count_queues(self, now: Instant, since: Instant) -> list[QueueCounts]:
        with self._lock:
            runs = list(self._runs.values())
        return added_up(part for run in runs if (part := of_run(run, now, since)) is not None)

    def find_skipped(
        self,
        tenant: str,
        schedule: str,
        limit: int = 100,
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> list[Skipped]:
        check_limit(limit)
        with self._lock:
            rows = [
                row
                for row in self._skipped.get((tenant, schedule), ())
                if (since is None or row.last >= since) and (until is None or row.first < until)
            ]
        rows.sort(key=lambda row: (row.last, row.first), reverse=True)
        return rows[:limit]

    def statistics(self, schedules: Sequence[tuple[str, str]]) -> list[Statistics]:
        with self._lock:
            return [
                self._statistics.get(key) or Statistics(tenant=key[0], schedule=key[1]) for key in schedules
            ]

    def purge(self, finished_before: Instant, limit: int) -> int:
        check_limit(limit)
        with self._lock:
            old = list(
                islice(
                    (
                        run
                        for run in self._runs.values()
                        if run.state in FINAL_STATES and (run.finished_at or 0) < finished_before
                    ),
                    limit,
                )
            )
            for run in old:
                del self._runs[run.id]
                self._logs.pop(run.id, None)
            gone = len(old)
            for rows in self._skipped.values():
                over = [row for row in rows if row.recorded_at < finished_before][: limit - gone]
                for row in over:
                    rows.remove(row)
                gone += len(over)
            return gone + self._records.purge(finished_before, limit - gone)

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        with self._lock:
            return self._records.get(kind, tenant, key)

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        with self._lock:
            return self._records.put(record, expect)

    def find_records(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        if limit is not None:
            check_limit(limit)
        with self._lock:
            return self._records.find(kind, tenant, start, end, limit)

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        with self._lock:
            return self._records.delete(kind, tenant, key, version)

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        with self._lock:
            for chunk in chunks:
                if chunk.run in self._runs:
                    self._logs.setdefault(chunk.run, {}).setdefault((chunk.attempt, chunk.seq), chunk)

    def read_log(self, run: str) -> list[LogChunk]:
        with self._lock:
            chunks = self._logs.get(run, {})
            return [chunks[key] for key in sorted(chunks)]

    def wait(self, timeout: float) -> bool:
        return self._waker.wait(timeout)

    def hint(self) -> None:
        self._waker.hint()


def _wakes_before(schedule: ScheduleRecord, instant: Instant) -> bool:
    return schedule.wake_at is not None and schedule.wake_at < instant


def _wanted(schedule: ScheduleRecord, query: ScheduleQuery) -> bool:
    return (
        (query.tenant is None or schedule.tenant == query.tenant)
        and (query.name is None or schedule.name == query.name)
        and (query.task is None or schedule.task == query.task)
        and (query.keys is None or schedule.key in query.keys)
        and (query.changed_since is None or schedule.updated_at >= query.changed_since)
        and (query.wakes_before is None or _wakes_before(schedule, query.wakes_before))
        and schedule.state in query.states
    )
