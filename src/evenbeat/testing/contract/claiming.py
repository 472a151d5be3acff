"""Runs: added and claimed."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from evenbeat.core.records import FORMAT, Execution
from evenbeat.rules import attempts
from evenbeat.stores.base import Claimed, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, run


class ClaimingContract(Contract):
    def test_a_run_comes_back_as_it_was_added(self, store: Store) -> None:
        added = run(
            "enqueued-1",
            payload='"\\u0000"',
            priority=9,
            scheduled_at=store.now() - 1,
            run_at=store.now(),
            created_at=store.now(),
            execution=Execution(retries=2, backoff=5),
            error="é\n",
            result='{"a":1}',
            tenant="acme",
            trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
        assert store.add_runs([added]) == [True]
        assert self.runs(store) == [added]

    @pytest.mark.parametrize("count", [1, 3])
    def test_nothing_is_added_from_an_instant_on(self, store: Store, clock: VirtualClock, count: int) -> None:
        first, second = ([run(f"{name}{at}") for at in range(count)] for name in "ab")
        end = clock.now + 1_000
        clock.advance("999ms")
        assert store.add_runs(first, end) == [True] * count
        assert store.add_runs([*first, first[0]], end) == [False] * (count + 1)
        clock.advance("1ms")
        assert store.add_runs(second, end) == [False] * count
        assert {each.id for each in self.runs(store)} == {each.id for each in first}
        assert store.add_runs([*second, second[0]], end + 1) == [True] * count + [False]
        assert store.add_runs(second) == [False] * count

    def test_a_run_is_added_once_however_often_it_is_sent(self, store: Store) -> None:
        first, other = run("a", payload="1"), run("b")
        assert store.add_runs([first]) == [True]
        assert store.add_runs([replace(first, payload="2"), other, other]) == [False, True, False]
        assert {found.id: found.payload for found in self.runs(store)} == {"a": "1", "b": "null"}

    def test_runs_are_claimed_by_priority_then_time_then_id(self, store: Store, clock: VirtualClock) -> None:
        now = store.now()
        store.add_runs(
            [
                run("late", run_at=now - 1),
                run("early", run_at=now - 2),
                run("urgent", run_at=now, priority=9),
                run("b", run_at=now - 1, priority=7),
                run("a", run_at=now - 1, priority=7),
                run("future", run_at=now + 1, priority=9),
            ]
        )
        assert [held.id for held in self.claim(store, limit=3)] == ["urgent", "a", "b"]
        assert [held.id for held in self.claim(store, "claim-2")] == ["early", "late"]
        clock.advance("1s")
        assert [held.id for held in self.claim(store, "claim-3", now=clock.now)] == ["future"]

    def test_runs_of_several_queues_are_claimed_in_one_order(self, store: Store, clock: VirtualClock) -> None:
        clock.advance("1m")
        queues = ("one", "two", "three")
        # The oldest of all are in the last queue that is asked, and ids run against time.
        wanted = [
            run(f"r{20 - at:02}", queue=queues[2 - at % 3], run_at=clock.now - 100 + at) for at in range(12)
        ]
        store.add_runs(wanted)
        held = self.claim(store, queues=queues, limit=7)
        assert [entry.id for entry in held] == [entry.id for entry in wanted[:7]]

    def test_a_claimed_run_has_a_worker_a_lease_and_the_next_attempt(self, store: Store) -> None:
        store.add_runs([run("a", run_at=store.now(), created_at=store.now())])
        (held,) = self.claim(store, worker="node-7", lease=5000)
        assert (held.state, held.worker, held.attempt) == ("running", "node-7", 1)
        assert (held.lease_until, held.started_at) == (store.now() + 5000, store.now())
        assert self.runs(store) == [held]
        assert self.claim(store, "claim-2") == []

    def test_only_runs_of_known_tasks_and_queues_are_claimed(self, store: Store) -> None:
        now = store.now()
        store.add_runs(
            [
                run("mail", task="mail", run_at=now - 3),
                run("report", task="report", run_at=now - 2),
                run("slow", task="mail", queue="slow", run_at=now - 1),
            ]
        )
        only = self.claim(store, tasks=frozenset({"report"}))
        assert [held.id for held in only] == ["report"]
        assert self.claim(store, "claim-2", tasks=frozenset()) == []
        held = self.claim(store, "claim-3", tasks=frozenset({"mail"}), queues=("slow", "default"))
        assert [entry.id for entry in held] == ["mail", "slow"]

    def test_a_claim_returns_when_the_next_run_may_be_claimed(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert self.claimed(store) == Claimed((), None)
        now = clock.now
        store.add_runs(
            [
                run("later", run_at=now + 2 * MINUTE, priority=9),
                run("soon", run_at=now + MINUTE, priority=1),
                run("due", run_at=now),
            ]
        )
        (held,), next_due = self.claimed(store)
        assert (held.id, next_due) == ("due", now + MINUTE)
        assert self.claimed(store, "claim-2") == Claimed((), now + MINUTE)
        clock.advance("1m")
        (held,), next_due = self.claimed(store, "claim-3")
        assert (held.id, next_due) == ("soon", now + 2 * MINUTE)
        clock.advance("1m")
        (held,), next_due = self.claimed(store, "claim-4")
        assert (held.id, next_due) == ("later", None)

    def test_a_claim_that_leaves_due_runs_behind_returns_their_time(
        self, store: Store, clock: VirtualClock
    ) -> None:
        due = [run(f"r{at}", run_at=clock.now - 5 + at) for at in range(3)]
        store.add_runs([*due, run("future", run_at=clock.now + MINUTE, priority=9)])
        assert self.claimed(store, limit=1).next_due == clock.now - 4
        assert self.claimed(store, "claim-2", limit=1).next_due == clock.now - 3
        assert self.claimed(store, "claim-3", limit=1).next_due == clock.now + MINUTE
        assert self.claimed(store, "claim-4", limit=0).next_due == clock.now + MINUTE

    @pytest.mark.parametrize("first", [0, -1])
    def test_a_worker_of_many_queues_is_told_when_the_earliest_run_of_any_is_due(
        self, store: Store, clock: VirtualClock, first: int
    ) -> None:
        queues = [f"q{at:02}" for at in range(50)]
        store.add_runs(
            [
                run("soon", run_at=clock.now + MINUTE, queue=queues[first]),
                run("later", run_at=clock.now + 2 * MINUTE, queue=queues[-1 - first]),
            ]
        )
        assert self.claimed(store, queues=tuple(queues)).next_due == clock.now + MINUTE

    def test_runs_that_a_claim_cannot_take_do_not_wake_its_worker(
        self, store: Store, clock: VirtualClock
    ) -> None:
        now = clock.now
        store.add_runs(
            [
                run("due", task="mail", queue="slow", run_at=now - 1),
                run("mail", task="mail", run_at=now + 1),
                run("report", task="report", run_at=now + 2),
                run("newer", run_at=now - 1, format=FORMAT + 1),
                run("over", run_at=now - 1, state="cancelled"),
            ]
        )
        assert self.claimed(store) == Claimed((), now + 1)
        assert self.claimed(store, tasks=frozenset({"report", "work"})) == Claimed((), now + 2)
        assert self.claimed(store, tasks=frozenset({"work"})) == Claimed((), None)
        assert self.claimed(store, tasks=frozenset()) == Claimed((), None)
        assert self.claimed(store, queues=("other",)) == Claimed((), None)
        assert self.claimed(store, queues=()) == Claimed((), None)
        assert self.claimed(store, queues=("slow", "default"), limit=0) == Claimed((), now - 1)

    def test_a_claim_returns_the_time_of_retried_runs(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now, execution=Execution(retries=1, backoff=10_000))])
        (held,), next_due = self.claimed(store)
        assert next_due is None  # other workers do not see running runs before their lease ends
        assert store.settle_runs([attempts.failed(held, "boom", clock.now, "t")]) == [True]
        (again,) = self.runs(store)
        assert again.run_at > clock.now
        assert self.claimed(store, "claim-2") == Claimed((), again.run_at)

    def test_a_claim_repeated_after_its_reply_was_lost_answers_the_same_runs(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run(f"r{at}", run_at=store.now()) for at in range(5)])
        store.add_runs([run("future", run_at=clock.now + MINUTE)])
        first = self.claimed(store, "token", limit=2)
        assert self.claimed(store, "token", limit=2) == first
        # Also if there is no other run that it could claim.
        rest = self.claimed(store, "rest")
        assert (len(rest.runs), rest.next_due) == (3, clock.now + MINUTE)
        assert self.claimed(store, "rest") == rest
        assert self.claimed(store, "token", limit=2).runs == first.runs
        assert (
            store.settle_runs([attempts.released(held, clock.now, f"t-{held.id}") for held in rest.runs])
            == [True] * 3
        )
        assert {held.attempt for held in self.runs(store, states=("running",))} == {1}
        assert len(self.runs(store, states=("queued",))) == 4

    def test_a_repeated_claim_takes_no_more_runs_than_it_holds(self, store: Store) -> None:
        # The claim had room left, and another run was added since: the repetition returns the first runs
        # alone.
        store.add_runs([run("a", run_at=store.now()), run("b", run_at=store.now())])
        first = self.claim(store, "token", limit=10)
        assert [held.id for held in first] == ["a", "b"]
        store.add_runs([run("c", run_at=store.now())])
        assert self.claim(store, "token", limit=10) == first
        assert [found.id for found in self.runs(store, states=("queued",))] == ["c"]

    def test_ten_workers_never_hold_the_same_run(self, handles: Handles, store: Store) -> None:
        store.add_runs([run(f"r{at:03}", run_at=store.now()) for at in range(200)])
        held: list[str] = []
        tokens = iter(range(10_000))
        guard = threading.Lock()

        def work(handle: Store) -> None:
            while True:
                with guard:
                    token = f"token-{next(tokens)}"
                got = self.claim(handle, token, limit=7)
                if not got:
                    return
                held.extend(entry.id for entry in got)

        self.in_threads(handles, work)
        assert sorted(held) == [f"r{at:03}" for at in range(200)]

    def test_the_clock_of_a_slow_worker_does_not_shorten_its_lease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=0)])
        (held,) = self.claim(store, now=clock.now - 10 * MINUTE)
        assert held.lease_until == clock.now + 30_000

    def test_runs_come_back_as_they_were_added_also_in_large_batches(
        self, store: Store, clock: VirtualClock
    ) -> None:
        wanted = [
            run(
                f"r{at:02}",
                payload='"\\u0000"' if at % 7 == 0 else f'{{"n":{at}}}',
                error=None if at % 3 else 'line\n\ttab \x1f "quoted" \\ ü 😀' + "\0" * (at % 5 == 4),
                tick=None if at % 4 else 1 << 52,
                created_at=clock.now,
                schedule="s" if at % 4 == 0 else None,
                trace=f"00-{at:032x}-{at:016x}-01" if at % 5 == 0 else None,
                execution=Execution(retries=at % 2),
            )
            for at in range(40)
        ]
        for batch in (wanted[:10], wanted[10:20:3], wanted[20:21], wanted):
            store.add_runs(batch)
        assert self.runs(store) == wanted
