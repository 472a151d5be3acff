"""Queued runs that are moved to another task."""

from __future__ import annotations

import threading
from typing import Any

from msgspec.structs import replace

from evenbeat.core.records import Execution, Record, RunRecord, Transition
from evenbeat.rules import attempts
from evenbeat.rules.limits import LIMIT, OWNER, Limit, limit_record
from evenbeat.stores.base import Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import Contract, Handles, run, schedule


class MovingContract(Contract):
    def move_of(self, record: RunRecord, task: str = "new", token: str = "move") -> Transition:
        transition = attempts.moved(record, task, f"{token}-{record.id}")
        assert transition is not None
        return transition

    def add_limit(self, store: Store, **fields: Any) -> None:
        assert store.put_record(limit_record(Limit(**fields), 1), None)

    def ids_of_tasks(self, store: Store, token: str, *tasks: str, **fields: Any) -> list[str]:
        return [taken.id for taken in self.claim(store, token, tasks=frozenset(tasks), **fields)]

    def test_a_moved_run_is_claimed_by_workers_of_its_new_task_alone(self, store: Store) -> None:
        store.add_runs([run("a", task="old", run_at=store.now()), run("b", task="old", run_at=store.now())])
        first = next(found for found in self.runs(store) if found.id == "a")
        assert store.settle_runs([self.move_of(first)]) == [True]
        assert self.ids_of_tasks(store, "c1", "old") == ["b"]
        (taken,) = self.claim(store, "c2", tasks=frozenset(["new"]), worker="w2")
        assert (taken.id, taken.task, taken.attempt, taken.payload) == ("a", "new", 1, first.payload)
        assert self.ids_of_tasks(store, "c3", "old", "new") == []

    def test_a_moved_run_keeps_all_else(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule(task="old"))
        clock.advance("1m")
        self.fire(store)
        (before,) = self.runs(store)
        move = self.move_of(before)
        assert store.settle_runs([move]) == [True]
        (after,) = self.runs(store)
        assert after == replace(before, task="new", settled=move.token)
        assert [found.id for found in self.runs(store, task="new")] == [before.id]
        assert self.runs(store, task="old") == []
        counted = [(count.task, count.due) for count in store.count_active(clock.now)]
        assert counted == [("new", 1)]

    def test_a_repeated_move_is_accepted_and_moves_once(self, store: Store) -> None:
        store.add_runs([run("a", task="old", run_at=store.now())])
        (found,) = self.runs(store)
        note = Record(kind="audit", key="1", body="moved by ann")
        move = replace(self.move_of(found), records=(note,))
        assert store.settle_runs([move]) == [True]
        assert store.settle_runs([move]) == [True]
        assert store.find_records("audit") == [note]
        assert self.ids_of_tasks(store, "c1", "new") == ["a"]
        assert self.ids_of_tasks(store, "c2", "new", worker="w2") == []

    def test_a_run_that_was_claimed_or_has_ended_is_not_moved(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", task="old", run_at=store.now())])
        (found,) = self.runs(store)
        (held,) = self.claim(store)
        assert store.settle_runs([self.move_of(found)]) == [False]
        assert store.settle_runs([attempts.succeeded(held, None, clock.now, "end")]) == [True]
        assert store.settle_runs([self.move_of(found)]) == [False]
        assert [(each.state, each.task) for each in self.runs(store)] == [("succeeded", "old")]

    def test_a_run_that_waits_for_its_retry_keeps_its_time(self, store: Store, clock: VirtualClock) -> None:
        policy = Execution(retries=3, backoff=60_000)
        store.add_runs([run("a", task="old", run_at=store.now(), execution=policy)])
        (held,) = self.claim(store)
        assert store.settle_runs([attempts.failed(held, "boom", clock.now, "t")]) == [True]
        (waiting,) = self.runs(store)
        assert store.settle_runs([self.move_of(waiting)]) == [True]
        assert self.ids_of_tasks(store, "c2", "new") == []
        clock.advance("2m")
        (again,) = self.claim(store, "c3", tasks=frozenset(["new"]))
        assert (again.attempt, again.failures) == (2, 1)

    def test_a_moved_run_leaves_the_limit_of_its_old_task(self, store: Store) -> None:
        self.add_limit(store, task="old", concurrency=1)
        store.add_runs([run(f"r{at}", task="old", run_at=store.now()) for at in range(4)])
        assert self.ids_of_tasks(store, "c1", "old", "new") == ["r0"]
        waiting = [found for found in self.runs(store) if found.state == "queued"]
        assert {found.cohort for found in waiting} == {"default 4 default old"}
        assert store.settle_runs([self.move_of(found) for found in waiting]) == [True] * 3
        assert {found.cohort for found in self.runs(store, states=("queued",))} == {None}
        assert sorted(self.ids_of_tasks(store, "c2", "new", worker="w2")) == ["r1", "r2", "r3"]

    def test_a_moved_run_counts_for_the_limit_of_its_new_task(self, store: Store) -> None:
        self.add_limit(store, task="new", concurrency=1)
        self.add_limit(store, task="old", concurrency=1)
        store.add_runs([run("held", task="new", run_at=store.now())])
        (held,) = self.claim(store, "c1", tasks=frozenset(["new"]))
        store.add_runs([run(f"r{at}", task="old", run_at=store.now()) for at in range(2)])
        assert self.ids_of_tasks(store, "c2", "old", worker="w2", limit=1) == ["r0"]
        (waiting,) = self.runs(store, states=("queued",))
        assert store.settle_runs([self.move_of(waiting)]) == [True]
        assert self.ids_of_tasks(store, "c3", "new", "old", worker="w3") == []
        assert store.settle_runs([attempts.succeeded(held, None, store.now(), "end")]) == [True]
        assert self.ids_of_tasks(store, "c4", "new", "old", worker="w3") == ["r1"]
        present = store.get_record(LIMIT, OWNER, Limit(task="new", concurrency=1).name)
        assert present is not None

    def test_a_move_and_another_transition_of_one_batch_apply_one_after_the_other(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", task="old", run_at=store.now()), run("b", task="old", run_at=store.now())])
        first, second = sorted(self.runs(store), key=lambda found: found.id)
        cancel = attempts.cancel(second, clock.now, "cancel")
        assert cancel is not None
        assert store.settle_runs([self.move_of(first), self.move_of(second), cancel]) == [True] * 3
        found = {each.id: (each.task, each.state) for each in self.runs(store)}
        assert found == {"a": ("new", "queued"), "b": ("new", "cancelled")}
        assert store.check_indexes(100, mend=False) == []

    def test_runs_that_are_moved_and_claimed_at_once_are_claimed_once(
        self, store: Store, handles: Handles
    ) -> None:
        runs = [run(f"r{at:03}", task="old", run_at=store.now()) for at in range(60)]
        store.add_runs(runs)
        lock, number = threading.Lock(), iter(range(100))
        claimed: list[str] = []

        def work(handle: Store) -> None:
            with lock:
                mine = next(number)
            if mine % 2:
                for found in self.runs(handle, task="old", states=("queued",)):
                    move = self.move_of(found, token=f"move-{mine}")
                    handle.settle_runs([move])
                return
            for turn in range(6):
                task = ("old", "new")[turn % 2]
                taken = self.claim(
                    handle, f"c{mine}-{turn}", worker=f"w{mine}", tasks=frozenset([task]), limit=5
                )
                assert {each.task for each in taken} <= {task}
                with lock:
                    claimed.extend(each.id for each in taken)

        self.in_threads(handles, work, 6)
        claimed += self.ids_of_tasks(store, "last", "old", "new", worker="rest")
        assert sorted(claimed) == [each.id for each in runs]
        assert store.check_indexes(100, mend=False) == []
