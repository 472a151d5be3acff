"""Evenbeat's own loops inside the simulation: ticker, worker, lease renewer and reaper."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import cast

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.core.retention import SHORTEST_KEEP, EndedState
from evenbeat.executors.base import Attempt, Ended, Outcome
from evenbeat.node import (
    backfills,
    code_ticker,
    lanes,
    leases,
    owed_successes,
    pruner,
    reaper,
    ticker,
    worker,
)
from evenbeat.node.fallback import Fallback
from evenbeat.observe.events import Events
from evenbeat.rules import retention
from evenbeat.stores.base import Store
from evenbeat.tasks.task import Task
from tests.simulator.code_oracle import SCHEDULES
from tests.simulator.flow_plans import random_result
from tests.simulator.nodes import LEASE, LONGEST_WORK, Node, Purger, Role, Roles

SLOTS = 3
RETENTION = 30 * 86_400_000
TASKS = ("task", "charge")


class SimulatedExecutor:
    """Executes for some virtual time. Some jobs obey a request to end, others continue."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: list[Attempt] = []
        self._running: list[tuple[Attempt, Instant]] = []

    def start(self, ended: Ended) -> None:
        self._ended = ended

    def submit(self, attempts: Sequence[Attempt]) -> None:
        self._waiting += attempts

    def interrupt(self, attempt: Attempt) -> None:
        """Do nothing: a later step decides whether the job obeys."""

    def stop(self) -> None:
        """End all jobs with their process."""

    def go_on(self) -> None:
        """Start jobs while there is room, and end those whose time is over."""
        node, quiet = self._node, self._node.simulation.quiet
        now = node.simulation.clock()
        while self._waiting and len(self._running) < SLOTS:
            attempt = self._waiting.pop(0)
            if attempt.begin():
                node.simulation.oracle.execute(attempt.run, node.name)
                work = 0 if quiet else node.random.choice((0, 0, 500, 3_000, LONGEST_WORK))
                self._running.append((attempt, now + work))
        for entry in tuple(self._running):
            attempt, ends_at = entry
            obeys = attempt.context.cancel_requested and node.random.random() < 0.5
            if quiet or obeys or now >= ends_at:
                self._running.remove(entry)
                self._ended(attempt, self._outcome(attempt, obeys))

    def _outcome(self, attempt: Attempt, obeys: bool) -> Outcome:
        chance = 1.0 if self._node.simulation.quiet else self._node.random.random()
        if obeys:
            return Outcome("stopped", error="asked to")
        if chance < 0.25:
            return Outcome("raised", error="no luck")
        if chance < 0.3:
            return Outcome("died", error="killed")
        if self._node.simulation.options.flows:
            return Outcome("returned", random_result(self._node.random, attempt.run))
        return Outcome("returned", "null")


def settling_store(node: Node) -> Store:
    """Return the store through which a node settles. With dependencies, settlements can't use the rows of
    schedules a third of the time."""
    store = cast(Store, node.store)
    simulation = node.simulation
    if not simulation.options.dependencies:
        return store
    return owed_successes.without_rows(
        store, lambda: not simulation.quiet and simulation.clock() // 7_000 % 3 == 0, lambda: None
    )


class ProductOwed(Role):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._owed = owed_successes.OwedSuccesses(cast(Store, node.store))

    def step(self) -> None:
        self._owed.step(self.node.now())


class ProductBackfiller(Role):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._backfiller = backfills.Backfiller(cast(Store, node.store))

    def step(self) -> None:
        # put_schedules cannot check this time.
        self._backfiller.step(min(self.node.now(), self.store.now()))


class ProductTicker(Role):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._ticker = ticker.Ticker(cast(Store, node.store), Events())

    def step(self) -> None:
        self._ticker.step(self.node.now())


class ProductWorker(Role):
    """A worker with its lease renewer. It is random which of the two steps, and when its jobs do."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        store, tasks = settling_store(node), node.simulation.catalogue.registry()
        for name in TASKS:
            tasks.add(Task(lambda: None, name))
        self._executor = SimulatedExecutor(node)
        self._worker = worker.Worker(
            store,
            tasks,
            Events(),
            lambda _: lanes.Lane(self._executor, SLOTS),
            name=node.name,
            lease=LEASE,
            clock=self._seconds,
            new_token=node.token,
        )
        self._renewer = leases.LeaseRenewer(
            store, self._worker, LEASE, clock=self._seconds, new_token=node.token
        )

    def _seconds(self) -> float:
        return self.node.simulation.clock() / 1000

    def step(self) -> None:
        if self.node.simulation.quiet:
            self._worker.step(self.node.now())
            self._executor.go_on()
            self._worker.step(self.node.now())
            self._renewer.step(self.node.now())
            return
        chance = self.random.random()
        if chance < 0.4:
            self._worker.step(self.node.now())
        elif chance < 0.7:
            self._executor.go_on()
        else:
            self._renewer.step(self.node.now())


class ProductReaper(Role):
    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._steps = 0
        self._reaper = reaper.Reaper(
            settling_store(node), Events(), LEASE, new_token=node.token, clock=self._seconds
        )

    def _seconds(self) -> float:
        # By its steps: they are so far apart here that the reaper would take each gap for an outage.
        return self._steps * LEASE / 3 / 1000

    def step(self) -> None:
        self._steps += 1
        self._reaper.step(self.node.now())


class ProductCodeTicker(Role):
    """Fires the schedules that are in the code only."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        store, events = cast(Store, node.store), Events()
        self._ticker = code_ticker.CodeTicker(
            store, events, Fallback(store, events), SCHEDULES, name=node.name
        )

    def step(self) -> None:
        self._ticker.step(self.node.now())


class ProductPruner(Role):
    """Deletes history by the retention rules."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._pruner = pruner.Pruner(cast(Store, node.store), RETENTION, clock=lambda: 0.0)

    def step(self) -> None:
        self._pruner.step(self.node.now())


def draw_rules(random: Random) -> list[Record]:
    """Choose retention rules that keep as little as users may ask for."""
    rules = [
        rule_record(None, None, keep=SHORTEST_KEEP),
        rule_record(None, "succeeded", keep=SHORTEST_KEEP),
        rule_record(None, None, most=1),
        rule_record("default", None, most=1),
        rule_record("default", "failed", keep=SHORTEST_KEEP),
        rule_record("other", None, keep=SHORTEST_KEEP),
    ]
    return random.sample(rules, random.randint(1, 3))


def rule_record(
    tenant: str | None, state: EndedState | None, keep: int | None = None, most: int | None = None
) -> Record:
    owner, key = retention.record_place(tenant, state)
    return Record(
        kind=retention.KIND, tenant=owner, key=key, body=encode(retention.StoredRule(keep=keep, most=most))
    )


def roles(node: Node) -> Roles:
    """Return the roles of an Evenbeat process, with how often each steps."""
    ticker_, worker_, reaper = ProductTicker(node), ProductWorker(node), ProductReaper(node)
    if node.simulation.options.code_only:
        code = ProductCodeTicker(node)
        return Roles(
            (*(code,) * 4, *(worker_,) * 4, reaper, *(ProductPruner(node),) * 4), (code, worker_, reaper)
        )
    every: tuple[Role, ...] = (*(ticker_,) * 3, *(worker_,) * 8, reaper)
    if not node.simulation.options.flows:
        every = (*every, Purger(node))
    quiet: tuple[Role, ...] = (ticker_, worker_, reaper)
    if node.simulation.options.backfills:
        backfiller = ProductBackfiller(node)
        every, quiet = (*every, *(backfiller,) * 2), (*quiet, backfiller)
    if node.simulation.options.dependencies:
        owed = ProductOwed(node)
        every, quiet = (*every, owed), (*quiet, owed)
    return Roles(every, quiet)
