"""Stores that are broken on purpose, over any real one: the fault tests must catch them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Transition
from evenbeat.rules.firing import Active, Planned
from evenbeat.stores.base import Fired, PlanFunction, RunQuery, ScheduleQuery, Store, Write


class Over:
    """Forwards all calls to another store, except those that a subclass overrides."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Unfenced(Over):
    """Accepts the result of any attempt, however late, without comparing it with the present one.

    It accepts each heartbeat, so that no worker notices that its lease is lost.
    """

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        if all(transition.state is UNSET and transition.lease is not UNSET for transition in transitions):
            self._store.settle_runs(transitions)
            return [True] * len(transitions)
        ids = tuple(transition.run for transition in transitions)
        present = {run.id: run for run in self._store.find_runs(RunQuery(ids=ids, limit=len(ids))).items}
        states = ("queued", "running", "succeeded", "failed", "cancelled")
        unfenced = [
            replace(transition, attempt=run.attempt, claim=run.claim, expect=states)
            if (run := present.get(transition.run)) is not None and transition.state == "succeeded"
            else transition
            for transition in transitions
        ]
        return self._store.settle_runs(unfenced)


class Unchecked(Over):
    """Adds the run of a tick if a query finds none: no unique id, and nothing gates the insert."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        now = min(now, self._store.now())
        rows = self._store.find_schedules(ScheduleQuery(states=("active",), limit=1000)).items
        due = [row for row in rows if row.wake_at is not None and row.wake_at <= now][:limit]
        planned = [plan(row, now, ()) for row in due]
        runs: list[RunRecord] = []
        for entry in planned:
            known = self._store.find_runs(RunQuery(schedule=entry.schedule.name, tenant="default", limit=100))
            ticks = {run.tick for run in known.items}
            # Without a unique id there would be two rows; here each row has its own id.
            runs += [replace(run, id=uuid4().hex) for run in entry.runs if run.tick not in ticks]
        self._store.add_runs(runs)
        for row, entry in zip(due, planned, strict=True):
            self._store.put_schedules([Write(Planned(entry.schedule, (), entry.skipped), row.version)])
        upcoming = [entry.schedule.wake_at for entry in planned if entry.schedule.wake_at is not None]
        upcoming += [row.wake_at for row in rows if row not in due and row.wake_at is not None]
        return Fired(tuple(planned), min(upcoming, default=None))


class Overwriting(Over):
    """Fires from a row that was read before, whatever has changed since."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        now = min(now, self._store.now())
        rows = self._store.find_schedules(ScheduleQuery(states=("active",), limit=1000)).items
        due = [row for row in rows if row.wake_at is not None and row.wake_at <= now][:limit]
        planned = [plan(row, now, ()) for row in due]
        time.sleep(0.05)
        for entry in planned:
            query = ScheduleQuery(name=entry.schedule.name, states=("active", "paused", "deleted"))
            present = self._store.find_schedules(query).items[0]
            self._store.put_schedules([Write(entry, present.version)])
        upcoming = [row.wake_at for row in rows if row not in due and row.wake_at is not None]
        return Fired(tuple(planned), min([now + 20, *upcoming]))


class Torn(Over):
    """Advances schedules in one step and adds their runs in another."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        planned: list[Planned] = []

        def alone(schedule: ScheduleRecord, at: Instant, active: tuple[Active, ...]) -> Planned:
            planned.append(plan(schedule, at, active))
            return planned[-1]._replace(runs=())

        fired: Fired = self._store.fire_due(now, limit, alone)
        self._store.add_runs([run for entry in planned for run in entry.runs])
        return fired._replace(planned=tuple(planned))


class Unguarded(Over):
    """Plans as if no run was active."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        return self._store.fire_due(now, limit, lambda schedule, at, _: plan(schedule, at, ()))


class Unwoken(Over):
    """Ends runs without waking the schedules that wait for them."""

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._store.settle_runs([replace(transition, wakes=None) for transition in transitions])


class Deaf(Over):
    """Ends every tenth run without counting its success, so that no follower hears of it."""

    _ended = 0

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        self._ended += 1
        if self._ended % 10 == 0:
            transitions = [replace(transition, counts=None) for transition in transitions]
        return self._store.settle_runs(transitions)


class Halting(Over):
    """Ends every twentieth step of a flow without its flow, which then waits for it."""

    _ended = 0

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers: list[bool] = []
        for transition in transitions:
            self._ended += bool(transition.ends)
            if transition.ends and self._ended % 20 == 0:
                answers.append(all(self._store.settle_runs(transition.ends)))
            else:
                answers += self._store.settle_runs([transition])
        return answers


KINDS: dict[str, Callable[[Store], Any]] = {
    "unfenced": Unfenced,
    "unchecked": Unchecked,
    "overwriting": Overwriting,
    "unguarded": Unguarded,
    "unwoken": Unwoken,
    "torn": Torn,
    "deaf": Deaf,
    "halting": Halting,
}
