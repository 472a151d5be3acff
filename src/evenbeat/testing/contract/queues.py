"""Counts of queues, and searches for runs by the time when they were running."""

from __future__ import annotations

from typing import Any

from evenbeat.core.records import Execution, RunRecord
from evenbeat.rules import attempts
from evenbeat.stores.base import QueueCounts, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, run


class QueueContract(Contract):
    def test_each_queue_is_counted_by_the_states_of_its_runs(self, store: Store, clock: VirtualClock) -> None:
        now = clock.now
        store.add_runs(
            [
                run("failing", run_at=now - 2 * MINUTE, priority=9, execution=Execution(retries=3)),
                run("done", run_at=now - MINUTE, priority=8, tenant="acme"),
                run("busy", run_at=now - MINUTE, priority=7),
                run("due-1", run_at=now - 30_000, task="other"),
                run("due-2", run_at=now - 40_000, priority=1, tenant="acme"),
                run("future", run_at=now + MINUTE),
                run("slow", run_at=now, queue="slow"),
                run("cancelled", run_at=now + MINUTE, queue="gone"),
            ]
        )
        held = {entry.id: entry for entry in self.claim(store, limit=3)}
        assert set(held) == {"failing", "done", "busy"}
        cancelled = attempts.cancel(run("cancelled"), now, "t3")
        assert cancelled is not None
        assert (
            store.settle_runs(
                [
                    attempts.failed(held["failing"], "boom", now, "t1"),
                    attempts.succeeded(held["done"], None, now, "t2"),
                    cancelled,
                ]
            )
            == [True] * 3
        )
        assert store.count_queues(now, now - 90_000) == [
            QueueCounts(
                queue="default",
                due=2,
                later=2,
                retrying=1,
                running=1,
                oldest_due=now - 40_000,
                came_due=4,
                ended=1,
            ),
            QueueCounts(queue="gone", ended=1),
            QueueCounts(queue="slow", due=1, oldest_due=now, came_due=1),
        ]

    def test_runs_that_ended_before_the_period_are_not_counted(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now, queue="old"), run("b", run_at=clock.now, queue="old")])
        first, second = self.claim(store, queues=("old",))
        ended = clock.now
        assert store.settle_runs([attempts.succeeded(first, None, ended, "t1")]) == [True]
        clock.advance("5m")
        assert store.settle_runs([attempts.succeeded(second, None, clock.now, "t2")]) == [True]
        assert store.count_queues(clock.now, ended) == [QueueCounts(queue="old", came_due=2, ended=2)]
        assert store.count_queues(clock.now, ended + 1) == [QueueCounts(queue="old", ended=1)]
        assert store.count_queues(clock.now, clock.now + 1) == []

    def test_a_queue_that_was_emptied_is_not_counted_any_more(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs(
            [run("a", run_at=clock.now, queue="q"), run("b", run_at=clock.now, queue="q", task="b")]
        )
        assert [counts.due for counts in store.count_queues(clock.now, clock.now)] == [2]
        for held in self.claim(store, queues=("q",)):
            assert store.settle_runs([attempts.succeeded(held, None, clock.now, held.id)]) == [True]
        clock.advance("1m")
        assert store.count_queues(clock.now, clock.now) == []
        store.add_runs([run("c", run_at=clock.now + 1, queue="q")])
        assert store.count_queues(clock.now, clock.now) == [QueueCounts(queue="q", later=1)]

    def test_many_runs_of_one_moment_are_all_counted(self, store: Store, clock: VirtualClock) -> None:
        # More than a store reads at once.
        store.add_runs([run(f"r{at:04}", run_at=clock.now) for at in range(1_203)])
        (counts,) = store.count_queues(clock.now, clock.now)
        assert (counts.due, counts.came_due, counts.oldest_due) == (1_203, 1_203, clock.now)
        # Plain numbers, not those of a driver.
        assert {type(number) for number in (counts.due, counts.came_due, counts.oldest_due)} == {int}

    def test_runs_that_wait_for_their_next_attempt_can_be_asked_for(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = Execution(retries=3, backoff=10_000)
        store.add_runs(
            [
                run(
                    f"r{at}",
                    run_at=clock.now,
                    created_at=at,
                    execution=policy,
                    schedule="s" if at < 2 else None,
                )
                for at in range(4)
            ]
        )
        held = self.claim(store, limit=3)
        ends = [attempts.failed(entry, "boom", clock.now, entry.id) for entry in held]
        assert store.settle_runs(ends) == [True] * 3
        assert self.found(store, retrying=True) == ["r2", "r1", "r0"]
        assert self.found(store, retrying=True, limit=1) == ["r2", "r1", "r0"]
        assert self.found(store, retrying=True, states=("queued",), tenant="default", schedule="s") == [
            "r1",
            "r0",
        ]
        assert self.found(store, retrying=True, states=("running",)) == []
        assert self.found(store, retrying=True, tenant="acme") == []
        assert self.found(store, retrying=True, ids=("r0", "r3")) == ["r0"]
        clock.advance("1m")
        self.claim(store, "claim-2", limit=2)
        assert len(self.found(store, retrying=True)) == 2

    def test_runs_are_found_by_when_they_were_running(self, store: Store, clock: VirtualClock) -> None:
        start = clock.now
        self.executed(store, clock, "early", "1m")  # from 0 to 1
        clock.advance("1m")
        self.executed(store, clock, "long", "4m")  # from 2 to 6
        self.executed(store, clock, "late", "1m", tenant="acme")  # from 6 to 7
        store.add_runs([run("running", run_at=clock.now), run("never", run_at=clock.now, queue="other")])
        self.claim(store, "running")  # from 7 on
        withdrawn = attempts.cancel(run("never"), clock.now, "never")
        assert withdrawn is not None
        assert store.settle_runs([withdrawn]) == [True]  # at 7
        store.add_runs([run("waiting", run_at=clock.now, created_at=start)])
        clock.advance("1m")

        def found(since: float | None, until: float | None, **query: Any) -> set[str]:
            bounds = {"since": since, "until": until}
            window = {name: start + int(at * MINUTE) for name, at in bounds.items() if at is not None}
            every = self.found(store, **window, **query)
            # Pages of one run each have the same runs, in the same order.
            assert self.found(store, limit=1, **window, **query) == every
            return set(every)

        everything = {"early", "long", "late", "running", "never"}
        assert found(0, 10) == everything
        assert found(0, None) == found(None, 10) == everything
        assert found(1, 2) == {"early"}
        assert found(1.01, 2) == set()
        assert found(1.5, 2.01) == {"long"}
        assert found(3, 4) == {"long"}
        assert found(6, 7) == {"long", "late"}
        assert found(6.5, 7.01) == {"late", "running", "never"}
        assert found(7.5, None) == {"running"}
        assert found(None, 2) == {"early"}
        assert found(0, 10, tenant="acme") == {"late"}
        assert found(0, 10, states=("running",)) == {"running"}
        assert found(0, 10, states=("cancelled", "running")) == {"running", "never"}
        assert found(0, 10, states=()) == set()
        assert found(6.5, 10, queue="other") == {"never"}
        assert found(0, 10, worker="w1", states=("succeeded",)) == {"early", "long", "late"}
        assert found(0, 3, ids=("early", "late", "waiting")) == {"early"}

    def test_a_run_is_found_by_each_of_its_attempts_and_not_between_them(
        self, store: Store, clock: VirtualClock
    ) -> None:
        start = clock.now
        policy = Execution(retries=1, backoff=10 * MINUTE, max_backoff=10 * MINUTE)
        store.add_runs([run("r", run_at=start, created_at=start, tenant="t", schedule="s", execution=policy)])
        (held,) = self.claim(store)
        clock.advance("1m")
        assert store.settle_runs([attempts.failed(held, "boom", clock.now, "t1")]) == [True]

        def found(since: int, until: int, **query: Any) -> list[str]:
            return self.found(store, since=start + since * MINUTE, until=start + until * MINUTE, **query)

        of_schedule = {"tenant": "t", "schedule": "s"}
        active = {**of_schedule, "states": ("queued", "running")}
        for query in ({}, {"states": ("queued",)}, of_schedule, active, {"ids": ("r",)}, {"retrying": True}):
            assert found(0, 2, **query) == ["r"]
            assert found(2, 5, **query) == []
        clock.advance("11m")
        (again,) = self.claim(store, "again")
        assert found(0, 2) == found(12, 15) == found(0, 2, **active) == ["r"]
        assert found(2, 12) == []
        clock.advance("1m")
        assert store.settle_runs([attempts.failed(again, "boom", clock.now, "t2")]) == [True]
        for query in ({}, {"states": ("failed",)}, of_schedule):
            assert found(0, 2, **query) == found(12, 14, **query) == ["r"]
            assert found(2, 12, **query) == found(14, 15, **query) == []
        assert self.found(store, until=start + MINUTE) == ["r"]
        assert self.found(store, until=start) == []

    def test_many_runs_of_one_window_come_in_order(self, store: Store, clock: VirtualClock) -> None:
        start = clock.now
        # More than a store reads at once, all ended in the same millisecond.
        wanted = [
            run(
                f"r{at:04}",
                state="succeeded",
                created_at=start + at % 7,
                started_at=start + at % 7,
                finished_at=start + 10,
                run_at=start,
                attempt=1,
                worker="w1",
            )
            for at in range(1_100)
        ]
        store.add_runs(wanted)
        order = sorted(wanted, key=lambda entry: (-entry.created_at, entry.id))
        assert self.runs(store, since=start + 10, until=start + 11, limit=400) == order
        begun: list[RunRecord] = [entry for entry in order if entry.created_at < start + 3]
        assert self.runs(store, since=start, until=start + 3, limit=400) == begun

    def found(self, store: Store, **query: Any) -> list[str]:
        return [entry.id for entry in self.runs(store, **query)]

    def executed(self, store: Store, clock: VirtualClock, run_id: str, took: str, **fields: Any) -> None:
        """Enqueue a run that begins at once and succeeds so much later."""
        store.add_runs([run(run_id, run_at=clock.now, created_at=clock.now, **fields)])
        (held,) = self.claim(store, f"claim-{run_id}")
        clock.advance(took)
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, f"t-{run_id}")]) == [True]
