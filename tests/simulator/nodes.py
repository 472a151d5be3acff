"""Nodes: processes that tick, work, reap and purge, a step at a time, and repeat calls that failed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.rules import attempts
from evenbeat.rules.firing import plan
from evenbeat.stores.base import EVERYTHING, Claim, EndedRuns, RunQuery
from tests.simulator.fault_proxy import FaultProxy

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

LEASE = 9_000
LONGEST_WORK = 20_000
RETENTION = (15_000, 60_000)
SELECTIONS = (
    EVERYTHING,
    EndedRuns(states=("succeeded",)),
    EndedRuns(tenant="default", states=("failed", "cancelled")),
    EndedRuns(tenant="acme"),
    EndedRuns(spared=("default",)),
    EndedRuns(states=(), others=True),
)
"""What purges delete."""


class Node:
    """What all roles of one process share: the connection, the clock, and random numbers."""

    def __init__(self, simulation: Simulation, name: str, store: FaultProxy, offset: int) -> None:
        self.simulation = simulation
        self.name = name
        self.store = store
        self.offset = offset
        self.random: Random = simulation.random
        self._tokens = 0

    def now(self) -> Instant:
        """Return the time of this node's clock."""
        return self.simulation.clock() + self.offset

    def token(self) -> str:
        self._tokens += 1
        return f"{self.name}-{self._tokens}"


class Role(ABC):
    """One duty of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.store = node.store
        self.random = node.random

    @abstractmethod
    def step(self) -> None:
        """Do one step. It may raise StoreUnavailable: the next step repeats the call."""


class Ticker(Role):
    """Fires due schedules."""

    def step(self) -> None:
        self.store.fire_due(self.node.now(), self.random.choice((1, 3, 10)), plan)


class Job:
    """A run that a worker holds."""

    def __init__(self, run: RunRecord, ends_at: Instant, beat_at: Instant) -> None:
        self.run = run
        self.ends_at = ends_at
        self.beat_at = beat_at
        self.ending: Transition | None = None
        """How it ended; kept until the store has answered."""


class Worker(Role):
    """Claims runs, executes them for a while, keeps their leases alive, and settles them."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.claim: Claim | None = None
        self.jobs: list[Job] = []

    def step(self) -> None:
        self._claim()
        for job in list(self.jobs):
            self._go_on(job)

    def _claim(self) -> None:
        node, quiet = self.node, self.node.simulation.quiet
        if self.claim is None:
            if len(self.jobs) >= 4:
                return
            limit = 10 if quiet else self.random.choice((1, 2, 4))
            self.claim = Claim(worker=node.name, token=node.token(), limit=limit, now=node.now(), lease=LEASE)
        runs = self.store.claim_runs(self.claim).runs
        self.claim = None
        now = node.simulation.clock()
        for run in runs:
            node.simulation.oracle.execute(run, node.name)
            work = 0 if quiet else self.random.choice((0, 0, 500, 3_000, LONGEST_WORK))
            self.jobs.append(Job(run, now + work, now + LEASE // 3))

    def _go_on(self, job: Job) -> None:
        now = self.node.simulation.clock()
        if job.ending is None and now < job.ends_at:
            if now >= job.beat_at:
                self._beat(job, now)
            return
        if job.ending is None:
            job.ending = self._ending(job.run)
        self.store.settle_runs([job.ending])
        # Refused: another worker has the run, and this result is dropped.
        self.jobs.remove(job)

    def _ending(self, run: RunRecord) -> Transition:
        node = self.node
        chance = 1.0 if node.simulation.quiet else self.random.random()
        if chance < 0.25:
            return attempts.failed(run, "no luck", node.now(), node.token())
        if chance < 0.30:
            return attempts.released(run, node.now(), node.token())
        adds: tuple[RunRecord, ...] = ()
        if chance < 0.4 and run.cause == "enqueue" and len(run.id) < 40:
            # The next step of a flow.
            adds = (
                RunRecord(id=f"{run.id}.next", task=run.task, run_at=run.run_at, created_at=run.created_at),
            )
        return attempts.succeeded(run, "null", node.now(), node.token(), adds)

    def _beat(self, job: Job, now: Instant) -> None:
        node = self.node
        found = self.store.find_runs(RunQuery(ids=(job.run.id,))).items
        if found and found[0].cancel_requested and found[0].attempt == job.run.attempt:
            job.ending = attempts.cancelled(job.run, node.now(), node.token())
            return
        beat = attempts.heartbeat(job.run, LEASE, node.token())
        held = self.store.settle_runs([beat])[0]
        job.beat_at = now + LEASE // 3
        # Some jobs do not check whether their lease is lost: their late results must be refused.
        if not held and self.random.random() < 0.5:
            self.jobs.remove(job)


class Reaper(Role):
    """Takes over runs of workers that stopped heartbeating."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.pending: list[Transition] = []

    def step(self) -> None:
        node = self.node
        if not self.pending:
            ended = self.store.lost_runs(node.now(), 5).runs
            self.pending = [attempts.crashed(run, node.now(), node.token()) for run in ended]
        if self.pending:
            self.store.settle_runs(self.pending)
            self.pending = []


class Purger(Role):
    """Deletes old history."""

    def step(self) -> None:
        if not self.node.simulation.quiet:
            before = self.node.now() - self.random.choice(RETENTION)
            # The instant decides, not the random numbers: known findings depend on their sequence.
            runs = SELECTIONS[before // 7 % len(SELECTIONS)]
            self.store.purge(before, self.random.choice((1, 5, 50)), runs)


class Roles(NamedTuple):
    """The roles of a process, each as often as it steps, and those that run after the faults stop."""

    busy: tuple[Role, ...]
    quiet: tuple[Role, ...]


def roles(node: Node) -> Roles:
    """Return roles that do everything that the store's contract allows to any client."""
    ticker, worker, reaper = Ticker(node), Worker(node), Reaper(node)
    return Roles((*(ticker,) * 3, *(worker,) * 4, reaper, Purger(node)), (ticker, worker, reaper))


class Machine:
    """Run a process with every role; the role of the next step is random."""

    def __init__(self, node: Node, roles: Roles) -> None:
        self.node = node
        self.roles = roles

    def program(self) -> None:
        node = self.node
        interleaving = node.simulation.interleaving
        try:
            while True:
                quiet = node.simulation.quiet
                for role in self.roles.quiet if quiet else (node.random.choice(self.roles.busy),):
                    with suppress(StoreUnavailable):
                        role.step()
                interleaving.sleep(int(node.random.random() * node.simulation.idle))
        finally:
            node.store.close()
