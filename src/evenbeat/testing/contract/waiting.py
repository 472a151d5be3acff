"""Waiting: ticks that are due, and may not fire before a run has ended or a rate allows it."""

from __future__ import annotations

import threading

import pytest

from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUp, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.stores.base import Fired, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, schedule


class WaitingContract(Contract):
    def test_plan_is_given_active_runs_if_the_policy_needs_them(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule("free"))
        self.add(store, schedule("single", overlap="skip"))
        seen: dict[str, tuple[Active, ...]] = {}

        def watching(row: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
            seen[row.name] = active
            return plan(row, now, active)

        for _ in range(2):
            clock.advance("1m")
            store.fire_due(clock.now, 10, watching)
        assert seen["free"] == ()
        assert [entry.state for entry in seen["single"]] == ["queued"]
        assert len(self.runs(store, schedule="single")) == 1
        (row,) = store.find_skipped("default", "single")
        assert row.reason == "overlap"

    def test_a_waiting_tick_fires_when_the_run_before_it_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule(overlap="queue"))
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        clock.advance("1m")
        assert self.fire(store).planned[0].runs == ()
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        (planned,) = self.fire(store).planned
        assert len(planned.runs) == 1

    @pytest.mark.parametrize("overlap", ["queue", "allow"])
    def test_a_store_hints_at_a_schedule_that_the_end_of_a_run_wakes_and_at_nothing_else(
        self, handles: Handles, store: Store, clock: VirtualClock, overlap: str
    ) -> None:
        # The end of a run that wakes no schedule must not wake every node.
        self.add(store, schedule(overlap=overlap))
        hints: list[bool] = []
        other = handles()
        other.open()
        hint = other.hint

        def counted() -> None:
            hints.append(True)
            hint()

        other.hint = counted  # type: ignore[method-assign]  # the store calls its own
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        clock.advance("1m")
        self.fire(store)
        assert other.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        assert bool(hints) is (overlap == "queue")

    def test_a_schedule_wakes_though_the_clock_of_the_end_is_behind_its_tick(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # The clock of a transaction may be older than the wait that it meets.
        self.add(store, schedule(overlap="queue"))
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        clock.advance("1m")
        tick = clock.now
        self.fire(store)
        clock.now = tick - 5
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        row = self.get(store)
        assert row is not None
        assert (row.next_tick, row.wake_at) == (tick, tick)
        clock.now = tick
        assert len(self.fire(store).planned[0].runs) == 1

    def test_a_tick_waits_for_a_run_from_before_the_policy_and_is_woken_by_its_end(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        row = self.get(store)
        assert row is not None
        assert self.put(store, row, changes.change(row, {"overlap": "queue"}, clock.now)).accepted
        clock.advance("1m")
        assert self.fire(store).planned[0].runs == ()
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        (planned,) = self.fire(store).planned
        assert len(planned.runs) == 1

    @pytest.mark.parametrize("state", ["paused", "allow"])
    def test_the_end_of_a_run_wakes_only_a_schedule_that_waits(
        self, store: Store, clock: VirtualClock, state: str
    ) -> None:
        self.add(store, schedule(overlap="allow" if state == "allow" else "queue", spread=50_000))
        clock.advance("2m")
        self.fire(store)
        held = self.claim(store, lease=10 * MINUTE)
        if state == "paused":
            row = self.get(store)
            assert row is not None
            until = clock.now + 10 * MINUTE
            assert self.put(store, row, changes.pause(row, clock.now, until=until)).accepted
        before = self.get(store)
        store.settle_runs([attempts.succeeded(entry, None, clock.now, entry.id) for entry in held])
        assert self.get(store) == before

    def test_a_run_that_ends_while_its_schedule_is_planned_does_not_keep_it_waiting(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule(overlap="queue"))
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        clock.advance("1m")
        other = handles()
        other.open()
        answers: list[bool] = []

        def settle() -> None:
            answers.extend(other.settle_runs([attempts.succeeded(held, None, clock.now, "done")]))

        ending = threading.Thread(target=settle)

        def ends_meanwhile(row: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
            if ending.ident is None:
                ending.start()
                # The settlement has ended, or waits for this fire to end: its wake-up must not be lost.
                ending.join(0.1)
            return plan(row, now, active)

        store.fire_due(clock.now, 10, ends_meanwhile)
        ending.join()
        assert answers == [True]
        self.fire(store)
        assert len(self.runs(store)) == 2

    def test_cancel_running_asks_the_active_run_to_stop(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule(overlap="cancel_running"))
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store, lease=10 * MINUTE)
        clock.advance("1m")
        self.fire(store)
        (asked,) = self.runs(store)
        assert asked.cancel_requested
        assert store.settle_runs([attempts.cancelled(held, clock.now, "stopped")]) == [True]
        (planned,) = self.fire(store).planned
        assert len(planned.runs) == 1

    def test_a_rate_holds_missed_ticks_back_also_when_a_run_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = CatchUp("all", max_age=10 * MINUTE, rate=Rate(10, MINUTE))
        self.add(store, schedule(catch_up=policy, max_concurrent=3))
        clock.advance("12m")
        start, fired = clock.now, self.fire(store)
        assert fired.next_wake == start + 6_000
        assert [row.reason for row in fired.planned[0].skipped] == ["late"]
        assert [run.tick for run in fired.planned[0].runs] == [start - 10 * MINUTE]
        assert self.fire(store) == Fired((), start + 6_000)
        (claimed,) = self.claim(store)
        assert store.settle_runs([attempts.succeeded(claimed, None, clock.now, "done")]) == [True]
        assert self.fire(store).next_wake == start + 6_000
        assert len(self.runs(store)) == 1
        clock.now = start + 6_000
        assert [run.tick for run in self.fire(store).planned[0].runs] == [start - 9 * MINUTE]
