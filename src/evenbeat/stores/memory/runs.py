"""Runs of the store in memory: added, settled, lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Statistics, Transition
from evenbeat.errors import InvalidValue
from evenbeat.rules.dependencies import FOLLOWER, Follower, Success
from evenbeat.rules.firing import Planned, wakes_on_run_end
from evenbeat.stores.base import Lost, check_limit
from evenbeat.stores.decisions import (
    added,
    frees_slot,
    joint_verdict,
    parts,
    passes,
    status_of,
    verdict,
    with_transition,
)
from evenbeat.stores.dependencies import effects
from evenbeat.stores.memory.state import Key, MemoryState


class MemoryRuns(MemoryState):
    """Adds and settles runs."""

    def add_runs(self, runs: Sequence[RunRecord], before: Instant | None = None) -> list[bool]:
        with self._lock:
            if before is not None and self.now() >= before:
                return [False] * len(runs)
            return [self._add(run) for run in runs]

    def add_runs_within(
        self, connection: object, runs: Sequence[RunRecord], before: Instant | None = None
    ) -> list[RunRecord]:
        raise InvalidValue(
            "a store in memory cannot join a transaction",
            field="within",
            value=connection,
            hint="enqueue after the commit, or use PostgreSQL or SQLite; in tests, use virtual time: "
            "evenbeat.testing.virtual(app)",
        )

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._lock:
            return [self._settle(transition) for transition in transitions]

    def _settle(self, transition: Transition) -> bool:
        decision = joint_verdict(transition, self._verdict) if transition.ends else self._verdict(transition)
        if decision == "apply":
            for part in parts(transition):
                self._change(part)
        return decision != "refuse"

    def _verdict(self, transition: Transition) -> Literal["apply", "repeat", "refuse"]:
        run = self._runs.get(transition.run)
        if run is None:
            return "refuse"
        decision = verdict(status_of(run), transition, self.now())
        if decision == "apply" and transition.gate is not None:
            row = self._schedules.get(transition.gate[:2])
            if not passes(
                transition, {} if row is None else {row.key: (row.generation, row.revision, row.fire_seq)}
            ):
                return "refuse"
        return decision

    def _change(self, transition: Transition) -> None:
        run = self._runs[transition.run]
        status = status_of(run)
        ended = with_transition(run, transition, self.now())
        self._store(ended)
        if frees_slot(status, transition):
            self.hint()
        for following in transition.adds:
            self._add(following)
        self._records.add(transition.records)
        if transition.counts is not None:
            key = (transition.counts.tenant, transition.counts.schedule)
            before = self._statistics.get(key) or Statistics(tenant=key[0], schedule=key[1])
            self._statistics[key] = added(before, transition.counts)
            row = None if transition.wakes is None else self._schedules.get(key)
            if transition.counts.success_count and row is not None and row.followers:
                self._wake_followers(row, Success(run.id, transition.tick, ended.finished_at or self.now()))
        if transition.wakes is not None:
            self._wake(transition.wakes)
        if transition.gate is not None and transition.gate_fires is not None:
            row = self._schedules.get(transition.gate[:2])
            if row is not None:
                self._apply(Planned(replace(row, fire_seq=row.fire_seq + 1)))

    def _wake(self, key: Key) -> None:
        schedule = self._schedules.get(key)
        if schedule is not None and wakes_on_run_end(schedule):
            self._apply(Planned(replace(schedule, wake_at=schedule.next_tick)))
            self.hint()

    def _wake_followers(self, row: ScheduleRecord, success: Success) -> None:
        rows = [self._schedules.get((row.tenant, name)) for name in row.followers.split()]
        present = [Follower(*(getattr(each, name) for name in FOLLOWER)) for each in rows if each is not None]
        done = effects({row.key: [success]}, {row.key: row.followers}, present, self.now())
        self._records.add(done.records)
        for wake in done.wakes:
            follower = self._schedules[wake.key]
            fire_seq = follower.fire_seq + wake.has_records
            self._apply(Planned(replace(follower, wake_at=wake.wake_at, fire_seq=fire_seq)))
        if done.wakes_any:
            self.hint()

    def lost_runs(self, ended_by: Instant, limit: int) -> Lost:
        check_limit(limit)
        ended_by = min(ended_by, self.now())
        with self._lock:
            running = [self._runs[run_id] for run_id in self._running]
        running.sort(key=lambda run: (run.lease_until or 0, run.id))
        ended = sum(1 for run in running if (run.lease_until or 0) <= ended_by)
        runs = tuple(running[: min(ended, limit)])
        return Lost(runs, running[len(runs)].lease_until if len(runs) < len(running) else None)
