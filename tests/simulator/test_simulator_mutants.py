"""Stores that are broken on purpose: the simulator finds each of them, or it is too weak."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, FINAL_STATES, CatchUp, RunRecord, ScheduleRecord, Transition
from evenbeat.rules import retention
from evenbeat.rules.code_only import CODE, GRACE, HELD, MEMORY
from evenbeat.rules.dependencies import PENDING, Facts, Success
from evenbeat.rules.firing import Active, Planned, needs_active
from evenbeat.rules.limits import Limits, Usage
from evenbeat.stores.base import (
    EVERYTHING,
    Claim,
    Claimed,
    EndedRuns,
    Fired,
    PlanFunction,
    Purged,
    Write,
    Written,
)
from evenbeat.stores.decisions import added, status_of, verdict, with_transition
from evenbeat.stores.dependencies import read_facts
from tests.simulator import MemoryBackend, Options, SimulationFailed, WatchedMemory, simulate
from tests.simulator.simulation import DEFAULT, with_code_only

# Each is caught within 15 seeds, most by the first; this leaves room for changes of the simulator.
MOST_SEEDS = 100


class InSteps(WatchedMemory):
    """Fires in steps that others can come between, as without a transaction."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        now = min(now, self.now())
        fired = []
        for schedule in list(islice(self.due_rows(now), limit)):
            active = self._active_runs(schedule.key) if needs_active(schedule) else ()
            facts = self.facts(schedule)
            planned = plan(schedule, now, active, *facts)
            self.step("  fire_due/planned")
            is_same = self.is_as_planned(schedule, active) and self.knows(schedule, facts)
            if is_same and self.write(schedule, planned):
                fired.append(planned)
        return Fired(tuple(fired), self._next_wake())

    def due_rows(self, now: Instant) -> Iterator[ScheduleRecord]:
        rows = sorted(self._schedules.values(), key=lambda row: row.key)
        return (row for row in rows if row.wake_at is not None and row.wake_at <= now)

    def facts(self, schedule: ScheduleRecord) -> tuple[Facts, ...]:
        return read_facts((schedule,), self._last_successes, self._pending).get(schedule.key, ())

    def knows(self, schedule: ScheduleRecord, facts: tuple[Facts, ...]) -> bool:
        """Whether what was planned with is still true of other schedules."""
        return self.facts(schedule) == facts

    def is_as_planned(self, before: ScheduleRecord, active: tuple[Active, ...]) -> bool:
        """Whether the runs that were planned with are the ones that are active now."""
        return not needs_active(before) or self._active_runs(before.key) == active

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        """Gated, and at once: this is the correct one."""
        if self._schedules[before.key].version != before.version:
            return False
        self._apply(planned)
        return True


class WaitsForTheDead(InSteps):
    """Writes that a tick waits for a run which has ended since it was planned: its end wakes nobody."""

    def is_as_planned(self, before: ScheduleRecord, active: tuple[Active, ...]) -> bool:
        return True


class OverlooksSuccesses(InSteps):
    """Writes a plan that has not seen a success which was settled since."""

    def knows(self, schedule: ScheduleRecord, facts: tuple[Facts, ...]) -> bool:
        return True


class SpendsFirst(InSteps):
    """Deletes the records of successes, and then adds their runs: a crash in between loses them."""

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        if self._schedules[before.key].version != before.version:
            return False
        for identity in planned.spent:
            self._records.drop(*identity)
        self.step("  fire_due/spent")
        return super().write(before, planned._replace(spent=()))


class SpendsWithoutFiring(WatchedMemory):
    """Deletes the records of successes that still wait."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        def spend(
            schedule: ScheduleRecord, at: Instant, active: tuple[Active, ...], *known: Facts
        ) -> Planned:
            planned = plan(schedule, at, active, *known)
            every = tuple((PENDING, schedule.tenant, each.key) for facts in known for each in facts.pending)
            return planned._replace(spent=every)

        return super().fire_due(now, limit, spend)


class LeavesSuccessesBehind(WatchedMemory):
    """Adds the record of a success without counting: a user who has not seen it ends what it waits for."""

    def _wake_followers(self, row: ScheduleRecord, success: Success) -> None:
        before = {name: self._schedules.get((row.tenant, name)) for name in row.followers.split()}
        super()._wake_followers(row, success)
        for known in before.values():
            if known is not None:
                told = self._schedules[known.key]
                self._schedules[known.key] = replace(told, fire_seq=known.fire_seq)


class TellsFollowersLater(WatchedMemory):
    """Settles a success, and then tells its followers: a crash in between loses it."""

    def _wake_followers(self, row: ScheduleRecord, success: Success) -> None:
        self.step("  settle_runs/settled")
        super()._wake_followers(self._schedules[row.key], success)


class LetsFollowersSleep(WatchedMemory):
    """Records a success for its followers, and wakes none of them."""

    def _wake_followers(self, row: ScheduleRecord, success: Success) -> None:
        before = {name: self._schedules.get((row.tenant, name)) for name in row.followers.split()}
        super()._wake_followers(row, success)
        self._schedules |= {each.key: each for each in before.values() if each is not None}


class NeverWakes(WatchedMemory):
    """The end of a run does not wake the schedule that waits for it."""

    def _wake(self, key: tuple[str, str]) -> None:
        pass


class WakesByAnOldClock(WatchedMemory):
    """Wakes a schedule if its tick was due when the transaction began: a tick may have come due since."""

    def _wake(self, key: tuple[str, str]) -> None:
        row = self._schedules.get(key)
        if row is not None and row.next_tick is not None and row.next_tick <= self.now() - 10_000:
            super()._wake(key)


class CheckThenInsert(InSteps):
    """Looks whether the run is there and adds it: no unique id, and nothing gates it."""

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        missing = [run for run in planned.runs if run.id not in self._runs]
        self.step("  fire_due/checked")
        for run in missing:
            # Without a unique id there are then two rows.
            self._add(run if run.id not in self._runs else replace(run, id=f"{run.id}-again"))
        self._apply(planned._replace(runs=()))
        return True


class InsertThenAdvance(InSteps):
    """Adds the runs under their unique ids, then advances the schedule by compare-and-set."""

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        for run in planned.runs:
            self._add(run)
        self.step("  fire_due/inserted")
        return super().write(before, planned._replace(runs=()))


class AdvanceThenInsert(InSteps):
    """The other way round: a crash in between loses the ticks."""

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        if not super().write(before, planned._replace(runs=(), skipped=())):
            return False
        self.step("  fire_due/advanced")
        self._apply(Planned(self._schedules[before.key], planned.runs, planned.skipped))
        return True


class FiresByNextTick(InSteps):
    """Fires if the next tick is what it was: an edit or a pause in between is overwritten."""

    def write(self, before: ScheduleRecord, planned: Planned) -> bool:
        if self._schedules[before.key].next_tick != before.next_tick:
            return False
        self._apply(planned)
        return True


class WritesByNextTick(WatchedMemory):
    """Accepts a user's change if the next tick is what it was."""

    def _put(self, write: Write) -> Written:
        wanted = write.planned.schedule
        current = self._schedules.get(wanted.key)
        if current is not None and write.expect is not None and current != wanted:
            # What the writer saw: the row it read had this next tick unless the write moved it.
            read = self._read_by_version.get((wanted.key, write.expect))
            if read is not None and read.next_tick == current.next_tick:
                write = Write(write.planned, current.version)
        return super()._put(write)

    def __init__(self, clock: object) -> None:
        super().__init__(clock)  # type: ignore[arg-type]
        self._read_by_version: dict[object, ScheduleRecord] = {}

    def _apply(self, planned: Planned) -> None:
        super()._apply(planned)
        self._read_by_version[planned.schedule.key, planned.schedule.version] = planned.schedule


class NoFence(WatchedMemory):
    """A result is taken whatever attempt it is of."""

    def _settle(self, transition: Transition) -> bool:
        run = self._runs.get(transition.run)
        unfenced = transition if run is None else replace(transition, attempt=run.attempt, claim=run.claim)
        return super()._settle(unfenced)


class TwiceCompleted(WatchedMemory):
    """A result is taken whatever state the run is in."""

    def _settle(self, transition: Transition) -> bool:
        every = (*ACTIVE_STATES, *FINAL_STATES)
        return super()._settle(replace(transition, expect=every))


class WholeRecords(WatchedMemory):
    """Reads the run, decides, and writes all of it back a moment later."""

    def settle_runs(self, transitions: object) -> list[bool]:
        return [self._settle(transition) for transition in transitions]  # type: ignore[attr-defined]

    def _settle(self, transition: Transition) -> bool:
        run = self._runs.get(transition.run)
        if run is None:
            return False
        status = status_of(run)
        decision = verdict(status, transition, self.now())
        if decision != "apply":
            return decision == "repeat"
        self.step("  settle_runs/decided")
        self._store(with_transition(run, transition, self.now()))
        if transition.counts is not None:
            key = (transition.counts.tenant, transition.counts.schedule)
            self._statistics[key] = added(self.statistics([key])[0], transition.counts)
        if transition.wakes is not None:
            self._wake(transition.wakes)
        return True


class CountsTwice(WatchedMemory):
    """A repetition is recognised, but counted."""

    def _settle(self, transition: Transition) -> bool:
        run = self._runs.get(transition.run)
        if run is not None and run.settled == transition.token and transition.counts is not None:
            key = (transition.counts.tenant, transition.counts.schedule)
            self._statistics[key] = added(self.statistics([key])[0], transition.counts)
        return super()._settle(transition)


class ForgetsDeleted(WatchedMemory):
    """Deleting a schedule removes its row: a namesake starts with generation 1 again."""

    def _apply(self, planned: Planned) -> None:
        super()._apply(planned)
        if planned.schedule.state == "deleted":
            del self._schedules[planned.schedule.key]


class ForgetsDeletedLater(WatchedMemory):
    """Purge removes tombstones, and with them the watermark."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        for key, row in list(self._schedules.items()):
            if row.state == "deleted" and row.updated_at < finished_before:
                del self._schedules[key]
        return super().purge(finished_before, limit, runs)


class PurgesAllStates(WatchedMemory):
    """Purges ended runs of all states, whatever states are selected."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return super().purge(finished_before, limit, replace(runs, states=EVERYTHING.states))


class PurgesAllTenants(WatchedMemory):
    """Purges runs of all tenants, even if one is selected."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return super().purge(finished_before, limit, replace(runs, tenant=None))


class PurgesSpared(WatchedMemory):
    """Purges runs of tenants that are spared."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return super().purge(finished_before, limit, replace(runs, spared=()))


class PurgesTheLedger(WatchedMemory):
    """Purges skipped ticks, even if only runs are selected."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return super().purge(finished_before, limit, replace(runs, others=True))


class PurgesWaiting(WatchedMemory):
    """Purges by age, whatever the run's state."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        for run in [run for run in self._runs.values() if run.created_at < finished_before]:
            del self._runs[run.id]
            for active in self._active.values():
                active.pop(run.id, None)
        return super().purge(finished_before, limit, runs)


class TrustsTheNode(WatchedMemory):
    """Believes a clock that is ahead."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        clock, self._clock = self._clock, lambda: now
        try:
            return super().fire_due(now, limit, plan)
        finally:
            self._clock = clock


class SameAttempt(WatchedMemory):
    """A claim does not count the attempt up."""

    def _store(self, run: RunRecord) -> None:
        before = self._runs.get(run.id)
        if before is not None and before.state == "queued" and run.state == "running" and before.attempt > 0:
            run = replace(run, attempt=before.attempt)
        super()._store(run)


class ClaimsInSteps(WatchedMemory):
    """Looks for runs, then takes them: two workers may look at once."""

    def claim_runs(self, claim: Claim) -> Claimed:
        now = min(claim.now, self.now())
        if claim.token in self._claims:
            return super().claim_runs(claim)
        found = sorted(
            (run for run in self._runs.values() if run.state == "queued" and run.run_at <= now),
            key=lambda run: (-run.priority, run.run_at, run.id),
        )[: claim.limit]
        self.step("  claim_runs/found")
        taken = [
            replace(
                run,
                state="running",
                attempt=run.attempt + 1,
                worker=claim.worker,
                claim=claim.token,
                lease_until=now + claim.lease,
                started_at=now,
            )
            for run in found
        ]
        for run in taken:
            self._store(run)
        self._claims[claim.token] = [run.id for run in taken]
        return Claimed(tuple(taken), self._queued.next_due(claim))


class ClaimsAnew(WatchedMemory):
    """A repeated claim takes other runs: no worker knows of the runs in the lost reply."""

    def claim_runs(self, claim: Claim) -> Claimed:
        self._claims.pop(claim.token, None)
        return super().claim_runs(claim)


class Oversleeps(WatchedMemory):
    """Tells a worker of what is due, not of what will be: retries wait for the next hint."""

    def claim_runs(self, claim: Claim) -> Claimed:
        claimed = super().claim_runs(claim)
        is_due = claimed.next_due is not None and claimed.next_due <= self.now()
        return claimed if is_due else claimed._replace(next_due=None)


class IgnoresOverlap(WatchedMemory):
    """Fires as if no run were active."""

    def _active_runs(self, key: tuple[str, str]) -> tuple[()]:
        return ()


class ForgetsTheLedger(WatchedMemory):
    """Skipped ticks leave no trace."""

    def _apply(self, planned: Planned) -> None:
        super()._apply(planned._replace(skipped=()))


class RefusesButWrites(WatchedMemory):
    """A refused change adds its runs all the same."""

    def _put(self, write: Write) -> Written:
        written = super()._put(write)
        if not written.accepted:
            for run in write.planned.runs:
                self._add(run)
        return written


class LimitsInSteps(WatchedMemory):
    """Counts the running runs, then claims: two workers may count at once."""

    def claim_runs(self, claim: Claim) -> Claimed:
        counted = super()._running_cohorts(self._limits())
        self.step("  claim_runs/counted")
        self._counted = counted
        return super().claim_runs(claim)

    def _running_cohorts(self, limits: Limits) -> Counter[str]:
        return self._counted


class CountsLeases(WatchedMemory):
    """Counts the runs whose leases have not ended: a frozen worker may renew its lease later."""

    def _running_cohorts(self, limits: Limits) -> Counter[str]:
        live = (self._runs[run_id] for run_id in self._running)
        cohorts = (limits.cohort(run) for run in live if (run.lease_until or 0) > self.now())
        return Counter(cohort for cohort in cohorts if cohort is not None)


class CountsItsOwn(WatchedMemory):
    """Counts the runs that were claimed under a limit: others were running when it was set."""

    def _running_cohorts(self, limits: Limits) -> Counter[str]:
        cohorts = (self._runs[run_id].cohort for run_id in self._running)
        return Counter(cohort for cohort in cohorts if cohort is not None)


class ForgetsBuckets(WatchedMemory):
    """Does not write what a claim took from a rate."""

    def _buckets(self) -> dict[str, str]:
        return {}


class LeavesMisfits(WatchedMemory):
    """Leaves runs where an earlier limit has put them."""

    def _move_misfits(self, claim: Claim, limits: Limits, now: Instant) -> None:
        pass


class ForgetsSlots(WatchedMemory):
    """Tells no worker when a rate admits the next run."""

    def _next_due(self, claim: Claim, usage: Usage | None) -> Instant | None:
        return super()._next_due(claim, None)


class KeepsTheCohort(WatchedMemory):
    """Leaves a run that is moved to another task in the cohort of its old one."""

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._lock:
            before = {each.run: self._runs.get(each.run) for each in transitions if each.task is not UNSET}
            answers = super().settle_runs(transitions)
            for run_id, run in before.items():
                now = self._runs.get(run_id)
                if run is not None and now is not None and now.state == "queued" and now.task != run.task:
                    self._store(replace(now, cohort=run.cohort))
            return answers


class MovesRunning(WatchedMemory):
    """Moves a run to another task, though a worker has claimed it meanwhile."""

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        with self._lock:
            answers = super().settle_runs(transitions)
            for each in transitions:
                run = self._runs.get(each.run)
                if each.task is not UNSET and run is not None and run.state == "running":
                    self._store(replace(run, task=each.task))
            return answers


class BendsTheRules(WatchedMemory):
    """Plans a schedule as if its catch-up policy said something else."""

    @abstractmethod
    def bent(self, policy: CatchUp) -> CatchUp:
        """Return the policy by which it plans."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        def bend(schedule: ScheduleRecord, at: Instant, *known: object) -> Planned:
            planned = plan(replace(schedule, catch_up=self.bent(schedule.catch_up)), at, *known)
            return planned._replace(schedule=replace(planned.schedule, catch_up=schedule.catch_up))

        return super().fire_due(now, limit, bend)


class CatchesUpAtOnce(BendsTheRules):
    """Fires missed ticks as fast as it can."""

    def bent(self, policy: CatchUp) -> CatchUp:
        return replace(policy, rate=None)


class RunsOldTicks(BendsTheRules):
    """Fires missed ticks however old they are."""

    def bent(self, policy: CatchUp) -> CatchUp:
        return replace(policy, max_age=None)


class OverstaysItsRate(BendsTheRules):
    """Holds missed ticks back for twice as long as the rate asks."""

    def bent(self, policy: CatchUp) -> CatchUp:
        rate = policy.rate
        return policy if rate is None else replace(policy, rate=replace(rate, period=2 * rate.period))


class ForgetsTheCaughtUp(WatchedMemory):
    """A resume that catches up moves the watermark, and its runs are lost."""

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        return super().put_schedules([self.without_runs(write) for write in writes])

    def without_runs(self, write: Write) -> Write:
        before, planned = self._schedules.get(write.planned.schedule.key), write.planned
        is_resume = before is not None and before.state == "paused" and planned.schedule.state == "active"
        return write._replace(planned=planned._replace(runs=())) if is_resume else write


class CatchesUpTwice(ForgetsTheCaughtUp):
    """A resume that catches up adds its runs, and leaves the watermark where the pause began."""

    def without_runs(self, write: Write) -> Write:
        before, planned = self._schedules.get(write.planned.schedule.key), write.planned
        is_resume = before is not None and before.state == "paused" and planned.schedule.state == "active"
        if before is None or not is_resume or not planned.runs:
            return write
        back = replace(planned.schedule, next_tick=before.next_tick, wake_at=before.next_tick)
        return write._replace(planned=planned._replace(schedule=back))


DEPENDENCY_MUTANTS: tuple[type[WatchedMemory], ...] = (
    LeavesSuccessesBehind,
    OverlooksSuccesses,
    SpendsFirst,
    SpendsWithoutFiring,
    TellsFollowersLater,
    LetsFollowersSleep,
)


class KeepsOldCopies(WatchedMemory):
    """Plans a schedule anew when its calendar changes, and keeps the old copy of it."""

    def _apply(self, planned: Planned) -> None:
        row = planned.schedule
        present = self._schedules.get(row.key)
        if present is not None and present.calendars and row.calendars and present.trigger == row.trigger:
            planned = planned._replace(schedule=replace(row, calendars=present.calendars))
        super()._apply(planned)


class KeepsTheNextTick(WatchedMemory):
    """Copies a changed calendar, and keeps the next tick by the old one."""

    def _apply(self, planned: Planned) -> None:
        row = planned.schedule
        present = self._schedules.get(row.key)
        if (
            present is not None
            and present.calendars != row.calendars
            and present.trigger == row.trigger
            and present.generation <= row.generation
            and present.state == row.state == "active"
        ):
            kept = replace(row, next_tick=present.next_tick, wake_at=present.wake_at)
            planned = planned._replace(schedule=kept)
        super()._apply(planned)


class ForgetsRemovedTicks(WatchedMemory):
    """Records no tick that a calendar removed."""

    def _apply(self, planned: Planned) -> None:
        kept = tuple(row for row in planned.skipped if row.reason != "calendar")
        super()._apply(planned._replace(skipped=kept))


CALENDAR_MUTANTS: tuple[type[WatchedMemory], ...] = (KeepsOldCopies, KeepsTheNextTick, ForgetsRemovedTicks)

LIMIT_MUTANTS: tuple[type[WatchedMemory], ...] = (
    LimitsInSteps,
    CountsLeases,
    CountsItsOwn,
    ForgetsBuckets,
    LeavesMisfits,
    ForgetsSlots,
    KeepsTheCohort,
    MovesRunning,
)

MUTANTS: tuple[type[WatchedMemory], ...] = (
    CheckThenInsert,
    InsertThenAdvance,
    AdvanceThenInsert,
    FiresByNextTick,
    WritesByNextTick,
    NoFence,
    TwiceCompleted,
    WholeRecords,
    CountsTwice,
    ForgetsDeleted,
    ForgetsDeletedLater,
    PurgesAllStates,
    PurgesAllTenants,
    PurgesSpared,
    PurgesTheLedger,
    PurgesWaiting,
    TrustsTheNode,
    SameAttempt,
    ClaimsInSteps,
    ClaimsAnew,
    Oversleeps,
    IgnoresOverlap,
    ForgetsTheLedger,
    RefusesButWrites,
    WaitsForTheDead,
    NeverWakes,
    WakesByAnOldClock,
    CatchesUpAtOnce,
    RunsOldTicks,
    OverstaysItsRate,
    ForgetsTheCaughtUp,
    CatchesUpTwice,
)


def first_caught(
    mutant: type[WatchedMemory], most: int, options: Options = DEFAULT
) -> SimulationFailed | None:
    """The first seed that finds the mutant out."""
    for seed in range(most):
        try:
            simulate(seed, partial(MemoryBackend, kind=mutant), options)
        except SimulationFailed as failure:
            return failure
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_store_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant, MOST_SEEDS) is not None


@pytest.mark.parametrize("mutant", LIMIT_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_store_that_breaks_limits_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant, MOST_SEEDS, DEFAULT._replace(limits=True)) is not None


@pytest.mark.parametrize("mutant", DEPENDENCY_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_store_that_breaks_dependencies_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant, MOST_SEEDS, DEFAULT._replace(dependencies=True)) is not None


def test_dependencies_are_kept_when_the_steps_of_firing_are_gated() -> None:
    assert first_caught(InSteps, 50, DEFAULT._replace(dependencies=True)) is None


@pytest.mark.parametrize("mutant", CALENDAR_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_store_that_breaks_calendars_is_caught(mutant: type[WatchedMemory]) -> None:
    assert first_caught(mutant, MOST_SEEDS, DEFAULT._replace(calendars=True)) is not None


class PurgesHeld(WatchedMemory):
    """Deletes also runs that are held."""

    def purge(self, finished_before: Instant, limit: int, runs: EndedRuns = EVERYTHING) -> Purged:
        return super().purge(finished_before, limit, replace(runs, held=()))


def test_a_store_that_deletes_runs_that_are_held_is_caught() -> None:
    assert first_caught(PurgesHeld, MOST_SEEDS, with_code_only(DEFAULT)) is not None


@pytest.mark.parametrize(
    "held",
    [
        lambda *_: (),
        # The grace of a schedule may be longer than that of the pruner's node.
        lambda now, _: (retention.Held(CODE, now - 2 * GRACE),),
        lambda now, _: (retention.Held(MEMORY, now - HELD),),
    ],
    ids=["no rule", "the default grace", "another mark"],
)
def test_a_purge_that_ignores_late_nodes_is_caught(
    held: Callable[[Instant, int], tuple[retention.Held, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "held_runs", held)
    assert first_caught(WatchedMemory, MOST_SEEDS, with_code_only(DEFAULT)) is not None


def test_firing_in_steps_is_kept_when_a_compare_and_set_gates_the_write() -> None:
    """The steps alone break nothing: what the mutants leave out does."""
    assert first_caught(InSteps, 100) is None
