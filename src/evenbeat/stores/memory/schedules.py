"""Schedules of the store in memory: written, found and fired."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, Record, ScheduleRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.dependencies import PENDING, Facts, needs_facts
from evenbeat.rules.firing import Planned, needs_active
from evenbeat.rules.refusals import back_off
from evenbeat.stores.base import Fired, Page, PlanFunction, ScheduleQuery, Write, Written, check_limit
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.decisions import Budget, may_be_repetition
from evenbeat.stores.dependencies import each_pending, read_facts
from evenbeat.stores.memory.state import Key, MemoryState
from evenbeat.stores.pages import read_schedule_cursor, schedule_page


class MemorySchedules(MemoryState):
    """Writes, finds and fires schedules."""

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        with self._lock:
            return [self._put(write) for write in writes]

    def _put(self, write: Write) -> Written:
        wanted = write.planned.schedule
        current = self._schedules.get(wanted.key)
        if write.expect != (None if current is None else current.version):
            repeated = may_be_repetition(current, wanted)
            return Written(repeated and all(run.id in self._runs for run in write.planned.runs), current)
        if write.record is not None and not self._records.put(*write.record):
            return Written(False, current)
        self._apply(write.planned)
        return Written(True, wanted)

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
        quarantined: list[Key] = []
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
                    planned = plan(schedule, now, active, *self._facts(schedule))
                except Exception as error:
                    quarantined.append(schedule.key)
                    self._quarantine(schedule, error)
                else:
                    try:
                        self._apply(planned)
                    except RowRefused as error:
                        planned = self._set_aside(schedule, now, error)
                    fired.append(planned)
                    budget.spend(planned)
            return Fired(tuple(fired), self._next_wake(), tuple(quarantined))

    def _facts(self, schedule: ScheduleRecord) -> tuple[Facts, ...]:
        if not needs_facts(schedule):
            return ()
        return read_facts((schedule,), self._last_successes, self._pending)[schedule.key]

    def _last_successes(self, keys: Sequence[Key]) -> dict[Key, Instant | None]:
        return {key: found.last_success for key in keys if (found := self._statistics.get(key)) is not None}

    def _pending(self, keys: Sequence[Key], limit: int) -> dict[Key, Sequence[Record]]:
        return each_pending(partial(self._records.find, PENDING), keys, limit)

    def _due(self, now: Instant) -> Iterator[ScheduleRecord]:
        # A row that was written twice with the same wake-up has two entries, and is due once.
        taken: set[Key] = set()
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

    def _set_aside(self, schedule: ScheduleRecord, now: Instant, error: RowRefused) -> Planned:
        """Let a schedule wait that a subclass has refused to write."""
        planned = back_off(schedule, now, error.reason)
        self._schedules[schedule.key] = planned.schedule
        heapq.heappush(self._wakes, (planned.schedule.wake_at or 0, *schedule.key))
        return planned

    def _quarantine(self, schedule: ScheduleRecord, error: Exception) -> None:
        self._schedules[schedule.key] = replace(schedule, wake_at=None)
        self._records.overwrite("quarantine", schedule.tenant, schedule.name, quarantine_note(error))


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
