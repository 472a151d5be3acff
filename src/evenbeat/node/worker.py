"""The worker: claims runs, has them executed, records how they ended. In batches throughout."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from evenbeat.core.clocks import steady_clock
from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import LogChunk, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Attempt, Executor, Outcome
from evenbeat.node.settling import settle_in_parts
from evenbeat.observe.events import EventKind, Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery, Store
from evenbeat.tasks.task import ExecutorKind, Task, Tasks

# Runs are claimed ahead of their start for so many seconds of work at the present rate: a claim costs a
# commit, and a worker that claims ten short runs at a time does little else.
AHEAD = 0.05
MOST_AHEAD = 500
# What was claimed ahead and not begun for so long is handed back: others may be free for it.
LONGEST_WAIT = 1.0
# One settle: as many as a transaction should hold, and characters of results and errors.
SETTLE_BATCH = 1_000
SETTLE_SIZE = 4 << 20
# Between two looks at what is due and can't be claimed.
_AGAIN = 50

_log = logging.getLogger("evenbeat.node.worker")


class Lane:
    """One way to execute: which tasks go there, how many at once, and what is in hand."""

    def __init__(self, executor: Executor, slots: int) -> None:
        self.executor = executor
        self.tasks: frozenset[str] = frozenset()
        self.slots = slots
        self.token: str | None = None
        """Of a claim that was not answered yet."""
        self.asked = 0.0
        """When that was first sent."""
        self.in_hand: dict[tuple[str, int], Attempt] = {}
        """Claimed, and not ended."""
        self._finished = 0
        self._since = 0.0
        self._rate = 0.0

    def ended(self, attempt: Attempt) -> None:
        if self.in_hand.pop(attempt.key, None) is not None:
            self._finished += 1

    def room(self, now: float) -> int:
        """How many runs to claim now; ``now`` in seconds of a clock that is never set."""
        elapsed = now - self._since
        # Measured over no less than a few steps; a quiet moment forgets the rate of a burst.
        if elapsed >= 0.02:
            self._rate = self._finished / elapsed
            self._finished, self._since = 0, now
        capacity = self.slots + min(MOST_AHEAD, int(self._rate * AHEAD))
        free = capacity - len(self.in_hand)
        # Half at a time, once there is a stock: otherwise each run that ends would ask for one claim.
        return free if len(self.in_hand) < self.slots or free * 2 >= capacity else 0


class _End(NamedTuple):
    """What is to be recorded of an attempt."""

    attempt: Attempt
    transition: Transition
    kind: EventKind
    error: str | None = None
    delay: int | None = None
    exception: BaseException | None = None


class Worker:
    """Executes the runs of the tasks it has.

    ``step`` belongs to the worker's own thread, and so does every change of what is in hand; others may
    call ``ended``, ``interrupt``, ``give_up``, ``withdraw`` and ``drain``, which leave a word for it.
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
        claimed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = steady_clock,
        new_token: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._events = events
        self._make_lane = make_lane
        self._lanes: dict[ExecutorKind, Lane] = {}
        self._lane_of: dict[str, Lane] = {}
        self.name = name
        self._queues = queues
        self._lease = lease
        self._wake = wake
        self._clock = clock
        self._new_token = new_token
        self._claimed = claimed
        """Called when runs were claimed and none was held before."""
        self._ended: deque[tuple[Attempt, Outcome]] = deque()
        self._ends: list[_End] = []
        self._logs: list[LogChunk] = []
        self.held: dict[tuple[str, int], Attempt] = {}
        """Claimed, and what became of it not recorded yet: the leases to keep."""
        self._draining = False
        self.is_drained = False
        """Nothing will be claimed any more, and what was not begun is handed back."""
        self._busy = False
        for task in tasks:
            self.learn(task)

    def learn(self, task: Task[..., Any]) -> None:
        """Execute the runs of this task, too."""
        lane = self._lanes.get(task.executor)
        if lane is None:
            lane = self._make_lane(task.executor)
            lane.executor.start(self.ended)
        self._lane_of[task.name] = lane
        lane.tasks |= {task.name}
        self._lanes = {**self._lanes, task.executor: lane}

    @property
    def is_processing(self) -> bool:
        return bool(self.held)

    def running(self) -> list[Attempt]:
        """Those that occupy an executor or wait for one, also those whose end is decided already."""
        return [attempt for lane in self._lanes.values() for attempt in tuple(lane.in_hand.values())]

    def ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """How an execution ended. Called by executors, from any thread."""
        attempt.over = self._clock()
        self._ended.append((attempt, outcome))
        self._wake()

    def interrupt(self, attempt: Attempt, reason: str) -> None:
        """Ask the function to end, and make it, where its executor can."""
        attempt.control.request_cancel(reason)
        self._lane_of[attempt.run.task].executor.interrupt(attempt)

    def give_up(self, attempt: Attempt, kind: Literal["timeout", "released", "lost"]) -> None:
        """Decide about an attempt that goes on: whatever its function does from now on counts no more."""
        self._ended.append((attempt, Outcome(kind)))
        self._wake()

    def withdraw(self, chosen: Iterable[Attempt]) -> None:
        """Hand back those of them that were not begun."""
        for attempt in chosen:
            if attempt.withdraw():
                self.give_up(attempt, "released")

    def drain(self) -> None:
        """From now on no claims; what was claimed ahead and not begun is handed back.

        A claim may be under way: ``is_drained`` says when none is any more.
        """
        self._draining = True
        self._wake()

    def stop(self) -> None:
        for lane in self._lanes.values():
            lane.executor.stop()

    def step(self, now: Instant) -> Instant | None:
        """Record what ended, claim what there is room for; answers when the next run is due."""
        self._settle(now)
        if self._draining:
            # In the thread that claims: what the last claim brought is seen here.
            self.withdraw(self.running())
            self._settle(now)
            self.is_drained = True
            return None
        due: Instant | None = None
        for lane in self._lanes.values():
            lane_due = self._claim(lane, now)
            if lane_due is not None and (due is None or lane_due < due):
                due = lane_due
        self._note_idleness(now, due)
        return due

    def _note_idleness(self, now: Instant, due: Instant | None) -> None:
        """Once per turn to idle."""
        busy = bool(self.held) or (due is not None and due <= now)
        if self._busy and not busy and self._events:
            self._events.tell("idle", now)
        self._busy = busy

    # -- claiming ------------------------------------------------------------------------------------------

    def _claim(self, lane: Lane, now: Instant) -> Instant | None:
        room = lane.room(self._clock())
        if room <= 0 or not lane.tasks:
            return None  # woken when a run ends
        if lane.token is None:
            # Kept until it is answered: a repetition finds what the lost answer told of, with leases that
            # began when it was first sent.
            lane.token, lane.asked = self._new_token(), self._clock()
        claim = Claim(
            worker=self.name,
            token=lane.token,
            limit=room,
            now=now,
            lease=self._lease,
            tasks=lane.tasks,
            queues=self._queues,
        )
        runs, due = self._store.claim_runs(claim)
        lane.token = None
        if not runs:
            # Due, and not to be had: somebody else's turn, or a row that this version leaves alone.
            return due if due is None or due > now else now + _AGAIN
        idle = not self.held
        fresh: list[Attempt] = []
        for run in runs:
            task = self._tasks.get(run.task)
            assert task is not None
            attempt = Attempt(run, task, lane.asked, self._lease / 1000, self._is_held, self._clock)
            lane.in_hand[attempt.key] = self.held[attempt.key] = attempt
            if run.cancel_requested:
                self._refuse(attempt)
            else:
                fresh.append(attempt)
        if self._events:
            for attempt in fresh:
                self._tell(attempt, "started", now)
        lane.executor.submit(fresh)
        if idle:
            self._claimed()
        return due

    def _refuse(self, attempt: Attempt) -> None:
        """It was cancelled while it waited: it ends without being begun."""
        attempt.control.request_cancel("cancelled")
        attempt.withdraw()
        self._ended.append((attempt, Outcome("stopped")))
        self._wake()

    def _is_held(self, run: RunRecord) -> bool | None:
        """Ask the store whether a run is still this worker's; None if the store doesn't answer."""
        try:
            found = self._store.find_runs(RunQuery(ids=(run.id,))).items
        except StoreUnavailable:
            return None
        return bool(found) and found[0].attempt == run.attempt and found[0].state == "running"

    # -- settling ------------------------------------------------------------------------------------------

    def _settle(self, now: Instant) -> None:
        """Record how attempts ended. What the store does not take now is tried again with the next step."""
        while self._ended or self._ends:
            size = sum(map(_size, self._ends))
            while self._ended and len(self._ends) < SETTLE_BATCH and size < SETTLE_SIZE:
                if (end := self._conclude(*self._ended.popleft(), now)) is not None:
                    self._ends.append(end)
                    size += _size(end)
            self._keep_logs()
            if not self._ends:
                continue
            for answers in settle_in_parts(self._store, [end.transition for end in self._ends], "worker"):
                # Before the next part: what the store does not take then is all that is left to repeat.
                ends, self._ends = self._ends[: len(answers)], self._ends[len(answers) :]
                self._finish(ends, answers, now)

    def _finish(self, ends: list[_End], answers: list[bool], now: Instant) -> None:
        """What follows from ends that are recorded."""
        for end, accepted in zip(ends, answers, strict=True):
            self.held.pop(end.attempt.key, None)
            late = end._replace(kind="lost", error="came too late", exception=None)
            self._report(end if accepted else late, now)
        # Runs that others may take: at once, or after their backoff. Stores hint at schedules that waited.
        if any(end.transition.state == "queued" for end in ends):
            self._store.hint()
        self._end_cancelled(ends, answers, now)

    def _end_cancelled(self, ends: list[_End], answers: list[bool], now: Instant) -> None:
        """Runs that went back to the queue, and were asked to stop before anybody here knew of it."""
        queued = [
            end.transition.run
            for end, accepted in zip(ends, answers, strict=True)
            if accepted and end.transition.state == "queued"
        ]
        if not queued:
            return
        query = RunQuery(ids=tuple(queued), states=("queued",), cancel_requested=True, limit=len(queued))
        asked = self._store.find_runs(query).items
        # The same token from whoever comes second: it repeats.
        transitions = [attempts.cancel(run, now, f"asked.{run.id}.{run.attempt}") for run in asked]
        if transitions:
            self._store.settle_runs([transition for transition in transitions if transition is not None])
            self._store.hint()

    def _keep_logs(self) -> None:
        """What was logged, before the end of its run: whoever sees the end sees all of it."""
        if self._logs:
            self._append(self._logs)
            self._logs = []

    def _append(self, chunks: list[LogChunk]) -> None:
        try:
            self._store.append_log(chunks)
        except StoreUnavailable:
            raise
        except Exception as error:
            if len(chunks) == 1:
                fields = {"component": "worker", "job_id": chunks[0].run}
                _log.error("lines of a log can't be kept: %s", error, extra=fields)
                return
            middle = len(chunks) // 2
            self._append(chunks[:middle])
            self._append(chunks[middle:])

    def _conclude(self, attempt: Attempt, outcome: Outcome, now: Instant) -> _End | None:
        """What becomes of the run; None if that was decided before, or is not ours to decide any more."""
        if attempt.over is not None or attempt.withdraw() or attempt.began is None:
            self._lane_of[attempt.run.task].ended(attempt)
        if attempt.settled:
            return None
        attempt.settled = True
        self._logs += attempt.log.take(last=True)
        if outcome.kind == "lost":
            self.held.pop(attempt.key, None)
            self._tell(attempt, "lost", now)
            return None
        end = _end(attempt, outcome, now)
        if end.error is not None and outcome.kind in ("raised", "unfit"):
            end = end._replace(exception=attempt.exception)
        # Its traceback refers to all that the function had: not longer than it takes to tell of it.
        attempt.exception = None
        return end

    # -- telling -------------------------------------------------------------------------------------------

    def _report(self, end: _End, now: Instant) -> None:
        level, message = _LEVELS.get(end.kind, logging.INFO), _MESSAGES[end.kind]
        if end.kind == "released" and end.error is not None:
            level, message = logging.WARNING, "a payload does not fit here, the run is handed back to others"
        if _log.isEnabledFor(level):
            fields = {**run_fields(end.attempt.run), "component": "worker"}
            if (took := _took(end.attempt)) is not None:
                fields["duration"] = round(took, 6)
            if end.error is not None:
                fields["error"] = end.error.partition("\n")[0]
            # Of a payload that does not fit, the traceback leads nowhere.
            trace = end.exception if level >= logging.WARNING and end.kind != "released" else None
            _log.log(level, message, extra=fields, exc_info=trace)
        self._tell(end.attempt, end.kind, now, end)

    def _tell(self, attempt: Attempt, kind: EventKind, now: Instant, end: _End | None = None) -> None:
        if not self._events:
            return
        text = None if end is None else end.transition.result
        self._events.tell(
            kind,
            now,
            run=attempt.run,
            error=None if end is None else end.error,
            exception=None if end is None else end.exception,
            result=attempt.task.read_result(text) if isinstance(text, str) else None,
            duration=None if (took := _took(attempt)) is None else timedelta(seconds=took),
            delay=None if end is None else end.delay,
        )


def _took(attempt: Attempt) -> float | None:
    return None if attempt.over is None or attempt.began is None else attempt.over - attempt.began


_LEVELS = {
    "failed": logging.ERROR,
    "crashed": logging.ERROR,
    "retrying": logging.WARNING,
    "lost": logging.WARNING,
}
_MESSAGES: dict[EventKind, str] = {
    "succeeded": "a run succeeded",
    "failed": "a run failed",
    "retrying": "an attempt failed, the run is tried again",
    "cancelled": "a run was cancelled",
    "crashed": "the process of a run died",
    "released": "a run was handed back",
    "lost": "a run was lost to another worker",
}


def _size(end: _End) -> int:
    """Characters of what the function gave."""
    texts = (end.transition.result, end.transition.error)
    return sum(len(text) for text in texts if isinstance(text, str))


def _end(attempt: Attempt, outcome: Outcome, now: Instant) -> _End:
    """The transition that an outcome asks for. 0.9 us for a success."""
    run, asked = attempt.run, attempt.control.cancel_reason
    token = f"{run.claim}.{outcome.kind}"
    kind: str = outcome.kind
    if kind == "stopped":
        # "lost" may be a mistake: a store that does not answer can't say whose the run is. If another worker
        # has it, this is refused.
        kind = {
            "cancelled": "cancelled",
            "stopping": "released",
            "lost": "released",
            "timeout": "timeout",
        }.get(asked or "", "raised")
    late = outcome.error if kind == "raised" and asked == "timeout" else None
    if kind == "released" and run.cancel_requested:
        kind = "cancelled"
    if kind == "returned":
        return _End(attempt, attempts.succeeded(run, outcome.result, now, token), "succeeded")
    if kind == "released":
        return _End(attempt, attempts.released(run, now, token), "released")
    if kind == "cancelled":
        return _End(attempt, attempts.cancelled(run, now, token), "cancelled")
    error = outcome.error or "it ended without a word"
    if kind == "timeout" or late is not None:
        error = f"timed out after {write_duration(run.execution.timeout or 0)}"
        if late is not None:
            # Second: a library may make anything of a cancellation.
            error += f"\n\n{late}"
    if kind == "died":
        crashed = replace(attempts.crashed(run, now, token, error), lease_ended=False)
        return _End(attempt, crashed, "crashed", error)
    if kind == "unfit":
        transition = attempts.unfit(run, error, now, token)
    else:
        transition = attempts.failed(run, error, now, token)
    if transition.state == "queued":
        assert isinstance(transition.delay, int)
        is_counted = transition.failures is not msgspec.UNSET
        return _End(attempt, transition, "retrying" if is_counted else "released", error, transition.delay)
    return _End(attempt, transition, "cancelled" if transition.state == "cancelled" else "failed", error)
