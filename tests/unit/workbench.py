"""A worker on a store in memory, with a clock and an executor that a test moves by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from evenbeat.core.clocks import steady_clock
from evenbeat.core.json_text import to_json
from evenbeat.core.records import Execution, RunRecord, Transition
from evenbeat.errors import StoreUnavailable, TooLarge
from evenbeat.executors.base import Attempt, Ended, Outcome
from evenbeat.node.lanes import Lane
from evenbeat.node.leases import LeaseRenewer
from evenbeat.node.signals import Signals
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Claimed, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks import context
from evenbeat.tasks.task import Task, Tasks
from evenbeat.testing import VirtualClock

T = TypeVar("T")


class HandExecutor:
    """Begins attempts in order, as many at once as it has slots; the test ends them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.waiting: list[Attempt] = []
        self.running: list[Attempt] = []
        self.interrupted: list[tuple[str, str | None]] = []
        self.stopped = False

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self.waiting += attempts
        self._begin()

    def interrupt(self, attempt: Attempt) -> None:
        self.interrupted.append((attempt.run.id, attempt.control.cancel_reason))

    def stop(self) -> None:
        self.stopped = True

    def end(self, outcome: Outcome = Outcome("returned", "null"), index: int = 0) -> Attempt:  # noqa: B008
        attempt = self.running.pop(index)
        self._ended(attempt, outcome)
        self._begin()
        return attempt

    def _begin(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            attempt = self.waiting.pop(0)
            if attempt.begin():
                self.running.append(attempt)


class LossyStore(MemoryStore):
    """A store whose next reply can be lost: the call takes effect, and the caller gets an error."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.lose: set[str] = set()
        self.hints = 0

    def claim_runs(self, claim: Claim) -> Claimed:
        return self._reply("claim", super().claim_runs(claim))

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._reply("settle", super().settle_runs(transitions))

    def hint(self) -> None:
        self.hints += 1
        super().hint()

    def _reply(self, call: str, answer: T) -> T:
        if call in self.lose:
            self.lose.remove(call)
            raise StoreUnavailable("the reply was lost")
        return answer


class Workbench:
    """A worker with all that it needs, and short methods for tests."""

    def __init__(
        self,
        *functions: Callable[..., Any],
        slots: int = 2,
        lease: int = 30_000,
        signals: Signals | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.store = LossyStore(self.clock)
        self.store.open()
        self.tasks = Tasks()
        for function in functions or (work,):
            self.tasks.add(Task(function, function.__name__))
        self.events = Events()
        self.emitted: list[Event] = []
        self.events.listen(self.emitted.append)
        self.executor = HandExecutor(slots)
        self.worker = Worker(
            self.store,
            self.tasks,
            self.events,
            lambda _: Lane(self.executor, slots),
            name="w1",
            lease=lease,
            signals=signals,
        )
        self.renewer = LeaseRenewer(self.store, self.worker, lease)

    def add(self, run_id: str, execution: Execution | None = None, **fields: Any) -> None:
        now = self.clock.now
        wanted: dict[str, Any] = {"task": "work", "run_at": now, "created_at": now, **fields}
        self.store.add_runs([RunRecord(id=run_id, execution=execution or Execution(), **wanted)])

    def count_seconds(self) -> list[float]:
        """Stop the steady clock of worker and lease renewer; the list holds its time."""
        seconds = [100.0]
        self.worker._clock = self.renewer._clock = lambda: seconds[0]
        return seconds

    def claim_ahead(self) -> None:
        """Let the lane measure a high rate, as if runs had been short so far."""
        lane = self.worker._lanes["thread"]
        lane._rate, lane._since = 1_000_000.0, steady_clock() + 60

    def ask_to_cancel(self, run_id: str) -> None:
        """Request to cancel a run, as ``runs.cancel`` does."""
        transition = attempts.cancel(self.run(run_id), self.clock.now, "user")
        assert transition is not None
        self.store.settle_runs([transition])

    def step(self) -> int | None:
        return self.worker.step(self.clock.now)

    def renew(self) -> int | None:
        return self.renewer.step(self.clock.now)

    def run(self, run_id: str) -> RunRecord:
        return self.store.find_runs(RunQuery(ids=(run_id,))).items[0]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.emitted]


class PickySettle:
    """Replaces ``settle_runs`` of a store: refuses batches above a size, and batches with certain runs."""

    def __init__(self, bench: Workbench, most: int = 10**9, poison: tuple[str, ...] = ()) -> None:
        self._settle = bench.store.settle_runs
        self._most = most
        self._poison = poison
        self.calls: list[int] = []

    def __call__(self, transitions: list[Transition]) -> list[bool]:
        self.calls.append(len(transitions))
        if sum(len(str(transition.result)) for transition in transitions) > self._most:
            raise TooLarge("the transaction is too large")
        if any(transition.run in self._poison for transition in transitions):
            raise ValueError("can't write that")
        return self._settle(transitions)


class TimedWorkbench:
    """A worker and a lease renewer whose clock the test sets."""

    def __init__(self, slots: int = 2, lease: int = 30_000) -> None:
        self.seconds = 100.0
        self.clock = VirtualClock()
        self.store = LossyStore(self.clock)
        tasks = Tasks()
        tasks.add(Task(work, "work"))
        events = Events()
        self.emitted: list[Event] = []
        events.listen(self.emitted.append)
        self.executor = HandExecutor(slots)
        self.worker = Worker(
            self.store,
            tasks,
            events,
            lambda _: Lane(self.executor, slots),
            name="w1",
            lease=lease,
            clock=self.now,
        )
        self.renewer = LeaseRenewer(self.store, self.worker, lease, clock=self.now)

    def now(self) -> float:
        return self.seconds

    def add(self, *names: str, **fields: Any) -> None:
        now = self.clock.now
        self.store.add_runs(
            [RunRecord(id=name, task="work", run_at=now, created_at=now, **fields) for name in names]
        )

    def step(self) -> None:
        self.worker.step(self.clock.now)

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.now += round(seconds * 1000)

    def renew(self) -> int | None:
        return self.renewer.step(self.clock.now)

    def run(self, name: str = "r") -> RunRecord:
        return self.store.find_runs(RunQuery(ids=(name,))).items[0]


def attempt_of(timed: TimedWorkbench, name: str = "r") -> Attempt:
    return next(attempt for attempt in timed.worker.held.values() if attempt.run.id == name)


def work() -> None:
    """A task that the test ends."""


def returns_late(run: context.RunContext) -> str:
    """Exceed the timeout, and ignore the request to end."""
    while not run.cancel_requested:
        time.sleep(0.005)
    return "paid"


async def blocks_and_returns_late(run: context.RunContext) -> str:
    """Do the same without an await at which it could be cancelled."""
    return returns_late(run)


def result(value: object) -> Outcome:
    return Outcome("returned", to_json(value))
