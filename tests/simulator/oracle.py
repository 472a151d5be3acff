"""The oracle: checks every commit against the one before, and keeps a history that stores purge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from evenbeat.core.dependencies import parse_after
from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate, write_rate
from evenbeat.core.records import (
    ACTIVE_STATES,
    FINAL_STATES,
    FORMAT,
    RunRecord,
    ScheduleRecord,
    Skipped,
    Statistics,
    Transition,
)
from evenbeat.rules.dependencies import predecessors
from evenbeat.rules.firing import CLOCKS_APART, WAIT_CHECK
from evenbeat.rules.flow_parts import is_begun, is_step
from evenbeat.rules.ticks import spread_delay
from evenbeat.stores.base import Claim, Claimed, EndedRuns, Write, Written
from evenbeat.stores.decisions import may_be_repetition
from evenbeat.stores.rows import FIRED_FIELDS
from tests.simulator.backends import Key, View
from tests.simulator.backfill_oracle import BackfillOracle
from tests.simulator.code_oracle import CodeOracle
from tests.simulator.dependency_oracle import DependencyOracle, is_follower
from tests.simulator.fault_proxy import Call
from tests.simulator.flow_oracle import FlowOracle
from tests.simulator.history import History, is_paused
from tests.simulator.limit_oracle import LimitOracle
from tests.simulator.violation import Violation

# The changes that a call may make to an existing run. Every call but a claim and a purge may add runs.
_MAY_CHANGE_RUNS = frozenset(("put_schedules", "fire_due", "claim_runs", "settle_runs"))
_MAY_ADD_RUNS = frozenset(("put_schedules", "fire_due", "add_runs", "settle_runs"))
_SAME_FOR_LIFE = (
    "tenant",
    "schedule",
    "generation",
    "tick",
    "cause",
    "coalesced",
    "kind",
    "payload",
    "queue",
    "priority",
    "execution",
    "created_at",
)
# A claim that meets another claim of limited runs says that it should be repeated so many ms later.
SOON = 100


def _rate_of(schedule: ScheduleRecord) -> Rate | None:
    """Return the rate of a schedule that fires more than one of the ticks that are overdue."""
    is_single = schedule.overlap == "queue" or (
        schedule.catch_up.kind == "latest" and schedule.overlap != "queue_all"
    )
    return None if is_single else schedule.catch_up.rate


def _may_be_held_by_rate(schedule: ScheduleRecord) -> bool:
    """Return whether the row sleeps no longer than its catch-up rate allows."""
    rate, fired = _rate_of(schedule), schedule.last_fire
    if rate is None or fired is None or schedule.next_tick is None or schedule.wake_at is None:
        return False
    longest = max(1_000, -(-rate.period // rate.count))
    return schedule.next_tick <= fired and schedule.wake_at <= fired + longest


class Oracle:
    """Compares each state of the store with the one before. Raises ``Violation``."""

    def __init__(self) -> None:
        self._schedules: dict[Key, ScheduleRecord] = {}
        self._runs: dict[str, RunRecord] = {}
        self._skipped: dict[Key, list[Skipped]] = {}
        self._statistics: dict[Key, Statistics] = {}
        self.histories: dict[Key, History] = {}
        self.ever: set[str] = set()
        """The ids of all runs that have ever existed."""
        self.ends: Counter[Key] = Counter()
        """How many runs of each schedule have ended."""
        self.tokens: set[tuple[str, str]] = set()
        """The runs and tokens of all transitions that were applied."""
        self.executed: dict[tuple[str, str | None, int], str] = {}
        """The node that executed each (run, claim, attempt)."""
        self.claims: dict[str, Call] = {}
        """The token of each claim that took runs, and the last call in which it did."""
        self.limits = LimitOracle()
        self.dependencies = DependencyOracle()
        self.unwoken: set[Key] = set()
        """Schedules with runs that were settled without their rows."""
        self.flows = FlowOracle({})
        self.code = CodeOracle()
        self.backfills = BackfillOracle()
        self.changes = 0
        """How many schedules and runs were seen to change."""

    def history(self, key: Key) -> History:
        if key not in self.histories:
            self.histories[key] = History(key)
        return self.histories[key]

    def begin(self, call: Call) -> None:
        """Note what a call finds in the store of which users limit the runs."""
        if call.name == "claim_runs":
            call.limits = self.limits.present
            queued = (run for run in self._runs.values() if run.state == "queued")
            call.queued = {run.id: (run.attempt, run.settled) for run in queued}

    def remember(self, call: Call) -> None:
        """Note the schedules that a call finds in a store with dependencies."""
        call.begun = dict(self._schedules)

    # The content of the store.

    def observe(self, view: View, call: Call, now: Instant) -> None:
        """Check the store: this call may have committed."""
        self.limits.learn(view.limits)
        self.dependencies.pending = view.pending
        # Schedules first: a run is checked against the schedule it was written with.
        self._observe_schedules(view, call, now)
        self._observe_runs(view, call, now)
        self.dependencies.hand_over(view)
        self.backfills.observe(view)
        self._observe_skipped(view, call)
        self._observe_statistics(view, call)
        self.dependencies.check_pending(view)
        if call.name in ("fire_due", "settle_runs"):
            self._check_nothing_waits_in_vain(view, now)
        if call.name == "put_schedules":
            keys = [write.planned.schedule.key for write in call.argument]
            call.rows = {key: view.schedules.get(key) for key in keys}
        elif call.name == "claim_runs":
            claim: Claim = call.argument
            self.limits.observe(view, call)
            call.held = {
                run.id: run
                for run in view.runs.values()
                if run.claim == claim.token and run.state == "running"
            }
            call.has_held.update(call.held)
            queued = (
                run
                for run in view.runs.values()
                if run.state == "queued" and run.queue in claim.queues and run.format <= FORMAT
            )
            if call.queued is not None:
                # A run that came later, or came back, has woken the workers.
                before = call.queued
                queued = (run for run in queued if before.get(run.id) == (run.attempt, run.settled))
            starts = (self.limits.latest_start(run, view, call, now) for run in queued)
            call.next_due = min((start for start in starts if start is not None), default=None)

    def _observe_schedules(self, view: View, call: Call, now: Instant) -> None:
        seen = self._schedules
        for key, row in view.schedules.items():
            before = seen.get(key)
            if row is not before and row != before:
                self.changes += 1
                self._schedule_changed(key, before, row, call, now)
                seen[key] = row
        if len(view.schedules) != len(seen):
            key = min(seen.keys() - view.schedules.keys())
            raise Violation(f"{call.name} removed the row of schedule {key[1]}", key[1])

    def _schedule_changed(
        self, key: Key, before: ScheduleRecord | None, row: ScheduleRecord, call: Call, now: Instant
    ) -> None:
        if call.name == "put_schedules":
            self._schedule_written(key, before, row, call)
            return
        if before is None:
            raise Violation(f"{call.name} made a schedule {key[1]}", key[1])
        if replace(before, wake_at=row.wake_at) == row:
            return
        if call.name == "settle_runs" and is_follower(before) and row.fire_seq > before.fire_seq:
            if replace(before, wake_at=row.wake_at, fire_seq=row.fire_seq) == row:
                return  # a success: users who have not seen it must not write
        if call.name == "settle_runs" and replace(before, fire_seq=row.fire_seq) == row:
            parts = [part for item in call.argument for part in _parts(item)]
            gates = [part.gate for part in parts if part.gate_fires is not None]
            if any(gate is not None and gate[:2] == key for gate in gates):
                return  # a run became active again: users who have not seen it must not write
        fired = replace(before, **{name: getattr(row, name) for name in FIRED_FIELDS})
        if call.name != "fire_due" or fired != row:
            raise Violation(f"{call.name} changed the definition of {key[1]}", key[1])
        is_paused_now = before.state == "paused" and (before.paused_until or now + 1) > now
        if is_paused_now and not is_follower(before):
            raise Violation(f"{key[1]} fired while it was paused", key[1])
        if row.fire_seq <= before.fire_seq:
            raise Violation(f"{key[1]} fired, but its version {row.version} did not grow", key[1])
        call.fired_from[key] = before

    def _check_rate(self, run: RunRecord, key: Key, before: ScheduleRecord) -> None:
        """Check that a tick which was left at the last fire came no faster than the catch-up rate allows."""
        rate, fired = _rate_of(before), before.last_fire
        assert run.tick is not None
        if rate is None or fired is None or run.tick + spread_delay(before) > fired:
            return
        together = sum(
            other.created_at == fired and other.cause == "tick" and (other.tenant, other.schedule) == key
            for other in self._runs.values()
        )
        apart = run.created_at - fired
        if apart < -CLOCKS_APART:
            return  # by that clock, the last fire has not been yet: it was set back
        if apart * rate.count < rate.period * max(together, 1):
            raise Violation(f"{key[1]} caught up after {apart} ms, faster than {write_rate(rate)}", key[1])

    def _schedule_written(
        self, key: Key, before: ScheduleRecord | None, row: ScheduleRecord, call: Call
    ) -> None:
        write: Write = next(write for write in call.argument if write.planned.schedule.key == key)
        if row != write.planned.schedule:
            raise Violation(f"{key[1]} became something else than what was written", key[1])
        if write.expect != (None if before is None else before.version):
            is_now = None if before is None else before.version
            raise Violation(f"a write of {key[1]} expected {write.expect}, but it was {is_now}", key[1])
        if before is not None:
            # The wake-up is not part of the version: a write without a change may set it back.
            moved = replace(before, wake_at=row.wake_at) != row
            if moved and (row.version <= before.version or row.generation < before.generation):
                raise Violation(f"{key[1]} went from {before.version} to {row.version}", key[1])
            intent = call.intent
            unasked = intent is not None and intent.kind not in ("resume", "delete")
            if intent is not None and unasked and row.state != "paused" and is_paused(before, intent.now):
                raise Violation(f"{key[1]} was paused and is {row.state}: nobody resumed it", key[1])
        call.written.add(key)
        call.before[key] = before
        if call.intent is not None:
            self.history(key).apply(call.intent, before, row)

    def _observe_runs(self, view: View, call: Call, now: Instant) -> None:
        seen = self._runs
        added: list[RunRecord] = []
        for run_id, run in view.runs.items():
            before = seen.get(run_id)
            if run is before or run == before:
                continue
            self.changes += 1
            if before is None:
                added.append(run)
            else:
                self._run_changed(before, run, call)
                self.flows.changed(before, run, call.node)
                if run.state == "succeeded" and before.state != "succeeded" and run.schedule is not None:
                    self.dependencies.succeeded(run, view, call.begun, now)
                if before.state in FINAL_STATES and run.state in ACTIVE_STATES and run.schedule is not None:
                    key = (run.tenant, run.schedule)
                    self._check_overlap(view, key, view.schedules.get(key))
            seen[run_id] = run
        if len(view.runs) != len(seen):
            for run_id in sorted(seen.keys() - view.runs.keys()):
                self._run_gone(seen.pop(run_id), call)
        for run in added:
            self._run_added(run, view, call, now)
        self.flows.check(view.runs, call.node)

    def _run_added(self, run: RunRecord, view: View, call: Call, now: Instant) -> None:
        if call.name not in _MAY_ADD_RUNS or run.state != "queued" or run.attempt != 0:
            raise Violation(f"{call.name} added run {run.id} as {run.state}, attempt {run.attempt}", run.id)
        call.added.add(run.id)
        self.flows.added(run)
        self.backfills.added(run)
        if self.code.knows(run.schedule):
            self.code.added(run, now)
        elif run.schedule is not None:
            key = (run.tenant, run.schedule)
            is_after = run.cause == "tick" and is_follower(view.schedules.get(key))
            if is_after:
                self.dependencies.added(run, key)
            elif run.tick is not None and run.cause == "tick":
                self._tick_fired(self.history(key), run, now)
            # A change fires overdue ticks by the rules from before it.
            before = call.before.get(key)
            deleted = before is None or before.state == "deleted"
            policies = view.schedules.get(key) if deleted else before
            self._check_overlap(view, key, policies)
            if run.cause == "tick" and policies is not None and not is_after:
                if policies.after:
                    self.dependencies.check_tick(run, policies, call.fired_from.get(key, policies), view)
                self._check_age(run, policies)
                self._check_rate(run, key, call.fired_from.get(key, policies))
        self.ever.add(run.id)

    def _tick_fired(self, history: History, run: RunRecord, now: Instant) -> None:
        assert run.tick is not None
        assert run.generation is not None
        if run.tick > now or run.created_at < run.tick or run.created_at > now:
            raise Violation(
                f"{run.id} fired early: the store's clock is at {now}, it says {run.created_at}", run.id
            )
        identity = (run.generation, run.tick)
        if identity in history.fired:
            raise Violation(f"tick {run.id} fired twice", run.schedule)
        history.fired.add(identity)

    def _check_age(self, run: RunRecord, schedule: ScheduleRecord) -> None:
        """Check that a tick which fired was not later than the catch-up policy allows."""
        oldest = schedule.catch_up.max_age
        if oldest is None or (schedule.catch_up.kind == "skip" and not schedule.overlap.startswith("queue")):
            return
        assert run.tick is not None
        if schedule.after:
            oldest += parse_after(schedule.after).wait
        if run.created_at - spread_delay(schedule) - run.tick > oldest:
            late = run.created_at - run.tick
            raise Violation(f"{run.id} fired {late} ms late, though at most {oldest} are allowed", run.id)

    def _check_overlap(self, view: View, key: Key, schedule: ScheduleRecord | None) -> None:
        if schedule is None or schedule.state == "deleted":
            return
        if schedule.overlap == "allow" and schedule.max_concurrent is None:
            return
        most = 1 if schedule.overlap != "allow" else schedule.max_concurrent or 1
        active = [
            other.id
            for other in view.runs.values()
            if other.schedule == key[1] and other.tenant == key[0] and other.state in ACTIVE_STATES
        ]
        if len(active) > most:
            policy = schedule.overlap if schedule.overlap != "allow" else f"at most {most}"
            raise Violation(f"overlap {policy}, but {', '.join(sorted(active))} are active", key[1])

    def _check_nothing_waits_in_vain(self, view: View, now: Instant) -> None:
        """Check that a schedule that sleeps with a due tick waits for a run, whose end wakes it."""
        waiting = {
            key
            for key, row in view.schedules.items()
            if row.state == "active"
            and row.next_tick is not None
            and row.wake_at is not None
            and row.wake_at > max(now, row.next_tick + row.spread)
            and not _may_be_held_by_rate(row)
        }
        for key in tuple(waiting):
            row = view.schedules[key]
            if row.after and not self.dependencies.is_met(row, view, now):
                waiting.discard(key)
            names = (row.name, *predecessors(row.trigger, row.after))
            if any((row.tenant, name) in self.unwoken for name in names):
                # A run was settled without the rows of schedules: the tick is planned again soon.
                if (row.wake_at or 0) <= now + WAIT_CHECK + CLOCKS_APART:
                    waiting.discard(key)
        for run in view.runs.values():
            if waiting and run.schedule is not None and run.state in ACTIVE_STATES:
                waiting.discard((run.tenant, run.schedule))
        if waiting:
            name = min(waiting)[1]
            raise Violation(f"{name} sleeps until {view.schedules[min(waiting)].wake_at} for no run", name)

    def _run_changed(self, before: RunRecord, run: RunRecord, call: Call) -> None:
        if call.name not in _MAY_CHANGE_RUNS:
            raise Violation(f"{call.name} changed run {run.id}", run.id)
        for name in _SAME_FOR_LIFE:
            # Only when it begins, the arguments of a flow within a flow are known, and that it is a flow.
            may_change = name in ("payload", "kind") and is_begun(run) and not is_begun(before)
            # A worker that has read the results of other steps tells limits the value of their key.
            is_handed_back = is_step(run) and (before.state, run.state) == ("running", "queued")
            may_change = may_change or (name == "payload" and is_handed_back)
            if getattr(before, name) != getattr(run, name) and not may_change:
                raise Violation(f"{call.name} changed {name} of run {run.id}", run.id)
        step = (before.state, run.state)
        if before.task != run.task and (call.name != "settle_runs" or step != ("queued", "queued")):
            raise Violation(f"{call.name} moved run {run.id}, which was {before.state}", run.id)
        renewed = before.state in FINAL_STATES and run.state == "queued"
        is_flow = (run.kind == "flow" or is_begun(run)) and call.name == "settle_runs"
        if run.attempt != before.attempt + (renewed or step == ("queued", "running")) and not is_flow:
            raise Violation(
                f"{run.id} went from attempt {before.attempt} {before.state} to {run.attempt} {run.state}",
                run.id,
            )
        if run.state == "running" != before.state and call.name != "claim_runs":
            raise Violation(f"{call.name} started run {run.id} without asking its limits", run.id)
        if call.name == "settle_runs":
            self._run_settled(before, run, call)
        elif call.name == "claim_runs":
            claim: Claim = call.argument
            if replace(before, cohort=run.cohort) == run:
                return
            if step != ("queued", "running") or run.claim != claim.token or run.worker != claim.worker:
                raise Violation(f"a claim changed run {run.id} from {before.state} to {run.state}", run.id)
            self._claim_took(claim.token, run, call)
            call.took.add(run.id)
            self.limits.start(run)
        elif replace(before, cancel_requested=True) != run or before.state in FINAL_STATES:
            raise Violation(f"{call.name} changed run {run.id}", run.id)

    def _claim_took(self, token: str, run: RunRecord, call: Call) -> None:
        """Check that a repeated claim takes runs only if it holds none of those that it took before."""
        if self.claims.get(token) is not call:
            if any(other.claim == token and other.state == "running" for other in self._runs.values()):
                raise Violation(f"a repeated claim took run {run.id} besides what it had", run.id)
            self.claims[token] = call

    def _run_settled(self, before: RunRecord, run: RunRecord, call: Call) -> None:
        transitions: list[Transition] = call.argument
        parts = (part for item in transitions for part in _parts(item))
        applied = next((part for part in parts if part.run == run.id and part.token == run.settled), None)
        if applied is None:
            raise Violation(f"settle_runs changed run {run.id} without a transition for it", run.id)
        if applied.attempt != before.attempt or before.state not in applied.expect:
            raise Violation(
                f"{run.id} is at attempt {before.attempt} {before.state}, but a transition for attempt "
                f"{applied.attempt} was accepted",
                run.id,
            )
        if applied.claim != before.claim:
            raise Violation(f"a transition of an earlier run {run.id} was applied to a later one", run.id)
        if run.attempt != before.attempt + applied.renews:
            raise Violation(f"{run.id} went from attempt {before.attempt} to {run.attempt}", run.id)
        if before.state in FINAL_STATES and run.state in FINAL_STATES:
            raise Violation(f"{run.id} was {before.state} and became {run.state}", run.id)
        for name in ("failures", "crashes", "cancel_requested", "task"):
            wanted = getattr(applied, name)
            value = getattr(run, name)
            if value != wanted and value != getattr(before, name):
                raise Violation(f"{name} of run {run.id} became {value}: nobody asked for that", run.id)
        if run.schedule is not None and applied.wakes is None and run.state in FINAL_STATES:
            self.unwoken.add((run.tenant, run.schedule))
        assert run.settled is not None
        call.settled.add((run.id, run.settled))
        self.tokens.add((run.id, run.settled))
        if run.state in FINAL_STATES and run.schedule is not None:
            self.ends[run.tenant, run.schedule] += 1

    def _run_gone(self, run: RunRecord, call: Call) -> None:
        if call.name != "purge" or run.state not in FINAL_STATES or not _is_selected(run, *call.argument):
            raise Violation(f"{call.name} removed run {run.id}, which was {run.state}", run.id)
        self.flows.gone(run)

    def _observe_skipped(self, view: View, call: Call) -> None:
        for key, rows in view.skipped.items():
            seen = self._skipped.get(key, [])
            if len(rows) == len(seen):
                continue
            new, gone = Counter(rows) - Counter(seen), Counter(seen) - Counter(rows)
            if new and call.name not in ("put_schedules", "fire_due"):
                raise Violation(f"{call.name} wrote to the ledger of {key[1]}", key[1])
            for row in gone:
                if call.name != "purge" or row.recorded_at >= call.argument[0] or not call.argument[1].others:
                    raise Violation(f"{call.name} removed {row.reason} ticks from the ledger", key[1])
            if is_follower(view.schedules.get(key)):
                self.dependencies.recorded(key, list(new.elements()))
            else:
                self.history(key).skipped.extend(new.elements())
            self._skipped[key] = list(rows)

    def _observe_statistics(self, view: View, call: Call) -> None:
        for key, row in view.statistics.items():
            if row is self._statistics.get(key):
                continue
            if row.run_count != self.ends[key]:
                raise Violation(
                    f"{call.name}: {row.run_count} runs of {key[1]} are counted, {self.ends[key]} ended",
                    key[1],
                )
            self._statistics[key] = row

    # The answers to nodes.

    def answered(self, call: Call, answer: object, now: Instant) -> None:
        """Check that the answer to a call is true."""
        if call.name == "settle_runs":
            assert isinstance(answer, list)
            for transition, accepted in zip(call.argument, answer, strict=True):
                self._check_settled(transition, accepted, call)
        elif call.name == "put_schedules":
            assert isinstance(answer, list)
            for write, written in zip(call.argument, answer, strict=True):
                self._check_written(write, written, call)
        elif call.name == "add_runs":
            assert isinstance(answer, list)
            for run, is_new in zip(call.argument, answer, strict=True):
                if is_new != (run.id in call.added):
                    raise Violation(f"run {run.id} was answered as new={is_new}", run.id)
        elif call.name == "claim_runs":
            self._check_claimed(call, answer, now)

    def _check_settled(self, transition: Transition, accepted: bool, call: Call) -> None:
        parts = list(_parts(transition))
        # A repetition is known by the ends that it contains: their flow may have gone on since.
        innermost = [part for part in parts if not part.ends]
        if accepted and any((part.run, part.token) not in self.tokens for part in innermost):
            raise Violation(f"a transition of {transition.run} was answered, but not applied", transition.run)
        if not accepted and any((part.run, part.token) in call.settled for part in parts):
            raise Violation(f"a refused transition changed run {transition.run}", transition.run)

    def _check_written(self, write: Write, written: Written, call: Call) -> None:
        key = write.planned.schedule.key
        if written.current != call.rows[key]:
            raise Violation(f"a write was answered with another row than {key[1]}'s", key[1])
        if not written.accepted and key in call.written:
            raise Violation(f"a refused write changed {key[1]}", key[1])
        wanted = write.planned.schedule
        # The wake-up of a row that was written before may have moved since.
        if written.accepted and not may_be_repetition(call.rows[key], wanted):
            raise Violation(f"a write of {key[1]} was answered, but not applied", key[1])

    def _check_claimed(self, call: Call, answer: object, now: Instant) -> None:
        assert isinstance(answer, Claimed)
        ids = [run.id for run in answer.runs]
        if len(set(ids)) != len(ids):
            raise Violation(f"a claim answered a run twice: {', '.join(ids)}", max(ids, key=ids.count))
        # A claim of limited runs may take several commits, between which others end or take over runs.
        is_less = call.queued is not None and call.held.keys() <= set(ids) <= call.took | call.has_held
        if {run.id: run for run in answer.runs} != call.held and not is_less:
            held = ", ".join(sorted(call.held)) or "nothing"
            raise Violation(f"a claim holds {held}, but was answered {', '.join(ids) or 'nothing'}")
        latest = call.next_due
        if latest is not None and call.queued is not None:
            latest = max(latest, now + SOON)
        if latest is not None and (answer.next_due is None or answer.next_due > latest):
            raise Violation(f"a claim returned next_due {answer.next_due}, not {latest}")

    def execute(self, run: RunRecord, node: str) -> None:
        """Note that a worker starts to execute an attempt."""
        before = self.executed.setdefault((run.id, run.claim, run.attempt), node)
        if before != node:
            raise Violation(f"attempt {run.attempt} of {run.id} is executed by {before} and {node}", run.id)
        self.flows.execute(run, self._runs)
        if run.cohort is not None and run.id in self._runs:
            self.limits.execute(self._runs[run.id], run)

    # After the faults have stopped.

    def unfinished(self, now: Instant) -> str | None:
        """Return what is still due at this moment; None if nothing is."""
        for schedule in self._schedules.values():
            if _may_be_held_by_rate(schedule) and (schedule.wake_at or 0) > now:
                continue  # a rate that is slower than the trigger never catches up
            if is_follower(schedule) and schedule.next_tick is None:
                continue
            if schedule.after and (schedule.wake_at or 0) > now:
                continue  # it waits for a predecessor, which may not succeed any more
            if schedule.state == "active" and (schedule.next_tick or 0) + schedule.spread <= now:
                return f"{schedule.name} has not dealt with its tick {schedule.next_tick}"
        if (left := self.dependencies.unfinished() or self.code.unfinished(now)) is not None:
            return left
        if (active := next((run for run in self._runs.values() if _due(run)), None)) is not None:
            return f"run {active.id} is {active.state}"
        return self.backfills.unfinished(now)

    def next_change(self, now: Instant) -> Instant | None:
        """Return when all unfinished work has continued by itself."""
        moments = [self.flows.next_check(run) for run in self._runs.values() if _due(run)]
        moments += [
            row.wake_at
            for row in self._schedules.values()
            if row.wake_at is not None and row.next_tick is not None and row.next_tick <= now
        ]
        # A run that waits for a rate may start after the time of one start.
        moments += [now + self.limits.longest_wait] * any(
            run.run_at <= now for run in self._runs.values() if _due(run)
        )
        return max((moment for moment in moments if moment is not None and moment > now), default=None)

    def check_all(self, now: Instant) -> None:
        """Check the end: every tick is recorded, every run has ended and is counted."""
        self.dependencies.check_all()
        self.backfills.check_all()
        for key, history in self.histories.items():
            if not is_follower(self._schedules.get(key)):
                history.check(self._schedules.get(key), now)
        for key, ended in self.ends.items():
            row = self._statistics.get(key)
            if row is None and self.code.knows(key[1]):
                continue  # of a database, the statistics of rows are read
            if row is None or row.run_count != ended:
                raise Violation(f"{ended} runs of {key[1]} ended, the statistics say {row}", key[1])
        for run in self._runs.values():
            is_task = run.kind == "task" and not is_begun(run)
            identity = (run.id, run.claim, run.attempt)
            if run.state == "succeeded" and is_task and identity not in self.executed:
                raise Violation(f"{run.id} succeeded without being executed", run.id)


def _parts(transition: Transition) -> Iterator[Transition]:
    """Return a transition and those that apply with it."""
    for end in transition.ends:
        yield from _parts(end)
    yield transition


def _due(run: RunRecord) -> bool:
    return run.state in ACTIVE_STATES


def _is_selected(run: RunRecord, before: Instant, runs: EndedRuns) -> bool:
    """Return whether a purge may delete an ended run."""
    is_tenant = run.tenant not in runs.spared if runs.tenant is None else run.tenant == runs.tenant
    return run.state in runs.states and is_tenant and (run.finished_at or 0) < before
