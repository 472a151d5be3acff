"""Dependencies: a success that wakes other schedules, and fires those that follow it exactly once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.dependencies import (
    MOST_SUCCESSES,
    PENDING,
    Facts,
    facts_of,
    pending_keys,
    successes_before,
)
from evenbeat.rules.firing import WAIT_CHECK, Active, Planned, plan
from evenbeat.rules.owed import OWED, hand_over, without_schedule
from evenbeat.rules.unfollowing import stops_following, without_pending
from evenbeat.stores.base import Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, schedule

HOUR = 60 * MINUTE


class DependencyContract(Contract):
    def with_followers(self, store: Store, *followers: ScheduleRecord) -> None:
        """Add ``load``, which ticks each hour, and the schedules that follow it."""
        names = " ".join(sorted(follower.name for follower in followers))
        self.add(store, schedule("load", "every 1h", task="load"))
        row = self.row(store, "load")
        assert self.put(store, row, Planned(_with(row, followers=names))).accepted
        for follower in followers:
            self.add(store, follower)

    def row(self, store: Store, name: str) -> ScheduleRecord:
        found = self.get(store, name)
        assert found is not None
        return found

    def succeed(self, store: Store, run: RunRecord, token: str = "done") -> None:
        assert store.settle_runs([attempts.succeeded(run, None, store.now(), token)]) == [True]

    def loaded(self, store: Store, clock: VirtualClock, token: str = "load") -> RunRecord:
        """Fire the next tick of ``load``, and claim its run."""
        clock.now = self.row(store, "load").next_tick or clock.now
        self.fire(store)
        (held,) = self.claim(store, token, tasks=frozenset(("load",)), lease=10 * HOUR)
        return held

    def pending(self, store: Store, name: str) -> list[str]:
        return [record.key for record in store.find_records(PENDING, start=f"{name}/", end=f"{name}0")]

    def fired(self, store: Store) -> list[RunRecord]:
        return [run for planned in self.fire(store).planned for run in planned.runs]

    def test_a_success_fires_its_follower_once_with_its_tick_and_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        assert (self.row(store, "report").state, self.row(store, "report").wake_at) == ("active", None)
        held = self.loaded(store, clock)
        clock.advance("5m")
        self.succeed(store, held)
        assert self.pending(store, "report") == [f"report/{held.id}"]
        assert self.row(store, "report").wake_at == clock.now
        clock.advance("1s")
        (run,) = self.fired(store)
        assert (run.schedule, run.tick, run.cause) == ("report", held.tick, "tick")
        assert run.id == f"default/report/1/after/{held.id.removeprefix('default/')}"
        assert run.scheduled_at == clock.now - 1_000
        assert self.pending(store, "report") == []
        assert self.row(store, "report").wake_at is None
        # A repetition of the settlement, whose reply was lost, adds nothing.
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        assert self.pending(store, "report") == []
        clock.advance("30m")
        assert self.fired(store) == []

    def test_a_success_that_wakes_no_schedule_leaves_all_rows_alone(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Nodes settle so while the rows of schedules can't be used; see rules/owed.py."""
        self.with_followers(store, schedule("report", "on success of load"))
        held = self.loaded(store, clock)
        before = [self.row(store, name) for name in ("load", "report")]
        end = without_schedule(attempts.succeeded(held, None, clock.now, "done"), clock.now)
        assert store.settle_runs([end]) == [True]
        assert [self.row(store, name) for name in ("load", "report")] == before
        assert self.pending(store, "report") == []
        (figures,) = store.statistics([("default", "load")])
        assert (figures.success_count, figures.last_success) == (1, clock.now)
        (owed,) = store.find_records(OWED)
        # The same settlement with the rows is a repetition.
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "done")]) == [True]
        assert self.pending(store, "report") == []
        # Two writes hand the success over, and it fires its follower once.
        for _ in range(2):
            rows = {row.key: row for row in (self.row(store, "load"), self.row(store, "report"))}
            for planned in hand_over(store.find_records(OWED), rows, clock.now).plans:
                stale = rows[planned.schedule.key]
                assert self.put(store, stale, planned).accepted
                assert not self.put(store, stale, planned._replace(schedule=_next(planned))).accepted
        assert store.find_records(OWED) == []
        assert [run.tick for run in self.fired(store)] == [held.tick]
        assert self.fired(store) == []
        assert owed.key == f"load/{held.id}"

    @pytest.mark.parametrize("end", ["failed", "cancelled", "refused"])
    def test_only_a_success_fires_a_follower(self, store: Store, clock: VirtualClock, end: str) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        held = self.loaded(store, clock)
        if end == "refused":
            late = attempts.succeeded(_with(held, attempt=held.attempt + 1), None, clock.now, "late")
            assert store.settle_runs([late]) == [False]
        elif end == "failed":
            assert store.settle_runs([attempts.failed(held, "no", clock.now, "end")]) == [True]
        else:
            assert store.settle_runs([attempts.cancelled(held, clock.now, "end")]) == [True]
        assert self.pending(store, "report") == []
        assert self.row(store, "report").wake_at is None

    def test_successes_in_one_batch_fire_each_follower_once_for_each(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(
            store,
            schedule("a", "on success of load"),
            schedule("b", "on success of load", payload='{"x":1}'),
            schedule("elsewhere", "on success of other"),
        )
        self.add(store, schedule("a", "on success of load", tenant="acme"))
        first = self.loaded(store, clock, "1")
        second = self.loaded(store, clock, "2")
        ends = [attempts.succeeded(run, None, clock.now, run.id) for run in (first, second)]
        assert store.settle_runs(ends) == [True, True]
        fired = self.fired(store)
        assert sorted((run.schedule, run.tick) for run in fired) == sorted(
            (name, run.tick) for name in ("a", "b") for run in (first, second)
        )
        assert {run.payload for run in fired if run.schedule == "b"} == {'{"x":1}'}
        assert self.fired(store) == []

    def test_a_fire_that_fails_keeps_the_success(self, store: Store, clock: VirtualClock) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        self.succeed(store, self.loaded(store, clock))

        def broken(*_: Any) -> Planned:
            raise RuntimeError("broken")

        assert store.fire_due(clock.now, 10, broken).quarantined == (("default", "report"),)
        assert len(self.pending(store, "report")) == 1
        row = self.row(store, "report")
        assert self.put(store, row, changes.change(row, {"description": "new"}, clock.now)).accepted
        assert len(self.fired(store)) == 1

    def test_many_successes_fire_step_by_step(self, store: Store, clock: VirtualClock) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        row = self.row(store, "load")
        runs = []
        for at in range(130):
            planned = changes.run_now(row, f"by-hand-{at}", clock.now)
            assert planned is not None
            assert self.put(store, row, planned).accepted
            row = planned.schedule
        runs = self.claim(store, limit=200, tasks=frozenset(("load",)))
        ends = [attempts.succeeded(run, None, clock.now, run.id) for run in runs]
        assert store.settle_runs(ends) == [True] * 130
        first, second = self.fired(store), self.fired(store)
        assert (len(first), len(second)) == (100, 30)
        assert {run.tick for run in first} == {None}
        assert len({run.id for run in (*first, *second)}) == 130
        assert self.fired(store) == []

    @pytest.mark.parametrize("policy", ["skip", "queue", "queue_all"])
    def test_overlap_decides_what_a_success_does_while_a_run_is_active(
        self, store: Store, clock: VirtualClock, policy: Any
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load", overlap=policy))
        self.succeed(store, self.loaded(store, clock, "1"), "1")
        assert len(self.fired(store)) == 1
        (held,) = self.claim(store, "report", tasks=frozenset(("work",)), lease=10 * HOUR)
        for token in ("2", "3"):
            self.succeed(store, self.loaded(store, clock, token), token)
        assert [run for run in self.fired(store) if run.schedule == "report"] == []
        waiting = self.row(store, "report")
        if policy != "skip":
            assert waiting.wake_at == clock.now + WAIT_CHECK
        self.succeed(store, held, "report")
        fired = self.fired(store)
        skipped = [(row.reason, row.count) for row in store.find_skipped("default", "report")]
        if policy == "skip":
            assert (fired, skipped) == ([], [("overlap", 1), ("overlap", 1)])
        elif policy == "queue":
            assert [run.coalesced for run in fired] == [1]
            assert skipped == [("coalesced", 1)]
        else:
            assert (len(fired), skipped) == (1, [])
            assert len(self.pending(store, "report")) == 1

    def test_successes_of_a_pause_are_recorded_and_never_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        row = self.row(store, "report")
        until = clock.now + 10 * HOUR
        assert self.put(store, row, changes.pause(row, clock.now, until=until)).accepted
        self.fire(store)
        assert self.row(store, "report").wake_at == until
        held = self.loaded(store, clock)
        self.succeed(store, held)
        row = self.row(store, "report")
        # The pause ends before a node plans the schedule: the success still belongs to it.
        assert self.put(store, row, changes.resume(row, clock.now)).accepted
        assert self.fired(store) == []
        (skipped,) = store.find_skipped("default", "report")
        assert (skipped.reason, skipped.first, skipped.count) == ("paused", held.tick, 1)
        assert self.row(store, "report").wake_at is None
        self.succeed(store, self.loaded(store, clock, "2"), "2")
        assert len(self.fired(store)) == 1

    def test_successes_of_an_earlier_schedule_of_the_same_name_do_not_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        self.succeed(store, self.loaded(store, clock))
        row = self.row(store, "report")
        gone = changes.delete(row, clock.now)
        assert self.put(store, row, gone).accepted
        again = changes.create(schedule("report", "on success of load"), clock.now, gone.schedule)
        assert self.put(store, gone.schedule, again).accepted
        row = self.row(store, "report")
        assert self.put(store, row, changes.change(row, {"description": "new"}, clock.now)).accepted
        assert self.fired(store) == []
        assert self.pending(store, "report") == []
        assert [row.reason for row in store.find_skipped("default", "report")] == ["changed"]

    def test_a_deleted_follower_records_its_successes_and_gets_no_more(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        self.succeed(store, self.loaded(store, clock, "1"), "1")
        row = self.row(store, "report")
        assert self.put(store, row, changes.delete(row, clock.now)).accepted
        assert self.fired(store) == []
        assert [row.reason for row in store.find_skipped("default", "report")] == ["deleted"]
        self.succeed(store, self.loaded(store, clock, "2"), "2")
        assert self.pending(store, "report") == []
        assert self.row(store, "report").wake_at is None

    def test_a_success_refuses_a_change_that_has_not_seen_it(self, store: Store, clock: VirtualClock) -> None:
        self.with_followers(
            store,
            schedule("report", "on success of load"),
            schedule("timed", "every 61m", after="load within 1m wait 30m"),
        )
        first, second = self.loaded(store, clock, "1"), self.loaded(store, clock, "2")
        stale, timed = self.row(store, "report"), self.row(store, "timed")
        self.succeed(store, first, "1")
        retriggered = changes.change(stale, {"trigger": "every 1h"}, clock.now)
        assert not self.put(store, stale, retriggered).accepted
        assert not self.put(store, stale, changes.delete(stale, clock.now)).accepted
        # A tick that waits has nothing to lose: the change plans it again.
        assert self.put(store, timed, changes.change(timed, {"description": "new"}, clock.now)).accepted
        # Also a second success, which does not change the wake-up.
        stale = self.row(store, "report")
        self.succeed(store, second, "2")
        assert self.row(store, "report").wake_at == stale.wake_at
        assert not self.put(store, stale, changes.delete(stale, clock.now)).accepted
        assert len(self.pending(store, "report")) == 2

    @pytest.mark.parametrize("ending", ["changed", "deleted", "paused"])
    def test_a_change_records_the_successes_that_it_keeps_from_firing(
        self, store: Store, clock: VirtualClock, ending: str
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        if ending == "paused":
            row = self.row(store, "report")
            assert self.put(store, row, changes.pause(row, clock.now)).accepted
        runs = [self.loaded(store, clock, token) for token in ("1", "2")]
        for run in runs:
            self.succeed(store, run, run.id)
        row = self.row(store, "report")
        stopped: Planned | None = changes.delete(row, clock.now)
        if ending != "deleted":
            stopped = changes.change(row, {"trigger": "every 1h"}, clock.now)
        assert stopped is not None
        assert stops_following(row, stopped.schedule)
        start, end = pending_keys("report")
        waiting = facts_of({}, store.find_records(PENDING, "default", start=start, end=end))
        assert self.put(store, row, without_pending(row, stopped, waiting, clock.now)).accepted
        assert self.pending(store, "report") == []
        (skipped,) = store.find_skipped("default", "report")
        assert (skipped.reason, skipped.count) == (ending, 2)
        assert (skipped.first, skipped.last) == (runs[0].tick, runs[1].tick)
        assert [run for run in self.fired(store) if run.schedule == "report"] == []

    def test_a_deleted_predecessor_keeps_its_followers(self, store: Store, clock: VirtualClock) -> None:
        self.with_followers(store, schedule("report", "on success of load"))
        row = self.row(store, "load")
        gone = changes.delete(row, clock.now)
        assert self.put(store, row, gone).accepted
        again = changes.create(schedule("load", "every 1h", task="load"), clock.now, gone.schedule)
        assert self.put(store, gone.schedule, again).accepted
        self.succeed(store, self.loaded(store, clock))
        assert len(self.fired(store)) == 1

    def test_a_tick_fires_if_its_predecessors_succeeded_lately(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "every 90m", after="load within 1h"))
        self.succeed(store, self.loaded(store, clock))
        clock.advance("30m")
        assert [run.schedule for run in self.fired(store)] == ["report"]
        clock.advance("90m")
        assert [run.schedule for run in self.fired(store)] == ["load"]
        (skipped,) = store.find_skipped("default", "report")
        assert (skipped.reason, skipped.first) == ("dependency", clock.now)

    def test_a_success_wakes_a_tick_that_waits_for_it(self, store: Store, clock: VirtualClock) -> None:
        self.with_followers(store, schedule("report", "every 61m", after="load within 1m wait 30m"))
        held = self.loaded(store, clock)
        clock.advance("1m")
        assert self.fired(store) == []
        waiting = self.row(store, "report")
        assert (waiting.next_tick, waiting.wake_at) == (clock.now, clock.now + WAIT_CHECK)
        clock.advance("10s")
        self.succeed(store, held)
        assert self.row(store, "report").wake_at == waiting.next_tick
        (run,) = self.fired(store)
        assert (run.schedule, run.tick) == ("report", waiting.next_tick)

    def test_a_tick_that_waited_in_vain_is_skipped_at_its_deadline(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "every 61m", after="load, other within 1h wait 5m"))
        held = self.loaded(store, clock)
        clock.advance("1m")
        self.fire(store)
        self.succeed(store, held)  # the other predecessor has never succeeded
        assert self.fired(store) == []
        clock.advance("5m")
        assert self.fired(store) == []
        (skipped,) = store.find_skipped("default", "report")
        assert (skipped.reason, skipped.count) == ("dependency", 1)

    def test_otherwise_run_fires_at_the_deadline(self, store: Store, clock: VirtualClock) -> None:
        after = "load within 1h wait 5m otherwise run"
        self.with_followers(store, schedule("report", "every 30m", after=after))
        clock.advance("30m")
        assert self.fired(store) == []
        clock.advance("5m")
        assert [run.schedule for run in self.fired(store)] == ["report"]

    @pytest.mark.parametrize("kind", ["on success of load", "every 61m"])
    def test_a_success_while_its_follower_is_planned_is_not_lost(
        self, handles: Handles, store: Store, clock: VirtualClock, kind: str
    ) -> None:
        after = "" if kind.startswith("on") else "load within 1m wait 30m"
        self.with_followers(store, schedule("report", kind, after=after))
        first, second = self.loaded(store, clock, "1"), None
        clock.advance("1m")
        if kind.startswith("on"):
            self.succeed(store, first, "1")
            row = self.row(store, "load")
            planned = changes.run_now(row, "by-hand", clock.now)
            assert planned is not None
            assert self.put(store, row, planned).accepted
            (second,) = self.claim(store, "2", tasks=frozenset(("load",)), lease=10 * HOUR)
        other = handles()
        other.open()
        ending = threading.Thread(target=lambda: self.succeed(other, second or first, "end"))

        def meanwhile(row: ScheduleRecord, now: Instant, active: tuple[Active, ...], facts: Facts) -> Planned:
            if ending.ident is None:
                ending.start()
                # The settlement has ended, or waits for this fire to end: its wake-up must not be lost.
                ending.join(0.1)
            return plan(row, now, active, facts)

        store.fire_due(clock.now, 10, meanwhile)
        ending.join()
        self.fire(store)
        assert len(self.runs(store, schedule="report")) == (2 if second is not None else 1)
        assert self.pending(store, "report") == []

    def test_nodes_that_fire_and_settle_at_once_lose_and_double_nothing(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        self.with_followers(store, schedule("report", "on success of load", overlap="queue_all"))
        row = self.row(store, "load")
        for at in range(24):
            planned = changes.run_now(row, f"by-hand-{at}", clock.now)
            assert planned is not None
            assert self.put(store, row, planned).accepted
            row = planned.schedule
        left = self.claim(store, limit=24, tasks=frozenset(("load",)), lease=10 * HOUR)
        done: list[str] = []

        def work(handle: Store) -> None:
            name = f"{threading.get_ident()}"
            for at in range(1_000):
                try:
                    run = left.pop()
                except IndexError:
                    run = None
                if run is not None:
                    self.succeed(handle, run, run.id)
                handle.fire_due(handle.now(), 5, plan)
                for mine in self.claim(handle, f"{name}-{at}", limit=1, tasks=frozenset(("work",))):
                    self.succeed(handle, mine, mine.id)
                    done.append(mine.id)
                if len(done) >= 24:
                    return

        self.in_threads(handles, work, 3)
        found = self.runs(store, schedule="report", limit=100)
        assert len({run.id for run in found}) == len(found) == 24
        assert self.pending(store, "report") == []

    def test_a_chain_of_successes_ends_after_a_thousand(self, store: Store, clock: VirtualClock) -> None:
        for name, leader in (("ping", "pong"), ("pong", "ping")):
            self.add(store, schedule(name, f"on success of {leader}"))
            row = self.row(store, name)
            assert self.put(store, row, Planned(_with(row, followers=leader))).accepted
        # As if 990 successes had led to it; the ids of the next runs get longer until they have a hash again.
        begun = f"default/ping/1/after/~{MOST_SUCCESSES - 10}.{'0' * 32}"
        planned = changes.run_now(self.row(store, "ping"), begun, clock.now)
        assert self.put(store, self.row(store, "ping"), planned).accepted
        ended = 0
        while ended < 20 and (held := self.claim(store, f"claim-{ended}")):
            (one,) = held
            self.succeed(store, one, f"end-{ended}")
            ended += 1
            clock.advance("1s")
            self.fire(store)
        assert ended == 11
        assert successes_before(one.id, "default") == MOST_SUCCESSES
        last = "pong" if one.schedule == "ping" else "ping"
        (skipped,) = store.find_skipped("default", last)
        assert (skipped.reason, skipped.count) == ("chain", 1)
        assert self.pending(store, last) == []
        assert self.row(store, last).wake_at is None
        # Others, and later runs of the same schedules, fire as ever.
        planned = changes.run_now(self.row(store, "ping"), "by-hand", clock.now)
        assert self.put(store, self.row(store, "ping"), planned).accepted
        (held_again,) = self.claim(store, "again")
        self.succeed(store, held_again, "end-again")
        assert [run.id for run in self.fired(store)] == [f"default/pong/1/after//by-hand@{clock.now}"]


def _with(record: Any, **fields: Any) -> Any:
    """Return the record with other fields; of a schedule, as its next revision."""
    if isinstance(record, ScheduleRecord):
        fields = {"revision": record.revision + 1, **fields}
    return replace(record, **fields)


def _next(planned: Planned) -> ScheduleRecord:
    """Return a row that no repetition of the write has."""
    return replace(planned.schedule, fire_seq=planned.schedule.fire_seq + 1)
