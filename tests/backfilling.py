"""A world for tests of backfills: a store that watches what is added, and nodes that act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from evenbeat import Scheduler
from evenbeat.core.backfills import Backfill
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Record, RunRecord
from evenbeat.node.backfills import advance
from evenbeat.rules import attempts
from evenbeat.rules.backfills import KINDS
from evenbeat.stores.base import Claim, RunQuery, Store, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.store_calls import add_schedules

HOUR = 3_600_000
TICKS = 6


class Watched(MemoryStore):
    """A store that counts the runs that backfills add, and refuses one too many."""

    def __init__(self, clock: VirtualClock, most: int) -> None:
        super().__init__(clock)
        self.most = most
        self.added: Counter[int] = Counter()

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        before = {run.id for run in self.backfilled()}
        written = super().put_schedules(writes)
        for run in self.backfilled():
            if run.id not in before:
                assert run.tick is not None
                self.added[run.tick] += 1
        active = [run for run in self.backfilled() if run.state in ("queued", "running")]
        assert len(active) <= self.most, f"{len(active)} runs are outstanding"
        return written

    def backfilled(self) -> list[RunRecord]:
        return [run for run in self.find_runs(RunQuery(limit=1_000)).items if run.cause == "backfill"]


class World:
    """A schedule, and a backfill of six of its ticks, at most two of them at once."""

    def __init__(self, most: int = 2, **fields: Any) -> None:
        self.clock = VirtualClock()
        self.store = Watched(self.clock, most)
        self.most = most
        add_schedules(self.store, "s", trigger="every 1h", **fields)
        self.executed: Counter[int] = Counter()
        now = self.clock.now
        self.range = (from_ms(now - TICKS * HOUR), from_ms(now))

    def make(self, store: Store | None = None, **options: Any) -> Backfill:
        app = Scheduler(self.store if store is None else store)
        return app.schedules.backfill("s", *self.range, max_concurrent=self.most, id="b", **options)

    def advance(self, store: Store | None = None) -> None:
        advance(self.store if store is None else store, "default", "b", self.clock.now)

    def claim(self, limit: int = 10) -> Sequence[RunRecord]:
        wanted = Claim(worker="w", token=uuid4().hex, limit=limit, now=self.clock.now, lease=30_000)
        return [run for run in self.store.claim_runs(wanted).runs if run.cause == "backfill"]

    def end(self, run: RunRecord, error: str | None = None) -> None:
        now, token = self.clock.now, uuid4().hex
        ended = (
            attempts.succeeded(run, None, now, token)
            if error is None
            else attempts.failed(run, error, now, token)
        )
        if self.store.settle_runs([ended])[0] and run.tick is not None:
            self.executed[run.tick] += 1

    def work(self, error: str | None = None) -> None:
        for run in self.claim():
            self.end(run, error)

    def purge(self) -> None:
        """Delete each run that has ended."""
        self.clock.advance("1ms")
        self.store.purge(self.clock.now, 1_000)

    def finish(self) -> None:
        """Another node does what is left to do."""
        for _ in range(4 * TICKS):
            self.clock.advance("2s")
            self.advance()
            self.work()
            self.purge()

    def backfill(self) -> Backfill:
        return Scheduler(self.store).backfills.get("b")

    def leftovers(self) -> list[Record]:
        return [record for kind in KINDS[1:] for record in self.store.find_records(kind)]

    def check(self) -> None:
        """Each tick has had one run, and nothing is left over."""
        found = self.backfill()
        assert (found.state, found.left, found.active) == ("done", 0, 0)
        assert found.succeeded + found.purged == TICKS
        assert sorted(self.store.added.values()) == [1] * TICKS, "a run was added twice, or not at all"
        assert sorted(self.executed.values()) == [1] * TICKS
        assert self.leftovers() == []
