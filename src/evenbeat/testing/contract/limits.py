"""The contract of limits over all machines, and of tenants in turn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.rates import Rate
from evenbeat.core.records import Execution, RunRecord, Transition
from evenbeat.rules import attempts, flows
from evenbeat.rules.flow_parts import FlowState, part_text
from evenbeat.rules.limits import BUCKET, LIMIT, OWNER, Limit, limit_record
from evenbeat.stores.base import ActiveCounts, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, run


def _retried(run: RunRecord, _: Instant) -> Transition:
    transition = attempts.retried(run, "again")
    assert transition is not None
    return transition


WAYS_BACK: dict[str, Callable[[RunRecord, Instant], Transition]] = {
    "failed": lambda run, now: attempts.failed(run, "boom", now, "again"),
    "crashed": lambda run, now: attempts.crashed(run, now, "again"),
    "released": lambda run, now: attempts.released(run, now, "again"),
    "asked for it": lambda run, now: attempts.again(run, 1, "later", now, "again"),
    "does not fit": lambda run, now: attempts.unfit(run, "wrong", now, "again"),
    "another kind": lambda run, now: attempts.regrouped(run, now, "again", kind="task"),
    "retried by hand": _retried,
    "resumed": lambda run, _: flows.queued_again(run, None, "again"),
}
"""The transitions after which a run is executed again: in the queue or after its end, it holds no slot."""


class LimitContract(Contract):
    def set_limit(self, store: Store, **fields: Any) -> None:
        limit = Limit(**fields)
        present = store.get_record(LIMIT, OWNER, limit.name)
        version = 0 if present is None else present.version
        assert store.put_record(limit_record(limit, version + 1), version or None)

    def remove_limit(self, store: Store, **fields: Any) -> None:
        present = store.get_record(LIMIT, OWNER, Limit(**fields).name)
        assert present is not None
        assert store.delete_record(LIMIT, OWNER, present.key, present.version)

    def ids(self, store: Store, token: str, **fields: Any) -> list[str]:
        return [taken.id for taken in self.claim(store, token, **fields)]

    def end(self, store: Store, held: RunRecord) -> None:
        assert store.settle_runs([attempts.succeeded(held, None, store.now(), f"end-{held.id}")]) == [True]

    def wakes(self, handles: Handles, act: Callable[[], None]) -> bool:
        """Return whether ``act`` wakes a worker that waits."""
        other = handles()
        other.open()
        is_ready, woken = threading.Event(), list[bool]()

        def wait() -> None:
            other.wait(0)  # hints count from a thread's last wait
            is_ready.set()
            woken.append(other.wait(20))

        waiter = threading.Thread(target=wait)
        waiter.start()
        is_ready.wait()
        act()
        waiter.join()
        return woken == [True]

    def some(self, store: Store, count: int, prefix: str = "r", **fields: Any) -> list[RunRecord]:
        runs = [run(f"{prefix}{at:03}", **{"run_at": store.now(), **fields}) for at in range(count)]
        assert store.add_runs(runs) == [True] * count
        return runs

    # -- concurrency ---------------------------------------------------------------------------------------

    def test_no_more_runs_of_a_task_are_running_than_its_limit_allows(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=3)
        self.some(store, 10)
        first = self.claimed(store, "c1")
        assert [taken.id for taken in first.runs] == ["r000", "r001", "r002"]
        assert {taken.cohort for taken in first.runs} == {"default 4 default work"}
        assert first.next_due is None  # until a run ends, no claim could take one
        assert self.ids(store, "c2", worker="w2") == []
        self.end(store, first.runs[1])
        assert self.ids(store, "c3", worker="w2") == ["r003"]
        for held in (first.runs[0], first.runs[2]):
            self.end(store, held)
        assert self.ids(store, "c4") == ["r004", "r005"]
        assert Counter(found.state for found in self.runs(store)) == {
            "running": 3,
            "queued": 4,
            "succeeded": 3,
        }

    def test_only_limits_of_its_task_count_a_flow(self, store: Store) -> None:
        """A flow under way executes nothing. If it took a slot that its steps need, both would wait."""
        self.some(store, 2, "early", kind="flow", task="flow")
        early = self.claim(store, "c1")
        assert len(early) == 2
        self.set_limit(store, tenant="default", concurrency=2)
        self.set_limit(store, queue="default", key="n", concurrency=1)
        self.set_limit(store, task="flow", concurrency=3)
        self.some(store, 3, "late", kind="flow", task="flow", payload='{"n":1}')
        self.some(store, 3, "step", payload='{"n":2}')
        taken = self.ids(store, "c2")
        assert sorted(taken) == ["late000", "step000"]
        assert self.ids(store, "c3", worker="w2") == []
        self.some(store, 1, "other", payload='{"n":3}')
        assert self.ids(store, "c4", worker="w3") == ["other000"]
        self.end(store, early[0])
        assert self.ids(store, "c5", worker="w4") == ["late001"]

    def test_a_run_that_turns_out_to_be_a_flow_counts_as_a_flow(self, store: Store, handles: Handles) -> None:
        """A process without the code stores flows as tasks. The node that begins one writes what it is."""
        self.set_limit(store, tenant="default", concurrency=2)
        self.set_limit(store, tenant="default", key="n", concurrency=1)
        self.set_limit(store, task="flow", concurrency=2)
        early = store.now() - 10
        self.some(store, 3, "flow", task="flow", run_at=early, payload='{"n":1}')
        self.some(store, 1, "other", task="flow", run_at=early, payload='{"n":2}')
        self.some(store, 3, "step", payload='{"n":1}')
        held = self.claim(store, "c1")
        assert [found.id for found in held] == ["flow000", "other000"]
        begun = [
            Transition(
                run=found.id,
                attempt=found.attempt,
                claim=found.claim,
                expect=("running",),
                token=f"begun-{found.id}",
                state="running",
                worker=None,
                lease=MINUTE,
                flow="{}",
                kind="flow",
                renews=True,
            )
            for found in held
        ]

        def begin() -> None:
            assert store.settle_runs(begun) == [True, True]

        assert self.wakes(handles, begin)  # the slots are free
        assert {found.id: found.kind for found in self.runs(store, states=("running",))} == {
            "flow000": "flow",
            "other000": "flow",
        }
        # The limits of all tasks admit a step, and the limit of the flow counts its two runs.
        (step,) = self.claim(store, "c2")
        assert step.id == "step000"
        assert self.ids(store, "c3") == []
        (first, _) = self.runs(store, states=("running",), task="flow")
        assert store.settle_runs([attempts.succeeded(first, None, store.now(), "over")]) == [True]
        # It is stored as a task, so it waits for the customer's slot, too.
        assert self.ids(store, "c4") == []
        self.end(store, step)
        assert self.ids(store, "c5") == ["flow001"]

    def test_a_flow_that_turns_out_to_be_a_task_waits_for_the_limits_of_tasks(self, store: Store) -> None:
        self.set_limit(store, tenant="default", concurrency=1)
        now = store.now()
        self.some(store, 1, "old", kind="flow", run_at=now - 20)
        (first,) = self.claim(store, "c1")
        store.add_runs([run("task", run_at=now - 10)])
        (task,) = self.claim(store, "c2")
        assert store.settle_runs([attempts.regrouped(first, now, "back", kind="task")]) == [True]
        assert self.ids(store, "c3") == []
        self.end(store, task)
        (again,) = self.claim(store, "c4")
        assert (again.id, again.kind, again.run_at, again.attempt) == ("old000", "task", now - 20, 2)

    def test_a_run_that_goes_back_with_its_payload_counts_for_the_value_of_its_key(
        self, store: Store, handles: Handles
    ) -> None:
        """A step gets a key from another step: the worker that has claimed it learns the value."""
        self.set_limit(store, task="work", key="customer", concurrency=1)
        now = store.now()
        payloads = {"a": "{}", "b": '{"x":1}', "c": '{"customer":7}', "d": '{"customer":8}'}
        for at, (name, text) in enumerate(payloads.items()):
            store.add_runs([run(name, payload=text, run_at=now - 10 + at)])
        first, second, seven, eight = self.claim(store, "c1")
        self.end(store, eight)

        def back() -> None:
            known = {"a": (first, '{"customer":7}'), "b": (second, '{"x":1,"customer":8}')}
            transitions = [
                attempts.regrouped(held, now, f"back-{name}", payload=text)
                for name, (held, text) in known.items()
            ]
            assert store.settle_runs(transitions) == [True, True]

        assert self.wakes(handles, back)
        (other,) = self.claim(store, "c2")
        assert (other.id, other.payload, other.run_at) == ("b", '{"x":1,"customer":8}', now - 9)
        self.end(store, seven)
        (again,) = self.claim(store, "c3")
        assert (again.id, again.payload, again.attempt) == ("a", '{"customer":7}', 2)
        store.add_runs([run("e", payload='{"customer":7}', run_at=now)])
        assert self.ids(store, "c4") == []

    def test_limits_of_a_queue_a_tenant_and_a_pair_of_them_hold(self, store: Store) -> None:
        self.set_limit(store, queue="mail", concurrency=2)
        self.set_limit(store, tenant="acme", concurrency=3)
        self.set_limit(store, task="work", tenant="globex", concurrency=1)
        self.some(store, 5, "mail", queue="mail")
        self.some(store, 5, "acme", tenant="acme")
        self.some(store, 5, "globex", tenant="globex")
        self.some(store, 5, "other", tenant="globex", task="other")
        self.some(store, 5, "free")
        taken = Counter(name[:-3] for name in self.ids(store, "c", queues=("default", "mail")))
        assert taken == {"mail": 2, "acme": 3, "globex": 1, "other": 5, "free": 5}

    def test_of_several_limits_all_hold(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=2)
        self.set_limit(store, tenant="acme", concurrency=1)
        self.some(store, 3, "acme", tenant="acme")
        self.some(store, 3, "other", tenant="other")
        held = self.claim(store, "c1")
        assert sorted(taken.tenant for taken in held) == ["acme", "other"]
        # The task has a free slot, the tenant does not.
        self.end(store, next(taken for taken in held if taken.tenant == "other"))
        assert self.ids(store, "c2") == ["other001"]
        assert self.claimed(store, "c3").next_due is None
        self.end(store, next(taken for taken in held if taken.tenant == "acme"))
        assert self.ids(store, "c4") == ["acme001"]

    def test_a_key_limits_the_runs_of_each_value_of_it(self, store: Store) -> None:
        self.set_limit(store, task="work", key="customer", concurrency=1)
        now = store.now()
        payloads = [
            '{"customer":1}',
            '{"customer":"1"}',
            '{"customer":"a b"}',
            '{"customer":null}',
            "{}",
            "[]",
        ]
        store.add_runs(
            [
                run(f"{at}{copy}", payload=text, run_at=now + at - 10)
                for at, text in enumerate(payloads)
                for copy in "abc"
            ]
        )
        first = self.claim(store, "c1")
        # A payload without the field is not limited.
        assert [held.id for held in first] == ["0a", "1a", "2a", "3a", "4a", "4b", "4c", "5a", "5b", "5c"]
        assert self.ids(store, "c2") == []
        self.end(store, first[2])
        assert self.ids(store, "c3") == ["2b"]

    def test_many_values_of_a_key_are_claimed_together(self, store: Store) -> None:
        self.set_limit(store, task="work", key="customer", concurrency=2)
        now = store.now()
        store.add_runs(
            [
                run(f"{at:04}", payload=f'{{"customer":{at % 70}}}', run_at=now - 1000 + at)
                for at in range(350)
            ]
        )
        first = self.claim(store, "c1", limit=100)
        assert [held.id for held in first] == [f"{at:04}" for at in range(100)]
        second = self.claim(store, "c2", limit=100)
        assert [held.id for held in second] == [f"{at:04}" for at in range(100, 140)]
        for held in first[:50]:
            self.end(store, held)
        assert len(self.ids(store, "c3", limit=100)) == 50

    def test_a_limited_run_does_not_block_the_runs_behind_it(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=1)
        now = store.now()
        self.some(store, 300, "limited", run_at=now - 1000, priority=7)
        self.some(store, 2, "free", task="other", run_at=now)
        assert self.ids(store, "c1", limit=2) == ["limited000", "free000"]
        assert self.ids(store, "c2", limit=2) == ["free001"]

    def test_limited_and_free_runs_are_claimed_in_one_order(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=2)
        now = store.now()
        store.add_runs(
            [
                run("limited-high", priority=9, run_at=now),
                run("free-normal-1", task="other", run_at=now - 3),
                run("limited-normal-2", run_at=now - 2),
                run("limited-normal-3", run_at=now - 1),
                run("free-normal-4", task="other", run_at=now),
                run("free-low", task="other", priority=1, run_at=now - 9),
            ]
        )
        assert self.ids(store, "c", limit=4) == [
            "limited-high",
            "free-normal-1",
            "limited-normal-2",
            "free-normal-4",
        ]

    def test_a_limit_counts_runs_that_were_running_before_it_was_set(self, store: Store) -> None:
        self.some(store, 4, payload='{"customer":7}')
        held = self.claim(store, "c1", limit=2)
        self.set_limit(store, task="work", concurrency=3)
        assert self.ids(store, "c2") == ["r002"]
        self.remove_limit(store, task="work")
        self.set_limit(store, task="work", key="customer", concurrency=2)
        for one in held:
            assert self.ids(store, f"before-{one.id}") == []
            self.end(store, one)
        assert self.ids(store, "c3") == ["r003"]

    def test_a_changed_limit_holds_for_the_next_claim(self, store: Store) -> None:
        self.some(store, 6, payload='{"customer":7,"region":"eu"}')
        self.some(store, 6, "u", payload='{"customer":8,"region":"eu"}')
        self.set_limit(store, task="work", key="customer", concurrency=1)
        assert self.ids(store, "c1") == ["r000", "u000"]
        self.set_limit(store, task="work", key="region", concurrency=3)
        assert self.ids(store, "c2") == []  # each customer has its run
        self.remove_limit(store, task="work", key="customer")
        assert self.ids(store, "c3") == ["r001"]  # three of the region
        self.remove_limit(store, task="work", key="region")
        assert len(self.ids(store, "c4")) == 9
        assert self.claimed(store, "c5").next_due is None

    def test_ten_workers_never_exceed_a_limit(self, store: Store, handles: Handles) -> None:
        self.set_limit(store, task="work", concurrency=4)
        self.set_limit(store, task="work", key="customer", concurrency=1)
        now = store.now()
        store.add_runs([run(f"{at:03}", payload=f'{{"customer":{at % 9}}}', run_at=now) for at in range(60)])
        guard = threading.Lock()
        ended: set[str] = set()
        most: list[int] = []

        def work(handle: Store) -> None:
            worker = f"w{threading.get_ident()}"
            for turn in range(200):
                held = self.claim(handle, f"{worker}-{turn}", worker=worker, limit=3)
                with guard:
                    states = Counter(found.cohort for found in self.runs(handle, states=("running",)))
                    most.append(sum(states.values()))
                    assert all(count <= 1 for count in states.values()), states
                for one in held:
                    self.end(handle, one)
                with guard:
                    ended.update(one.id for one in held)
                    if len(ended) == 60:
                        return

        self.in_threads(handles, work)
        assert len(ended) == 60
        assert 0 < max(most) <= 4

    def test_the_slot_of_a_dead_worker_is_free_when_its_run_is_taken_from_it(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.set_limit(store, task="work", concurrency=1)
        self.some(store, 2, execution=Execution(max_crashes=1))
        (held,) = self.claim(store, "c1")
        clock.advance("1m")  # longer than the lease
        # The slot counts until a node has taken the run away: its worker may still renew the lease.
        assert self.ids(store, "c2", worker="w2") == []
        (lost,) = store.lost_runs(store.now(), 10).runs
        assert store.settle_runs([attempts.crashed(lost, store.now(), "reaped")]) == [True]
        heartbeat = attempts.heartbeat(held, 30_000, "too-late")
        assert store.settle_runs([heartbeat]) == [False]
        assert self.ids(store, "c3", worker="w2") == ["r001"]
        assert self.ids(store, "c4", worker="w3") == []

    def test_a_repeated_claim_of_limited_runs_takes_nothing_more(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=2, rate=Rate(4, MINUTE), burst=4)
        self.some(store, 6)
        first = self.claim(store, "same")
        again = self.claim(store, "same")
        assert [held.id for held in again] == [held.id for held in first] == ["r000", "r001"]
        for held in first:
            self.end(store, held)
        second = self.ids(store, "next")
        assert second == ["r002", "r003"]

    @pytest.mark.parametrize("way", WAYS_BACK)
    def test_every_way_back_to_work_goes_through_the_limit(
        self, store: Store, clock: VirtualClock, way: str
    ) -> None:
        """A run that failed, was lost, was released or is a flow that continues has no slot until a claim
        gives it one."""
        self.set_limit(store, task="work", concurrency=1)
        self.some(store, 2, execution=Execution(retries=1, backoff=1))
        (first,) = self.claim(store, "c1")
        has_ended = way in ("retried by hand", "resumed")
        if has_ended:
            state = part_text(state=FlowState(graph="g", steps="f"))
            ended = replace(attempts.final(first, "failed", store.now(), "ended"), flow=state)
            assert store.settle_runs([ended]) == [True]
        else:
            clock.advance("1m")  # its lease ends
            assert store.settle_runs([WAYS_BACK[way](first, store.now())]) == [True]
        clock.advance("1s")
        (second,) = self.claim(store, "c2", worker="w2", limit=1)
        (other,) = (found for found in self.runs(store) if found.id != second.id)
        if has_ended:
            assert store.settle_runs([WAYS_BACK[way](other, store.now())]) == [True]
        clock.advance("1s")
        assert self.ids(store, "c3", worker="w3") == []
        assert sum(found.state == "running" for found in self.runs(store)) == 1
        self.end(store, second)
        assert self.ids(store, "c4", worker="w3") == [other.id]

    def test_a_limited_run_that_is_retried_waits_for_its_time_and_its_slot(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.set_limit(store, task="work", concurrency=1)
        self.some(store, 2, execution=Execution(retries=3, backoff=MINUTE))
        (held,) = self.claim(store, "c1")
        assert store.settle_runs([attempts.failed(held, "boom", store.now(), "failed")]) == [True]
        (other,) = self.claim(store, "c2")
        assert other.id == "r001"
        self.end(store, other)
        waiting = self.claimed(store, "c3")
        assert waiting.runs == ()
        assert waiting.next_due is not None
        assert store.now() + MINUTE - MINUTE // 10 <= waiting.next_due <= store.now() + MINUTE
        clock.advance("1m")
        assert self.ids(store, "c4") == ["r000"]

    def test_ending_a_limited_run_wakes_workers(self, store: Store, handles: Handles) -> None:
        self.set_limit(store, task="work", concurrency=1)
        self.some(store, 2)
        (held,) = self.claim(store, "c1")
        assert self.wakes(handles, lambda: self.end(store, held))

    # -- rates ---------------------------------------------------------------------------------------------

    def test_a_rate_admits_runs_evenly_after_its_burst(self, store: Store, clock: VirtualClock) -> None:
        self.set_limit(store, task="work", rate=Rate(6, MINUTE), burst=2)
        self.some(store, 6)
        first = self.claimed(store, "c1")
        assert [held.id for held in first.runs] == ["r000", "r001"]
        assert first.next_due == store.now() + 10_000
        assert self.ids(store, "c2") == []
        clock.advance("9s")
        waiting = self.claimed(store, "c3")
        assert (waiting.runs, waiting.next_due) == ((), store.now() + 1_000)
        clock.advance("1s")
        assert self.ids(store, "c4") == ["r002"]
        clock.advance("1h")  # the bucket is full again, and no fuller
        assert self.ids(store, "c5") == ["r003", "r004"]
        clock.advance("10s")
        assert self.ids(store, "c6") == ["r005"]

    def test_buckets_are_purged_in_batches_once_they_are_full(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.set_limit(store, task="work", key="customer", rate=Rate(2, MINUTE), burst=2)
        for customer in "abcde":
            self.some(store, 4, customer, payload=f'{{"customer":"{customer}"}}')
        assert len(self.claim(store, "c1")) == 10
        long_ago = clock.now - 60 * 24 * 60 * MINUTE
        clock.now += MINUTE - 1  # one millisecond before they are full
        assert len(store.find_records(BUCKET, OWNER)) == 5
        assert store.purge(long_ago, 100).deleted == 0
        assert self.ids(store, "c2") == ["a002", "b002", "c002", "d002", "e002"]
        clock.now += MINUTE // 2
        assert store.purge(long_ago, 100).deleted == 0
        clock.now += 1
        assert store.find_records(BUCKET, OWNER) == []
        assert [store.purge(long_ago, 2).deleted for _ in range(4)] == [2, 2, 1, 0]
        assert self.ids(store, "c3") == ["a003", "b003", "c003", "d003", "e003"]

    def test_a_rate_of_a_key_counts_each_value_by_itself(self, store: Store, clock: VirtualClock) -> None:
        self.set_limit(store, task="work", key="customer", rate=Rate(1, MINUTE))
        self.some(store, 3, "a", payload='{"customer":"a"}')
        self.some(store, 3, "b", payload='{"customer":"b"}')
        assert self.ids(store, "c1") == ["a000", "b000"]
        clock.advance("30s")
        waiting = self.claimed(store, "c2")
        assert (waiting.runs, waiting.next_due) == ((), store.now() + 30_000)
        clock.advance("30s")
        assert self.ids(store, "c3", limit=1) == ["a001"]
        assert self.ids(store, "c4") == ["b001"]

    def test_a_rate_and_a_concurrency_both_hold(self, store: Store, clock: VirtualClock) -> None:
        self.set_limit(store, task="work", concurrency=1, rate=Rate(60, MINUTE), burst=3)
        self.some(store, 4)
        for name in ("r000", "r001", "r002"):
            (held,) = self.claim(store, f"c-{name}")
            assert held.id == name
            assert self.ids(store, f"d-{name}") == []
            self.end(store, held)
        assert self.ids(store, "c") == []
        clock.advance("1s")
        assert self.ids(store, "d") == ["r003"]

    def test_ten_workers_never_exceed_a_rate(self, store: Store, handles: Handles) -> None:
        self.set_limit(store, task="work", rate=Rate(1, 60 * MINUTE), burst=7)
        self.some(store, 60)
        guard = threading.Lock()
        taken: list[str] = []

        def work(handle: Store) -> None:
            for turn in range(4):
                held = self.ids(handle, f"{threading.get_ident()}-{turn}", worker=f"w{threading.get_ident()}")
                with guard:
                    taken.extend(held)

        self.in_threads(handles, work)
        assert len(taken) == len(set(taken)) == 7

    # -- tenants in turn -----------------------------------------------------------------------------------

    def test_tenants_take_turns_however_many_runs_one_of_them_has(self, store: Store) -> None:
        now = store.now()
        self.some(store, 300, "flood", tenant="flood", run_at=now - 1000)
        self.some(store, 2, "calm", tenant="calm", run_at=now)
        self.some(store, 1, "zen", tenant="zen", run_at=now)
        first = self.claim(store, "c1", limit=10)
        assert {held.id for held in first} >= {"calm000", "flood000", "zen000"}
        assert len(first) == 10
        rest = self.claim(store, "c2", limit=300)
        assert len(rest) == 293
        assert sum(held.tenant == "flood" for held in rest) >= 292

    def test_a_worker_with_one_slot_serves_the_tenants_in_turn(self, store: Store) -> None:
        now = store.now()
        for tenant in ("a", "b", "c"):
            self.some(store, 3, tenant, tenant=tenant, run_at=now)
        served: list[str] = []
        for number in range(9):
            (held,) = self.claim(store, f"c{number}", limit=1, turn=served[-1] if served else "")
            served.append(held.tenant)
        assert served == ["a", "b", "c"] * 3

    def test_priorities_come_before_turns_of_tenants(self, store: Store) -> None:
        now = store.now()
        self.some(store, 3, "high", tenant="a", priority=8, run_at=now)
        self.some(store, 3, "low", tenant="b", priority=2, run_at=now - 1000)
        assert self.ids(store, "c1", limit=4, turn="a") == ["high000", "high001", "high002", "low000"]

    def test_tenants_take_turns_in_their_share_of_a_limit(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=2)
        now = store.now()
        self.some(store, 50, "flood", tenant="flood", run_at=now - 1000)
        self.some(store, 2, "calm", tenant="calm", run_at=now)
        held = self.claim(store, "c1")
        assert [one.id for one in held] == ["calm000", "flood000"]
        self.end(store, held[1])
        assert self.ids(store, "c2", turn="flood") == ["calm001"]

    def test_the_next_due_time_counts_all_tenants(self, store: Store) -> None:
        now = store.now()
        store.add_runs(
            [
                run("z", tenant="z", run_at=now + MINUTE),
                run("m", tenant="m", run_at=now + 2 * MINUTE),
                run("a", tenant="a", run_at=now + 3 * MINUTE, task="other"),
            ]
        )
        assert self.claimed(store, "c1").next_due == now + MINUTE
        assert self.claimed(store, "c2", tasks=frozenset({"other"})).next_due == now + 3 * MINUTE

    # -- counts --------------------------------------------------------------------------------------------

    def test_active_runs_are_counted_by_what_limits_can_name(self, store: Store) -> None:
        self.set_limit(store, task="work", concurrency=1)
        now = store.now()
        self.some(store, 3, run_at=now - 5)
        self.some(store, 2, "later", tenant="acme", queue="mail", priority=7, task="other", run_at=now + 1)
        (held,) = self.claim(store, "c1")
        cohort = "default 4 default work"
        counts = store.count_active(now)
        assert sorted(counts, key=lambda one: (one.tenant, one.cohort or "")) == [
            ActiveCounts(tenant="acme", queue="mail", priority=7, task="other", cohort=None, later=2),
            ActiveCounts(
                tenant="default",
                queue="default",
                priority=5,
                task="work",
                cohort=cohort,
                due=2,
                running=1,
                oldest_due=now - 5,
            ),
        ]
        self.end(store, held)
        assert sum(one.running for one in store.count_active(now)) == 0
