"""The worker: claims runs, hands them to executors, and records how they ended. In batches throughout."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal
from uuid import uuid4

from msgspec.structs import replace

from evenbeat.core.clocks import steady_clock
from evenbeat.core.instants import Instant
from evenbeat.core.options import NODE
from evenbeat.core.records import Kind, LogChunk, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Attempt, Executor, Outcome
from evenbeat.node.attempt_ends import AttemptEnd, decide_end
from evenbeat.node.counting import Counting
from evenbeat.node.flow_work import FlowReports, FlowWork
from evenbeat.node.flows import End, concerns_flow
from evenbeat.node.lanes import Lane
from evenbeat.node.progress import keep_progress
from evenbeat.node.settling import settle_in_parts
from evenbeat.node.signals import Signals
from evenbeat.observe.events import EventKind, Events
from evenbeat.observe.logs import run_fields
from evenbeat.observe.run_logs import refusal
from evenbeat.observe.run_progress import ReportedProgress
from evenbeat.rules import attempts
from evenbeat.rules.limits import with_keys
from evenbeat.stores.base import LARGE_FIELDS, Claim, RunQuery, Store
from evenbeat.tasks.flow import Flow
from evenbeat.tasks.follow_up import follow_up_runs
from evenbeat.tasks.task import ExecutorKind, Task, Tasks

# One call of ``settle_runs``: as many ends as a transaction should hold, and characters of results and
# errors.
SETTLE_BATCH = 1_000
SETTLE_SIZE = 4 << 20
# Milliseconds until the next claim where runs are due and none could be claimed.
_RETRY_CLAIM = 50

# The kinds of ends that carry the result, or the error, of the function.
_RESULTS: tuple[EventKind, ...] = ("succeeded", "failed", "retrying")

_log = logging.getLogger("evenbeat.node.worker")


class Worker:
    """Executes the runs of its tasks.

    ``step`` belongs to the worker's own thread, which alone changes ``held`` and the lanes. Other threads may
    call ``report_outcome``, ``interrupt``, ``give_up``, ``withdraw`` and ``drain``: these leave an entry in a
    queue or a flag for the next step.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        events: Events,
        make_lane: Callable[[ExecutorKind], Lane],
        *,
        name: str,
        queues: tuple[str, ...] = ("default",),
        lease: int = 30_000,
        wake: Callable[[], None] = lambda: None,
        wake_leases: Callable[[], None] = lambda: None,
        wake_backfills: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = steady_clock,
        new_token: Callable[[], str] = lambda: uuid4().hex,
        counting: Counting | None = None,
        signals: Signals | None = None,
        retention: int = NODE["retention"].default,
    ) -> None:
        self._store = store
        self._signals = Signals() if signals is None else signals
        self._counting = counting or Counting()
        self._tasks = tasks
        self._events = events
        self._make_lane = make_lane
        self._lanes: dict[ExecutorKind, Lane] = {}
        self._lane_of: dict[str, Lane] = {}
        self.name = name
        self._queues = queues
        self._lease = lease
        self._retention = retention
        self._wake = wake
        self._clock = clock
        self._new_token = new_token
        self._wake_leases = wake_leases
        """Called when the worker has claimed runs and held none before."""
        self._wake_backfills = wake_backfills
        """Called when the end of a backfill's run is recorded: the next one may be added."""
        self._outcomes: deque[tuple[Attempt, Outcome]] = deque()
        """Reported, in this order, and not decided about yet."""
        self._unrecorded: list[AttemptEnd] = []
        """Decided, and not recorded in the store yet."""
        self._logs: list[LogChunk] = []
        self._over: list[ReportedProgress] = []
        """Reported by attempts that have ended."""
        self.held: dict[tuple[str, int, str | None], Attempt] = {}
        """Claimed, and the end not recorded yet: the attempts whose leases are renewed."""
        reports = FlowReports(events, self._counting, self._signals, wake_backfills, tasks)
        self._flows = FlowWork(store, tasks, reports, signals=self._signals, new_token=new_token)
        self._draining = False
        self.is_drained = False
        """Whether this worker claims nothing more, and has handed back all attempts that had not begun."""
        self._busy = False
        for task in tasks:
            self.add_task(task)

    def add_task(self, task: Task[..., Any]) -> None:
        """Execute the runs of this task, too."""
        lane = self._lanes.get(task.executor)
        if lane is None:
            lane = self._make_lane(task.executor)
            lane.executor.start(self.report_outcome)
        self._lane_of[task.name] = lane
        lane.tasks |= {task.name}
        self._lanes = {**self._lanes, task.executor: lane}

    @property
    def is_processing(self) -> bool:
        return bool(self.held)

    def executor(self, kind: ExecutorKind) -> Executor | None:
        """Return the executor of tasks of this kind; None if there is no such task."""
        lane = self._lanes.get(kind)
        return None if lane is None else lane.executor

    def running(self) -> list[Attempt]:
        """Return the attempts that occupy a slot or wait for one, also those whose end is decided already."""
        return [attempt for lane in self._lanes.values() for attempt in tuple(lane.attempts.values())]

    def report_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take note of how an execution ended. Executors call this, from any thread."""
        attempt.over = self._clock()
        self._outcomes.append((attempt, outcome))
        self._wake()

    def interrupt(self, attempt: Attempt, reason: str) -> None:
        """Ask the function to end, and make it end where its executor can."""
        attempt.control.request_cancel(reason)
        self._lane_of[attempt.run.task].executor.interrupt(attempt)

    def give_up(self, attempt: Attempt, kind: Literal["timeout", "released", "lost"]) -> None:
        """Decide about an attempt whose function still runs; its later result will be ignored."""
        self._outcomes.append((attempt, Outcome(kind)))
        self._wake()

    def withdraw(self, chosen: Iterable[Attempt]) -> None:
        """Hand back those of the attempts that have not begun."""
        for attempt in chosen:
            if attempt.withdraw():
                self.give_up(attempt, "released")

    def drain(self) -> None:
        """Stop claiming, and hand back each attempt that was claimed ahead and has not begun.

        A claim may be under way: ``is_drained`` becomes True when it is over.
        """
        self._draining = True
        self._wake()

    def stop(self) -> None:
        for lane in self._lanes.values():
            lane.executor.stop()

    def step(self, now: Instant) -> Instant | None:
        """Record the attempts that ended, claim runs for the free slots; return when the next run is due."""
        self._record_ends(now)
        self._begin_flows(now)
        if self._draining:
            # In the thread that claims, so that the runs of the last claim are included.
            self.withdraw(self.running())
            self._record_ends(now)
            self.is_drained = True
            return None
        due: Instant | None = None
        for lane in self._lanes.values():
            lane_due = self._claim(lane, now)
            if lane_due is not None and (due is None or lane_due < due):
                due = lane_due
        if self._begin_flows(now):
            due = now
        self._notify_if_idle(now, due)
        return due

    def _begin_flows(self, now: Instant) -> bool:
        """Begin the flows that were claimed; return whether steps of them may be claimed."""
        if not self._flows:
            return False
        started = self._flows.step(now)
        if started:
            self._store.hint()
        return bool(started)

    def _notify_if_idle(self, now: Instant, due: Instant | None) -> None:
        """Emit "idle" once each time that the worker runs out of work."""
        busy = bool(self.held) or (due is not None and due <= now)
        if self._busy and not busy and self._events:
            self._events.publish("idle", now)
        self._busy = busy

    # -- claiming ------------------------------------------------------------------------------------------

    def _claim(self, lane: Lane, now: Instant) -> Instant | None:
        room = lane.room(self._clock())
        if room <= 0 or not lane.tasks:
            return None  # the end of a run wakes this worker
        if lane.claim_token is None:
            # Kept until the store answers: if the answer to a claim is lost, the same token returns the same
            # runs, with leases that began when the claim was first sent.
            lane.claim_token, lane.claim_sent = self._new_token(), self._clock()
        claim = Claim(
            worker=self.name,
            token=lane.claim_token,
            limit=room,
            now=now,
            lease=self._lease,
            tasks=lane.tasks,
            queues=self._queues,
            turn=lane.turn,
        )
        runs, due = self._store.claim_runs(claim)
        # If one of these fails, the same claim is sent again.
        given = self._flows.arguments.complete(runs)
        started = self._without_regrouped(runs, given, now)
        lane.claim_token = None
        if len(started) < len(runs):
            due = now
        if not started:
            # If a run is due, another worker is claiming it, or its row has a newer format: retry soon.
            return due if due is None or due > now else now + _RETRY_CLAIM
        lane.turn = runs[-1].tenant
        was_idle = not self.held
        self._start(lane, started, now)
        if was_idle:
            self._wake_leases()
        return due

    def _without_regrouped(
        self, runs: Sequence[RunRecord], given: Sequence[RunRecord | str], now: Instant
    ) -> list[tuple[RunRecord, RunRecord | str]]:
        """Hand back runs that limits have counted as something else than what they are. Return the others.

        Such a run was stored as a flow and is a task here, or a limit has a key that the step gets from
        another one. A flow that was stored as a task becomes one when it begins.
        """
        left: list[tuple[RunRecord, RunRecord | str]] = []
        back: list[Transition] = []
        for run, complete in zip(runs, given, strict=True):
            kind: Kind | None = None
            payload: str | None = None
            if not run.cancel_requested:
                if run.kind == "flow" and not isinstance(self._tasks.get(run.task), Flow):
                    kind = "task"
                if run.cohort is not None and not isinstance(complete, str):
                    payload = with_keys(run, complete.payload)
            if kind is None and payload is None:
                left.append((run, complete))
            else:
                back.append(attempts.regrouped(run, now, self._new_token(), kind=kind, payload=payload))
        for _ in settle_in_parts(self._store, back, "worker") if back else ():
            pass  # one that is refused stays running until its lease expires
        return left

    def _start(self, lane: Lane, runs: Iterable[tuple[RunRecord, RunRecord | str]], now: Instant) -> None:
        """Hand claimed runs to the lane's executor, except for flows, which have nothing to execute, and for
        those that were cancelled or have expired. Each comes with itself with its arguments, or why it has
        none."""
        fresh: list[Attempt] = []
        begun: list[RunRecord] = []
        for claimed, complete in runs:
            run = claimed if isinstance(complete, str) else complete
            task = self._tasks.get(run.task)
            assert task is not None
            can_run = not run.cancel_requested and not attempts.is_expired(run, now)
            misfit = complete if isinstance(complete, str) else None
            if can_run and misfit is None and isinstance(task, Flow):
                if (misfit := self._flows.misfit(task, run)) is None:
                    self._flows.begin(task, run)
                    begun.append(run)
                    continue
            attempt = Attempt(run, task, lane.claim_sent, self._lease / 1000, self._is_held, self._clock)
            lane.attempts[attempt.identity] = self.held[attempt.identity] = attempt
            if run.cancel_requested:
                self._end_unbegun(attempt, "stopped")
            elif attempts.is_expired(run, now):
                self._end_unbegun(attempt, "expired")
            elif misfit is not None:
                attempt.withdraw()
                self._outcomes.append((attempt, _unfit(complete, misfit)))
                self._wake()
            else:
                fresh.append(attempt)
        self._counting.count_started([*begun, *(attempt.run for attempt in fresh)], now)
        if self._events:
            for run in begun:
                self._events.publish("started", now, run=run)
            for attempt in fresh:
                self._notify(attempt, "started", now)
        lane.executor.submit(fresh)

    def _end_unbegun(self, attempt: Attempt, kind: Literal["stopped", "expired"]) -> None:
        """End a run that was cancelled or expired while it waited in the queue, without executing it."""
        attempt.control.request_cancel("cancelled")
        attempt.withdraw()
        self._outcomes.append((attempt, Outcome(kind)))
        self._wake()

    def _is_held(self, run: RunRecord) -> bool | None:
        """Ask the store whether this worker still holds a run; None if the store does not answer."""
        try:
            found = self._store.find_runs(RunQuery(ids=(run.id,), without=LARGE_FIELDS)).items
        except StoreUnavailable:
            return None
        return any(
            (row.attempt, row.claim, row.state) == (run.attempt, run.claim, "running") for row in found
        )

    # -- recording -----------------------------------------------------------------------------------------

    def _record_ends(self, now: Instant) -> None:
        """Record how attempts ended. If the store is unavailable, the next step retries."""
        while self._outcomes or self._unrecorded or self._logs or self._over:
            size = sum(end.size for end in self._unrecorded)
            while self._outcomes and len(self._unrecorded) < SETTLE_BATCH and size < SETTLE_SIZE:
                if (end := self._decide(*self._outcomes.popleft(), now)) is not None:
                    self._unrecorded.append(end)
                    size += end.size
            self._append_logs()
            self._unrecorded.sort(key=_is_of_flow)
            of_flows = [end for end in self._unrecorded if _is_of_flow(end)]
            plain = len(self._unrecorded) - len(of_flows)
            transitions = [end.transition for end in self._unrecorded[:plain]]
            for answers in settle_in_parts(self._store, transitions, "worker") if transitions else ():
                # Before the next part: if the store fails there, only the remaining ends are repeated.
                recorded, self._unrecorded = (
                    self._unrecorded[: len(answers)],
                    self._unrecorded[len(answers) :],
                )
                self._after_recording(recorded, answers, now)
            if of_flows:
                self._record_steps(of_flows, now)
            # Last: the end of a run matters more.
            self._keep_progress(now)

    def _record_steps(self, ends: list[AttemptEnd], now: Instant) -> None:
        """Record the ends of steps of flows, with what follows from them."""
        wanted = [End(end.attempt.run, end.transition) for end in ends]
        answers, ended, started = self._flows.settling.settle(wanted, now)
        self._unrecorded = []
        self._after_recording(ends, answers, now)
        self._flows.report(ended, now)
        if started and not self._takes_alone(started):
            self._store.hint()

    def _takes_alone(self, started: Sequence[RunRecord]) -> bool:
        """Return whether this worker claims a new run right away, so that no other needs to wake up."""
        (run, *others) = started
        lane = self._lane_of.get(run.task)
        if others or lane is None or self._draining:
            return False
        return run.queue in self._queues and lane.room(self._clock()) > 0

    def _decide(self, attempt: Attempt, outcome: Outcome, now: Instant) -> AttemptEnd | None:
        """Return the attempt's end; None if it was decided before, or another worker has the run."""
        if attempt.over is not None or attempt.withdraw() or attempt.began is None:
            self._lane_of[attempt.run.task].remove(attempt)
        if attempt.is_decided:
            if attempt.is_lost and outcome.kind in ("returned", "raised"):
                self._logs.append(refusal(attempt.run, now))
            return None
        attempt.is_decided = True
        if attempt.progress.value is not None:
            attempt.log.add(f"INFO evenbeat: the progress at the end: {attempt.progress.value}", now)
            self._over.append(attempt.progress)
        self._logs += attempt.log.take(last=True)
        if outcome.kind == "lost":
            attempt.is_lost = True
            self.held.pop(attempt.identity, None)
            self._counting.count("lease_losses")
            self._notify(attempt, "lost", now)
            return None
        end = decide_end(attempt, outcome, now)
        if outcome.following and end.kind == "succeeded":
            adds = follow_up_runs(attempt.run, outcome.following, self._tasks, now)
            end = end._replace(transition=replace(end.transition, adds=adds))
        if self._signals and self._signals.wants(attempt.run, end.transition):
            seconds = _duration(attempt)
            took = None if seconds is None else int(seconds * 1000)
            end = end._replace(transition=self._signals.with_end(attempt.run, end.transition, now, took))
        if end.error is not None and outcome.kind in ("raised", "unfit"):
            end = end._replace(exception=attempt.exception)
        # Its traceback refers to all local variables of the function: keep it until it is reported, not
        # longer.
        attempt.exception = None
        return end

    def _after_recording(self, ends: list[AttemptEnd], answers: list[bool], now: Instant) -> None:
        """Release the attempts, report their ends, and wake other workers for runs that went back."""
        self._counting.count_ended(ends, answers, now)
        self._signals.note_written()
        for end, accepted in zip(ends, answers, strict=True):
            self.held.pop(end.attempt.identity, None)
            late = end._replace(kind="lost", error="the result came too late", exception=None)
            self._report_end(end if accepted else late, now)
        # Other workers may claim these at once, or after their backoff. Stores hint at schedules that waited.
        if any(end.transition.state == "queued" or end.transition.adds for end in ends):
            self._store.hint()
        self._cancel_requeued(ends, answers, now)
        if any(end.attempt.run.cause == "backfill" for end in ends):
            self._wake_backfills()
        if not all(answers):
            refused = [end for end, accepted in zip(ends, answers, strict=True) if not accepted]
            self._note_refused([end.attempt.run for end in refused if end.kind in _RESULTS], now)

    def _note_refused(self, runs: list[RunRecord], now: Instant) -> None:
        """Add a line to the logs of runs that another worker has taken over: the result came too late."""
        if not runs:
            return
        query = RunQuery(ids=tuple(run.id for run in runs), without=LARGE_FIELDS, limit=len(runs))
        found = {run.id: run for run in self._store.find_runs(query).items}
        # The store also refuses a result that it can't write: then this worker still has the run.
        held = {(run.id, run.attempt, run.claim) for run in found.values() if run.state == "running"}
        self._logs += [refusal(run, now) for run in runs if (run.id, run.attempt, run.claim) not in held]

    def _cancel_requeued(self, ends: list[AttemptEnd], answers: list[bool], now: Instant) -> None:
        """Cancel runs that went back to the queue though a cancel request had reached the store meanwhile."""
        requeued = [
            end.transition.run
            for end, accepted in zip(ends, answers, strict=True)
            if accepted and end.transition.state == "queued"
        ]
        if not requeued:
            return
        query = RunQuery(ids=tuple(requeued), states=("queued",), cancel_requested=True, limit=len(requeued))
        found = self._store.find_runs(query).items
        # Every node uses the same token: the second one repeats the transition of the first.
        cancels = [(run, attempts.cancel(run, now, f"asked.{run.id}.{run.attempt}")) for run in found]
        if cancels:
            wanted = [End(run, cancel) for run, cancel in cancels if cancel is not None]
            self._flows.report(self._flows.settling.settle(wanted, now).ended, now)
            self._store.hint()

    # -- run logs ------------------------------------------------------------------------------------------

    def _append_logs(self) -> None:
        """Store the log lines before the end of their run: a reader who sees the end sees all lines."""
        if self._logs:
            self._append(self._logs)
            self._logs = []

    def _append(self, chunks: list[LogChunk]) -> None:
        """Append log lines; if the store refuses them, try halves and drop only the lines that it refuses."""
        try:
            self._store.append_log(chunks)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(chunks) == 1:
                fields = {"component": "worker", "job_id": chunks[0].run}
                _log.error("log lines of a run can't be stored: %s", error, extra=fields)
                return
            middle = len(chunks) // 2
            self._append(chunks[:middle])
            self._append(chunks[middle:])

    def _keep_progress(self, now: Instant) -> None:
        """Store the last progress of attempts that have ended, for as long as their runs are kept."""
        while self._over:
            keep_progress(self._store, self._over[-1], now, self._retention)
            self._over.pop()

    # -- reporting -----------------------------------------------------------------------------------------

    def _report_end(self, end: AttemptEnd, now: Instant) -> None:
        """Log the end of an attempt, and notify listeners."""
        level, message = end.log_line
        if _log.isEnabledFor(level):
            fields = {**run_fields(end.attempt.run), "component": "worker"}
            if (duration := _duration(end.attempt)) is not None:
                fields["duration"] = round(duration, 6)
            if end.error is not None:
                fields["error"] = end.error.partition("\n")[0]
            # The traceback of a payload that does not fit shows nothing of the user's code.
            trace = end.exception if level >= logging.WARNING and end.kind != "released" else None
            _log.log(level, message, extra=fields, exc_info=trace)
        self._notify(end.attempt, end.kind, now, end)

    def _notify(self, attempt: Attempt, kind: EventKind, now: Instant, end: AttemptEnd | None = None) -> None:
        if not self._events:
            return
        text = None if end is None else end.transition.result
        self._events.publish(
            kind,
            now,
            run=attempt.run,
            error=None if end is None else end.error,
            exception=None if end is None else end.exception,
            result=attempt.task.read_result(text) if isinstance(text, str) else None,
            duration=None if (seconds := _duration(attempt)) is None else timedelta(seconds=seconds),
            delay=None if end is None else end.delay,
        )


def _is_of_flow(end: AttemptEnd) -> bool:
    return concerns_flow(end.attempt.run, end.transition)


def _unfit(complete: RunRecord | str, why: str) -> Outcome:
    """Return the outcome of a run that can't begin: it has no arguments, or they do not fit the flow here."""
    if isinstance(complete, str):
        return Outcome("raised", error=why, final="its arguments will not come back")
    return Outcome("unfit", error=why)


def _duration(attempt: Attempt) -> float | None:
    """Return the seconds that the function took; None while it runs, and if it never began."""
    return None if attempt.over is None or attempt.began is None else attempt.over - attempt.began
