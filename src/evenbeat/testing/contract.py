"""The contract of stores, executable: every store passes it, ours and third parties'.

Subclass it, say how to make the store, and run it with pytest::

    class TestMyStore(StoreContract):
        @contextmanager
        def make(self, clock, tmp_path):
            store = MyStore(tmp_path / "my.db", clock=clock)
            yield lambda: store          # called for each handle that a test wants on the same data
            store.close()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from evenbeat import locks
from evenbeat.errors import InvalidValue
from evenbeat.instants import Instant, write_instant
from evenbeat.model import FORMAT, Execution, LogChunk, Record, Run, Schedule, Skipped, Statistics, Transition
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.stores.base import Claim, Claimed, Fired, Lost, RunQuery, ScheduleQuery, Store, Write, Written
from evenbeat.testing.clock import VirtualClock

Handles = Callable[[], Store]
MINUTE = 60_000
BIG = 10_000


def schedule(name: str = "cleanup", trigger: str = "every 1m", **fields: Any) -> Schedule:
    return Schedule(name=name, trigger=trigger, **{"task": "work", **fields})


def run(run_id: str, **fields: Any) -> Run:
    return Run(id=run_id, **{"task": "work", **fields})


class StoreContract:
    """What every store promises. ``make`` is all that a subclass has to say."""

    __test__: ClassVar[bool] = False  # subclasses are collected, not this

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        cls.__test__ = True

    def make(self, clock: VirtualClock, tmp_path: Path) -> AbstractContextManager[Handles]:
        """A context in which the store exists, giving a function that opens a handle on its data."""
        raise AssertionError(f"{type(self).__name__} does not say how to make its store")

    # Fixtures and the few moves that tests are made of.

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def handles(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Handles]:
        with self.make(clock, tmp_path) as handles:
            yield handles

    @pytest.fixture
    def store(self, handles: Handles) -> Store:
        store = handles()
        store.open()
        return store

    def add(self, store: Store, wanted: Schedule) -> Schedule:
        (written,) = store.put_schedules([Write(changes.create(wanted, store.now()), None)])
        assert written.accepted
        assert written.current is not None
        return written.current

    def put(self, store: Store, before: Schedule, planned: Planned | None) -> Written:
        assert planned is not None
        (written,) = store.put_schedules([Write(planned, before.version)])
        return written

    def get(self, store: Store, name: str = "cleanup", tenant: str = "default") -> Schedule | None:
        page = store.find_schedules(
            ScheduleQuery(tenant=tenant, name=name, states=("active", "paused", "finished", "deleted"))
        )
        return page.items[0] if page.items else None

    def fire(self, store: Store, limit: int = 100) -> Fired:
        return store.fire_due(store.now(), limit, plan)

    def claim(self, store: Store, token: str = "claim-1", **fields: Any) -> list[Run]:
        return list(self.claimed(store, token, **fields).runs)

    def claimed(self, store: Store, token: str = "claim-1", **fields: Any) -> Claimed:
        wanted = {"worker": "w1", "limit": 100, "lease": 30_000, "now": store.now(), **fields}
        return store.claim_runs(Claim(token=token, **wanted))

    def runs(self, store: Store, **query: Any) -> list[Run]:
        found: list[Run] = []
        cursor = None
        while True:
            page = store.find_runs(RunQuery(cursor=cursor, **query))
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    # Schedules: written by compare-and-set.

    def test_opening_and_closing_may_be_repeated(self, handles: Handles) -> None:
        store = handles()
        store.open()
        store.open()
        store.close()
        store.close()

    def test_a_schedule_comes_back_as_it_was_written(self, store: Store) -> None:
        made = self.add(
            store,
            schedule(
                payload='{"text":"\\u0000 \U0001f600 \\u202e","big":9007199254740993}',
                description="naïve ∑ \n tab\t",
                priority=8,
                queue="reports",
                kind="flow",
                overlap="queue",
                max_concurrent=3,
                spread=30_000,
                managed_by="code",
                execution=Execution(retries=3, timeout=5000, on_crash="fail"),
            ),
        )
        assert self.get(store) == made

    def test_a_name_that_is_taken_is_not_written_again(self, store: Store) -> None:
        made = self.add(store, schedule())
        other = changes.create(schedule(payload='"other"'), store.now())
        assert store.put_schedules([Write(other, None)]) == [Written(False, made)]
        assert self.get(store) == made

    def test_of_two_changes_made_from_the_same_row_one_is_refused(self, store: Store) -> None:
        made = self.add(store, schedule())
        first = changes.change(made, {"payload": "1"}, store.now())
        second = changes.change(made, {"payload": "2"}, store.now())
        assert self.put(store, made, first).accepted
        refused = self.put(store, made, second)
        assert not refused.accepted
        assert refused.current is not None
        assert refused.current.payload == "1"
        assert self.get(store) == refused.current

    def test_a_write_repeated_after_its_reply_was_lost_is_accepted_and_adds_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        created = changes.create(schedule(), store.now())
        for _ in range(2):
            assert store.put_schedules([Write(created, None)]) == [Written(True, created.schedule)]
        triggered = changes.trigger_now(created.schedule, "manual-1", store.now())
        assert triggered is not None
        for _ in range(2):
            assert self.put(store, created.schedule, triggered).accepted
        assert [found.id for found in self.runs(store)] == ["manual-1"]

    def test_each_write_of_a_batch_stands_for_itself(self, store: Store) -> None:
        taken = self.add(store, schedule("taken"))
        answers = store.put_schedules(
            [
                Write(changes.create(schedule("a"), store.now()), None),
                Write(changes.create(schedule("taken", payload="1"), store.now()), None),
                Write(changes.create(schedule("b"), store.now()), None),
            ]
        )
        assert [answer.accepted for answer in answers] == [True, False, True]
        names = [found.name for found in store.find_schedules(ScheduleQuery()).items]
        assert names == ["a", "b", "taken"]
        assert self.get(store, "taken") == taken

    def test_schedules_are_found_by_tenant_state_task_and_change(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for tenant, name in (("acme", "x"), ("acme", "y"), ("zeta", "x")):
            self.add(store, schedule(name, tenant=tenant, task=f"task-{name}"))
        clock.advance("1m")
        row = self.get(store, "y", "acme")
        assert row is not None
        assert self.put(store, row, changes.pause(row, store.now())).accepted

        def keys(**query: Any) -> list[tuple[str, str]]:
            return [found.key for found in store.find_schedules(ScheduleQuery(**query)).items]

        assert keys() == [("acme", "x"), ("acme", "y"), ("zeta", "x")]
        assert keys(tenant="acme") == [("acme", "x"), ("acme", "y")]
        assert keys(name="x") == [("acme", "x"), ("zeta", "x")]
        assert keys(states=("paused",)) == [("acme", "y")]
        assert keys(task="task-x", tenant="zeta") == [("zeta", "x")]
        assert keys(changed_since=store.now()) == [("acme", "y")]
        assert keys(tenant="nobody") == []

    def test_a_cursor_walks_through_all_schedules_once(self, store: Store) -> None:
        names = [f"s{at:03}" for at in range(25)]
        store.put_schedules([Write(changes.create(schedule(name), store.now()), None) for name in names])
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            page = store.find_schedules(ScheduleQuery(limit=10, cursor=cursor))
            found += [item.name for item in page.items]
            cursor, pages = page.cursor, pages + 1
        assert found == names
        assert pages == 3
        with pytest.raises(InvalidValue, match="cursor"):
            store.find_schedules(ScheduleQuery(cursor="!nonsense"))

    def test_a_deleted_schedule_is_found_only_when_asked_for(self, store: Store) -> None:
        made = self.add(store, schedule())
        assert self.put(store, made, changes.delete(made, store.now())).accepted
        assert store.find_schedules(ScheduleQuery()).items == ()
        tombstone = self.get(store)
        assert tombstone is not None
        assert tombstone.state == "deleted"

    # Firing.

    def test_nothing_fires_before_it_is_due(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        assert made.wake_at is not None
        assert self.fire(store) == Fired((), made.wake_at)
        clock.now = made.wake_at - 1
        assert self.fire(store).planned == ()
        clock.now = made.wake_at
        assert len(self.fire(store).planned) == 1

    def test_a_due_tick_becomes_one_run_and_the_schedule_moves_on(
        self, store: Store, clock: VirtualClock
    ) -> None:
        made = self.add(store, schedule(payload="[1]", priority=8, queue="default"))
        clock.advance("1m")
        fired = self.fire(store)
        assert fired.next_wake == clock.now + MINUTE
        (found,) = self.runs(store)
        assert fired.planned[0].runs == (found,)
        assert (found.tick, found.schedule, found.payload, found.priority) == (clock.now, "cleanup", "[1]", 8)
        row = self.get(store)
        assert row is not None
        assert (row.next_tick, row.fire_seq, row.revision) == (
            clock.now + MINUTE,
            made.fire_seq + 1,
            made.revision,
        )
        assert self.fire(store) == Fired((), clock.now + MINUTE)

    def test_what_fire_answers_is_what_is_stored(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule(overlap="skip", spread=0, description="kept"))
        clock.advance("1m")
        (planned,) = self.fire(store).planned
        assert self.get(store) == planned.schedule

    def test_the_earliest_fire_first_and_the_limit_holds(self, store: Store, clock: VirtualClock) -> None:
        for name, period in (("slow", "3m"), ("fast", "1m"), ("middle", "2m")):
            self.add(store, schedule(name, f"every {period}"))
        clock.advance("10m")
        fired = self.fire(store, limit=2)
        assert [planned.schedule.name for planned in fired.planned] == ["fast", "middle"]
        assert fired.next_wake is not None
        assert fired.next_wake <= clock.now
        assert [planned.schedule.name for planned in self.fire(store, limit=2).planned] == ["slow"]

    def test_a_now_ahead_of_the_stores_clock_is_not_trusted(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule())
        assert store.fire_due(clock.now + 10 * MINUTE, 10, plan).planned == ()
        assert self.runs(store) == []

    def test_missed_ticks_are_coalesced_and_recorded(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        clock.advance("10m")
        self.fire(store)
        (found,) = self.runs(store)
        assert (found.tick, found.coalesced) == (clock.now, 9)
        (row,) = store.find_skipped("default", "cleanup")
        assert (row.first, row.last, row.count) == (made.next_tick, clock.now - MINUTE, 9)
        assert (row.reason, row.run, row.recorded_at) == ("coalesced", found.id, clock.now)

    def test_ten_claimers_and_one_winner(self, handles: Handles, store: Store, clock: VirtualClock) -> None:
        for at in range(20):
            self.add(store, schedule(f"s{at:02}"))
        clock.advance("1m")
        fired: list[str] = []

        def work(handle: Store) -> None:
            for _ in range(5):
                fired.extend(made.id for p in self.fire(handle, limit=7).planned for made in p.runs)

        self.in_threads(handles, work)
        assert len(fired) == 20
        assert sorted(fired) == sorted(found.id for found in self.runs(store))

    def test_two_nodes_that_plan_latest_at_different_moments_fire_once(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # The second node looked at the row before the first fired it, and plans with a later time.
        made = self.add(store, schedule())
        clock.advance("1m")
        self.fire(store)
        clock.advance("1m")
        late = plan(made, clock.now)
        assert not self.put(store, made, late).accepted
        assert len(self.runs(store)) == 1

    @pytest.mark.parametrize("what", ["pause", "edit", "delete", "re-create", "reschedule back"])
    def test_a_stale_plan_never_fires(self, store: Store, clock: VirtualClock, what: str) -> None:
        made = self.add(store, schedule())
        clock.advance("1m")
        stale = plan(made, clock.now)
        before = made
        steps: dict[str, list[Callable[[Schedule], Planned | None]]] = {
            "pause": [lambda row: changes.pause(row, clock.now)],
            "edit": [lambda row: changes.change(row, {"payload": "7"}, clock.now)],
            "delete": [lambda row: changes.delete(row, clock.now)],
            "re-create": [
                lambda row: changes.delete(row, clock.now),
                lambda row: changes.create(schedule(), clock.now, row),
            ],
            "reschedule back": [lambda row: changes.reschedule(row, clock.now, clock.now)],
        }
        for step in steps[what]:
            written = self.put(store, before, step(before))
            assert written.accepted
            assert written.current is not None
            before = written.current
        known = self.runs(store)
        assert not self.put(store, made, stale).accepted
        assert self.runs(store) == known
        assert self.get(store) == before

    def test_firing_does_not_overwrite_a_change_that_came_between(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # plan changes the row behind the store's back, as another node would: the fire must not undo it.
        made = self.add(store, schedule())
        clock.advance("1m")
        self.fire(store)
        row = self.get(store)
        assert row is not None
        edited = changes.change(row, {"description": "mine"}, clock.now)
        assert self.put(store, row, edited).accepted
        clock.advance("1m")
        self.fire(store)
        now_row = self.get(store)
        assert now_row is not None
        assert (now_row.description, now_row.revision) == ("mine", made.revision + 1)

    def test_a_change_while_a_tick_is_due_fires_it_by_the_old_rules(
        self, store: Store, clock: VirtualClock
    ) -> None:
        made = self.add(store, schedule(payload='"old"'))
        clock.advance("1m")
        written = self.put(
            store, made, changes.change(made, {"trigger": "every 1h", "payload": '"new"'}, clock.now)
        )
        assert written.accepted
        (found,) = self.runs(store)
        assert (found.payload, found.tick) == ('"old"', clock.now)
        assert self.fire(store).planned == ()

    def test_a_late_insert_after_a_purge_adds_nothing(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        clock.advance("1m")
        late = plan(made, clock.now)
        self.fire(store)
        (claimed,) = self.claim(store)
        assert store.settle_runs([attempts.succeeded(claimed, None, clock.now, "done")]) == [True]
        clock.advance("1h")
        assert store.purge(clock.now, 100) >= 1
        # Its row is as the first fire left it: accepted as a repetition, which adds nothing.
        self.put(store, made, late)
        assert self.runs(store) == []

    def test_a_schedule_made_again_has_ticks_of_its_own(self, store: Store, clock: VirtualClock) -> None:
        first = self.add(store, schedule(trigger=f"at {write_instant(clock.now + MINUTE)}"))
        clock.advance("1m")
        self.fire(store)
        fired = self.get(store)
        assert fired is not None
        assert fired.state == "finished"
        gone = self.put(store, fired, changes.delete(fired, clock.now)).current
        assert gone is not None
        again = changes.create(schedule(trigger=f"at {write_instant(clock.now)}"), clock.now, gone)
        assert self.put(store, gone, again).accepted
        self.fire(store)
        assert [found.generation for found in self.runs(store)] in ([1, 2], [2, 1])
        assert first.generation == 1

    def test_a_row_that_can_not_be_planned_is_quarantined_and_its_neighbours_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name in ("a", "b", "c"):
            self.add(store, schedule(name))
        clock.advance("1m")

        def fails_on_b(row: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned:
            if row.name == "b":
                raise ValueError("this row makes no sense")
            return plan(row, now, active)

        fired = store.fire_due(clock.now, 10, fails_on_b)
        assert sorted(planned.schedule.name for planned in fired.planned) == ["a", "c"]
        assert fired.quarantined == (("default", "b"),)
        (note,) = store.find_records("quarantine")
        assert note.key == "b"
        assert "makes no sense" in note.body
        asleep = self.get(store, "b")
        assert asleep is not None
        assert asleep.wake_at is None
        assert self.fire(store).planned == ()
        # Writing it anew wakes it up.
        assert self.put(store, asleep, changes.change(asleep, {"trigger": "every 2m"}, clock.now)).accepted
        clock.advance("2m")
        assert "b" in [planned.schedule.name for planned in self.fire(store).planned]

    def test_a_row_of_a_newer_format_is_left_alone(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        newer = replace(made, format=made.format + 1, revision=made.revision + 1)
        assert self.put(store, made, Planned(newer)).accepted
        clock.advance("1m")
        assert self.fire(store) == Fired((), None)
        assert self.runs(store) == []
        assert self.get(store) == newer

    def test_plan_is_told_of_active_runs_where_the_policy_asks(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule("free"))
        self.add(store, schedule("single", overlap="skip"))
        seen: dict[str, tuple[Active, ...]] = {}

        def watching(row: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned:
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

    def test_ten_thousand_schedules_fire_in_batches(self, store: Store, clock: VirtualClock) -> None:
        now = store.now()
        writes = [Write(changes.create(schedule(f"s{at:05}"), now), None) for at in range(BIG)]
        assert all(written.accepted for written in store.put_schedules(writes))
        clock.advance("1m")
        fired = 0
        while planned := self.fire(store, limit=4000).planned:
            fired += sum(len(entry.runs) for entry in planned)
        assert fired == BIG
        assert store.count_runs() == {"queued": BIG}

    def test_of_two_that_add_a_run_to_the_same_row_one_is_refused(self, store: Store) -> None:
        row = self.add(store, schedule("cleanup"))
        first, second = (changes.trigger_now(row, name, store.now()) for name in ("first", "second"))
        assert first is not None
        assert second is not None
        assert first.schedule == second.schedule  # the rows can't tell whose write it was
        assert self.put(store, row, first).accepted
        assert not self.put(store, row, second).accepted
        assert self.put(store, row, first).accepted  # repeated after a lost reply
        assert [run.id for run in self.runs(store)] == ["first"]

    # Runs: added, claimed, settled.

    def test_a_run_comes_back_as_it_was_added(self, store: Store) -> None:
        added = run(
            "enqueued-1", payload='"\\u0000"', priority=9, scheduled_at=store.now() - 1,
            run_at=store.now(), created_at=store.now(),
            execution=Execution(retries=2, backoff=5), error="é\n", result='{"a":1}', tenant="acme",
        )  # fmt: skip
        assert store.add_runs([added]) == [True]
        assert self.runs(store) == [added]

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

    def test_a_claim_says_when_the_next_run_may_be_taken(self, store: Store, clock: VirtualClock) -> None:
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

    def test_a_claim_that_leaves_due_runs_behind_says_so(self, store: Store, clock: VirtualClock) -> None:
        due = [run(f"r{at}", run_at=clock.now - 5 + at) for at in range(3)]
        store.add_runs([*due, run("future", run_at=clock.now + MINUTE, priority=9)])
        assert self.claimed(store, limit=1).next_due == clock.now - 4
        assert self.claimed(store, "claim-2", limit=1).next_due == clock.now - 3
        assert self.claimed(store, "claim-3", limit=1).next_due == clock.now + MINUTE
        assert self.claimed(store, "claim-4", limit=0).next_due == clock.now + MINUTE

    def test_what_a_claim_can_not_take_does_not_wake_it(self, store: Store, clock: VirtualClock) -> None:
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

    def test_a_claim_is_told_of_runs_that_come_back(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now, execution=Execution(retries=1, backoff=10_000))])
        (held,), next_due = self.claimed(store)
        assert next_due is None  # what is running is no affair of others, until its lease ends
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
        # Also when nothing is left that it could take besides.
        rest = self.claimed(store, "rest")
        assert (len(rest.runs), rest.next_due) == (3, clock.now + MINUTE)
        assert self.claimed(store, "rest") == rest
        assert self.claimed(store, "token", limit=2).runs == first.runs
        assert (
            store.settle_runs([attempts.released(held, f"t-{held.id}") for held in rest.runs]) == [True] * 3
        )
        assert {held.attempt for held in self.runs(store, states=("running",))} == {1}
        assert len(self.runs(store, states=("queued",))) == 4

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

    def test_a_finished_run_keeps_its_result(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now())])
        (held,) = self.claim(store)
        clock.advance("1s")
        assert store.settle_runs([attempts.succeeded(held, '{"n":1}', clock.now, "t")]) == [True]
        (done,) = self.runs(store)
        assert (done.state, done.result, done.finished_at, done.lease_until) == (
            "succeeded",
            '{"n":1}',
            clock.now,
            None,
        )

    def test_a_transition_repeated_after_its_reply_was_lost_is_accepted_and_counts_once(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        clock.advance("1m")
        self.fire(store)
        (held,) = self.claim(store)
        following = run("next-step", run_at=clock.now)
        done = attempts.succeeded(held, None, clock.now, "t", adds=(following,))
        assert store.settle_runs([done]) == [True]
        assert store.settle_runs([done]) == [True]
        assert store.statistics([("default", "cleanup")])[0].run_count == 1
        assert len(self.runs(store)) == 2

    def test_a_retry_is_accepted_again_also_when_the_run_was_claimed_since(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=store.now(), execution=Execution(retries=1, backoff=0))])
        (held,) = self.claim(store)
        again = attempts.failed(held, "boom", clock.now, "t")
        assert store.settle_runs([again]) == [True]
        (second,) = self.claim(store, "claim-2")
        assert store.settle_runs([again]) == [True]
        assert self.runs(store) == [second]
        assert (second.attempt, second.failures) == (2, 1)

    def test_a_worker_that_lost_its_lease_is_refused(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now())])
        (stale,) = self.claim(store)
        clock.advance("31s")
        (expired,) = store.lost_runs(clock.now, 10).runs
        assert store.settle_runs([attempts.crashed(expired, clock.now, "reaper")]) == [True]
        (fresh,) = self.claim(store, "claim-2", now=clock.now)
        assert (fresh.attempt, fresh.crashes) == (2, 1)
        refused = [
            attempts.succeeded(stale, "1", clock.now, "late-1"),
            attempts.failed(stale, "late", clock.now, "late-2"),
            attempts.heartbeat(stale, 1000, "late-3"),
            attempts.released(stale, "late-4"),
        ]
        assert store.settle_runs(refused) == [False] * 4
        assert self.runs(store) == [fresh]

    def test_a_heartbeat_moves_the_lease_and_nothing_else(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now())])
        (held,) = self.claim(store)
        assert store.settle_runs([attempts.heartbeat(held, 99_000, "beat")]) == [True]
        (alive,) = self.runs(store)
        assert alive == replace(held, lease_until=clock.now + 99_000, settled="beat")

    @pytest.mark.parametrize("end", ["finish", "cancel"])
    def test_a_heartbeat_after_the_end_is_refused(self, store: Store, clock: VirtualClock, end: str) -> None:
        store.add_runs([run("a", run_at=store.now())])
        (held,) = self.claim(store)
        ends = {
            "finish": attempts.succeeded(held, None, clock.now, "end"),
            "cancel": attempts.cancelled(held, clock.now, "end"),
        }
        assert store.settle_runs([ends[end]]) == [True]
        (over,) = self.runs(store)
        assert store.settle_runs([attempts.heartbeat(held, 1000, "beat")]) == [False]
        assert self.runs(store) == [over]

    def test_a_released_run_is_taken_by_the_next_worker(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now())])
        (held,) = self.claim(store)
        assert store.settle_runs([attempts.released(held, "t")]) == [True]
        (again,) = self.claim(store, "claim-2", worker="w2")
        assert (again.attempt, again.failures, again.crashes, again.worker) == (2, 0, 0, "w2")

    def test_a_run_that_kills_its_workers_ends_as_failed(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now(), execution=Execution(crashes=2))])
        for attempt in range(1, 4):
            (held,) = self.claim(store, f"claim-{attempt}", now=clock.now)
            assert held.attempt == attempt
            clock.advance("31s")
            (expired,) = store.lost_runs(clock.now, 10).runs
            assert store.settle_runs([attempts.crashed(expired, clock.now, f"reap-{attempt}")]) == [True]
        (dead,) = self.runs(store)
        assert (dead.state, dead.crashes) == ("failed", 3)
        assert dead.error is not None
        assert "lost" in dead.error

    def test_a_queued_run_is_cancelled_at_once_and_a_running_one_is_told(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("waiting", run_at=clock.now + MINUTE), run("busy", run_at=clock.now)])
        (busy,) = self.claim(store)
        (waiting,) = self.runs(store, ids=("waiting",))
        wishes = [attempts.cancel(waiting, clock.now, "c1"), attempts.cancel(busy, clock.now, "c2")]
        assert store.settle_runs([wish for wish in wishes if wish is not None]) == [True, True]
        states = {found.id: (found.state, found.cancel_requested) for found in self.runs(store)}
        assert states == {"waiting": ("cancelled", False), "busy": ("running", True)}
        clock.advance("1h")
        assert self.claim(store, "claim-2", now=clock.now) == []

    def test_a_late_repetition_of_a_retry_does_not_undo_a_cancel(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now, state="cancelled")])

        def ask(what: Callable[[Run], Transition | None]) -> Transition:
            (found,) = self.runs(store)
            wish = what(found)
            assert wish is not None
            assert store.settle_runs([wish]) == [True]
            return wish

        retry = ask(lambda found: attempts.retried(found, "retry"))
        ask(lambda found: attempts.cancel(found, clock.now, "cancel"))
        assert store.settle_runs([retry]) == [False]
        assert [found.state for found in self.runs(store)] == ["cancelled"]

    def test_a_reaper_whose_clock_is_ahead_takes_no_live_lease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        self.claim(store)
        assert store.lost_runs(clock.now + 10 * MINUTE, 10) == Lost((), clock.now + 30_000)

    def test_lost_runs_come_in_the_order_of_their_leases_and_say_when_the_next_one_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert store.lost_runs(clock.now, 10) == Lost((), None)
        store.add_runs([run(f"r{at}", run_at=clock.now) for at in range(4)])
        for at, lease in enumerate((30_000, 10_000, 20_000)):
            self.claim(store, f"claim-{at}", limit=1, lease=lease)
        start = clock.now
        assert store.lost_runs(clock.now, 10) == Lost((), start + 10_000)
        clock.advance("20s")

        def look(limit: int) -> tuple[list[str], Instant | None]:
            found = store.lost_runs(clock.now, limit)
            return [entry.id for entry in found.runs], found.next_end

        assert look(10) == (["r1", "r2"], start + 30_000)
        assert look(1) == (["r1"], start + 20_000)
        assert look(0) == ([], start + 10_000)
        clock.advance("10s")
        assert look(10) == (["r1", "r2", "r0"], None)

    def test_a_heartbeat_saves_a_run_from_a_reaper_that_looked_before(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store)
        clock.advance("30s")
        (seen,) = store.lost_runs(clock.now, 10).runs
        assert store.settle_runs([attempts.heartbeat(held, 30_000, "beat")]) == [True]
        assert store.settle_runs([attempts.crashed(seen, clock.now, "reaper")]) == [False]

    def test_the_clock_of_a_slow_worker_does_not_shorten_its_lease(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=0)])
        (held,) = self.claim(store, now=clock.now - 10 * MINUTE)
        assert held.lease_until == clock.now + 30_000

    def test_the_clock_of_a_fast_reaper_does_not_delay_a_run(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        self.claim(store)
        clock.advance("30s")
        (seen,) = store.lost_runs(clock.now, 10).runs
        assert store.settle_runs([attempts.crashed(seen, clock.now + 60 * MINUTE, "reaper")]) == [True]
        assert len(self.claim(store, "claim-2")) == 1

    def test_who_held_a_lock_before_can_not_take_it_from_who_holds_it_now(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert locks.acquire(store, "migrate", "30s", "first")
        stale = store.get_record("lock", "default", "migrate")
        assert stale is not None
        clock.advance("30s")
        assert locks.acquire(store, "migrate", "30s", "second")
        # What extend and release of a holder that was frozen after its look would send now.
        assert not store.put_record(replace(stale, version=stale.version + 1), expect=stale.version)
        assert not store.delete_record("lock", "default", "migrate", stale.version)
        assert locks.extend(store, "migrate", "30s", "second")

    def test_a_purge_by_a_fast_clock_leaves_what_has_not_expired(
        self, store: Store, clock: VirtualClock
    ) -> None:
        assert locks.acquire(store, "migrate", "30s", "mine")
        assert store.purge(clock.now + 60 * MINUTE, 100) == 0
        assert locks.extend(store, "migrate", "30s", "mine")

    def test_a_write_is_recognised_again_when_only_its_wake_up_has_moved(
        self, store: Store, clock: VirtualClock
    ) -> None:
        write = Write(changes.create(schedule(spread=50_000), store.now()), None)
        assert store.put_schedules([write])[0].accepted
        clock.advance("1m")
        self.fire(store)
        assert store.put_schedules([write])[0].accepted

    def test_a_run_that_many_add_at_once_is_added_once(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run(f"r{at}", run_at=clock.now) for at in range(20)])
        following = run("next", run_at=clock.now + MINUTE)
        ends = [
            attempts.succeeded(held, None, clock.now, f"t-{held.id}", adds=(following,))
            for held in self.claim(store)
        ]
        assert store.settle_runs(ends) == [True] * 20
        assert self.runs(store, states=("queued",)) == [following]
        other = run("other")
        assert store.add_runs([other] * 20) == [True] + [False] * 19
        assert len(self.runs(store, states=("queued",))) == 2

    def test_runs_come_back_as_they_were_added_also_in_large_batches(
        self, store: Store, clock: VirtualClock
    ) -> None:
        wanted = [
            run(
                f"r{at:02}", payload='"\\u0000"' if at % 7 == 0 else f'{{"n":{at}}}', gated=at % 2 == 0,
                error=None if at % 3 else "line\n\ttab \x1f \"quoted\" \\ ü 😀" + "\0" * (at % 5 == 4),
                tick=None if at % 4 else 1 << 52, created_at=clock.now, schedule="s" if at % 4 == 0 else None,
                execution=Execution(retries=at % 2),
            )
            for at in range(40)
        ]  # fmt: skip
        for batch in (wanted[:10], wanted[10:20:3], wanted[20:21], wanted):
            store.add_runs(batch)
        assert self.runs(store) == wanted

    def test_runs_that_end_alike_and_runs_that_do_not_keep_their_own_tokens(
        self, store: Store, clock: VirtualClock
    ) -> None:
        odd = ['quote"d', "back\\slash", "naïve-😀", "{}", "[1]", "null", "7", "c", "d", "e"]
        store.add_runs([run(name, run_at=clock.now) for name in odd])
        held = {entry.id: entry for entry in self.claim(store)}
        assert sorted(held) == sorted(odd)
        results = ['"other"', "[]", None, *["null"] * 7]
        tokens = [f"{name}-\0-token" if name in "cd" else f'"{name}\\' for name in odd]
        ends = [
            attempts.succeeded(held[name], result, clock.now, token)
            for name, result, token in zip(odd, results, tokens, strict=True)
        ]
        for _ in range(2):
            assert store.settle_runs(ends) == [True] * len(odd)
        found = {entry.id: entry for entry in self.runs(store)}
        assert [(found[name].result, found[name].settled) for name in odd] == list(
            zip(results, tokens, strict=True)
        )

    def test_a_transition_of_an_unknown_run_is_refused(self, store: Store) -> None:
        ghost = run("ghost", attempt=1)
        assert store.settle_runs([attempts.succeeded(ghost, None, store.now(), "t")]) == [False]

    def test_ten_thousand_runs_go_through_in_one_batch(self, store: Store, clock: VirtualClock) -> None:
        wanted = [run(f"r{at:05}", run_at=clock.now, created_at=clock.now) for at in range(BIG)]
        assert store.add_runs(wanted) == [True] * BIG
        held = self.claim(store, limit=BIG)
        assert len(held) == BIG
        ends = [attempts.succeeded(entry, None, clock.now, f"t{at}") for at, entry in enumerate(held)]
        assert store.settle_runs(ends) == [True] * BIG
        assert store.count_runs() == {"succeeded": BIG}

    def test_runs_are_found_by_every_filter_the_newest_first(self, store: Store, clock: VirtualClock) -> None:
        for at in range(25):
            store.add_runs(
                [
                    run(
                        f"r{at:02}", created_at=clock.now + at // 2, run_at=clock.now, tenant=f"t{at % 2}",
                        task=f"task{at % 3}", queue=f"q{at % 5}", schedule="s" if at % 2 else None,
                    )
                ]
            )  # fmt: skip
        everything = self.runs(store, limit=10)
        assert [found.id for found in everything] == [
            found.id for found in sorted(everything, key=lambda found: (-found.created_at, found.id))
        ]
        assert len(everything) == 25
        assert {found.id for found in self.runs(store, tenant="t1", task="task0")} == {
            "r03",
            "r09",
            "r15",
            "r21",
        }
        assert len(self.runs(store, queue="q4")) == 5
        active = self.runs(store, tenant="t1", schedule="s", states=("running", "queued"), limit=5)
        assert active == [found for found in everything if found.tenant == "t1"]
        assert self.runs(store, tenant="t1", schedule="s", states=("running",)) == []
        assert self.runs(store, tenant="t1", schedule="s", states=()) == []
        assert self.runs(store, tenant="t0", schedule="s", states=("queued",)) == []
        assert len(self.runs(store, schedule="s", limit=3)) == 12
        assert self.runs(store, states=("running",)) == []
        assert {found.id for found in self.runs(store, ids=("r01", "r02", "nope"))} == {"r01", "r02"}
        with pytest.raises(InvalidValue, match="cursor"):
            store.find_runs(RunQuery(cursor="?"))

    def test_runs_are_found_by_who_holds_them_and_by_a_wish_to_cancel(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run(f"r{at}", run_at=clock.now) for at in range(6)])
        mine = self.claim(store, "claim-1", worker="w1", limit=3)
        self.claim(store, "claim-2", worker="w2", limit=2)
        wishes = [attempts.cancel(found, clock.now, f"c-{found.id}") for found in self.runs(store)]
        asked = [wish for wish in wishes if wish is not None and wish.run in ("r0", "r2", "r3")]
        assert store.settle_runs(asked) == [True] * 3

        def ids(**query: Any) -> list[str]:
            return [found.id for found in self.runs(store, **query)]

        assert ids(worker="w1", states=("running",)) == ["r0", "r1", "r2"]
        assert ids(worker="w2") == ["r3", "r4"]
        assert ids(worker="w3") == []
        assert ids(worker="w1", states=("running",), cancel_requested=True) == ["r0", "r2"]
        assert ids(worker="w1", states=("running",), cancel_requested=False) == ["r1"]
        assert ids(cancel_requested=True) == ["r0", "r2", "r3"]
        assert ids(ids=("r0", "r1", "r3"), worker="w1", cancel_requested=True) == ["r0"]
        assert store.settle_runs(
            [attempts.succeeded(mine[0], None, clock.now, "t0"), attempts.released(mine[1], "t1")]
        ) == [True, True]
        assert ids(worker="w1") == ["r0", "r2"]
        assert ids(worker="w1", states=("running",)) == ["r2"]

    def test_tenants_do_not_see_each_other(self, store: Store, clock: VirtualClock) -> None:
        for tenant in ("acme", "zeta"):
            self.add(store, schedule(tenant=tenant))
        clock.advance("1m")
        self.fire(store)
        assert len(self.runs(store)) == 2
        assert [found.tenant for found in self.runs(store, tenant="acme")] == ["acme"]
        assert store.count_runs("acme") == {"queued": 1}
        (acme,) = [held for held in self.claim(store) if held.tenant == "acme"]
        store.settle_runs([attempts.failed(acme, "boom", clock.now, "t")])
        figures = store.statistics([("acme", "cleanup"), ("zeta", "cleanup")])
        assert figures[0].failure_count == 1
        assert figures[1] == Statistics(tenant="zeta", schedule="cleanup")
        assert store.statistics([]) == []

    def test_statistics_outlive_the_history(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule())
        for outcome in ("ok", "boom", "ok"):
            clock.advance("1m")
            self.fire(store)
            (held,) = self.claim(store, f"claim-{clock.now}", now=clock.now)
            end = attempts.succeeded(held, None, clock.now, "t") if outcome == "ok" else None
            store.settle_runs([end or attempts.failed(held, outcome, clock.now, "t")])
        clock.advance("1h")
        while store.purge(clock.now, 1):
            pass
        assert self.runs(store) == []
        (figures,) = store.statistics([("default", "cleanup")])
        assert (figures.run_count, figures.success_count, figures.failure_count) == (3, 2, 1)
        assert (figures.last_error, figures.last_run) == ("boom", clock.now - 60 * MINUTE)
        assert figures.last_success == figures.last_run
        assert figures.last_failure == clock.now - 61 * MINUTE

    def test_a_purge_takes_what_is_over_and_old_in_small_batches(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule(trigger="every 10s"))
        clock.advance("1m")
        self.fire(store)  # one run, five coalesced ticks: one ledger row
        (old,) = self.claim(store)
        store.settle_runs([attempts.succeeded(old, None, clock.now, "t")])
        store.append_log([LogChunk(run=old.id, attempt=1, seq=0, text="hello", at=clock.now)])
        assert store.put_record(Record(kind="node", key="n1", body="{}", expires=clock.now + 500))
        edge = clock.advance("1s")
        store.add_runs([run("active", run_at=0, created_at=0)])
        assert store.purge(edge - 1001, 100) == 0
        assert store.purge(edge, 1) == 1
        assert store.purge(edge, 1) == 1
        assert store.purge(edge, 100) == 1
        assert store.purge(edge, 100) == 0
        assert [found.id for found in self.runs(store)] == ["active"]
        assert store.find_skipped("default", "cleanup") == []
        assert store.read_log(old.id) == []

    def test_the_ledger_gives_the_newest_ticks_first(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        rows = tuple(
            Skipped(
                tenant="default", schedule="cleanup", generation=1, first=at, last=at, count=1, reason="late",
                recorded_at=clock.now,
            )
            for at in (1, 3, 2)
        )  # fmt: skip
        assert self.put(store, made, Planned(replace(made, fire_seq=made.fire_seq + 1), (), rows)).accepted
        assert [row.first for row in store.find_skipped("default", "cleanup")] == [3, 2, 1]
        assert [row.first for row in store.find_skipped("default", "cleanup", limit=1)] == [3]
        assert store.find_skipped("default", "other") == []

    # Records, logs, waiting.

    def test_records_change_by_compare_and_set(self, store: Store) -> None:
        first = Record(kind="calendar", key="holidays", body="[]")
        assert store.get_record("calendar", "default", "holidays") is None
        assert store.put_record(first)
        assert store.put_record(first)  # its reply was lost
        assert not store.put_record(replace(first, body="other"))
        second = replace(first, body='["x"]', version=2)
        assert not store.put_record(second, expect=7)
        assert store.put_record(second, expect=1)
        assert store.put_record(second, expect=1)  # its reply was lost
        assert store.get_record("calendar", "default", "holidays") == second
        assert store.find_records("calendar") == [second]
        assert not store.delete_record("calendar", "default", "holidays", 1)
        assert store.delete_record("calendar", "default", "holidays", 2)
        assert not store.delete_record("calendar", "default", "holidays", 2)
        assert store.find_records("calendar") == []

    def test_an_expired_record_counts_as_none(self, store: Store, clock: VirtualClock) -> None:
        assert store.put_record(Record(kind="node", key="n1", body="{}", expires=clock.now + 1000, version=1))
        clock.advance("999ms")
        assert store.get_record("node", "default", "n1") is not None
        clock.advance("1ms")
        assert store.get_record("node", "default", "n1") is None
        assert store.find_records("node") == []
        assert store.put_record(Record(kind="node", key="n1", body="{}", version=1))

    def test_records_are_kept_apart_by_kind_and_tenant(self, store: Store) -> None:
        for kind, tenant in (("a", "x"), ("a", "y"), ("b", "x")):
            assert store.put_record(Record(kind=kind, tenant=tenant, key="k", body=f"{kind}{tenant}"))
        assert [record.body for record in store.find_records("a")] == ["ax", "ay"]
        assert [record.body for record in store.find_records("a", "y")] == ["ay"]

    def test_a_lock_is_held_by_one_token_until_it_is_released(self, store: Store) -> None:
        assert locks.acquire(store, "migrate", "30s", "mine")
        assert locks.acquire(store, "migrate", "30s", "mine")  # its reply was lost
        assert not locks.acquire(store, "migrate", "30s", "theirs")
        assert locks.acquire(store, "migrate", "30s", "theirs", tenant="acme")
        assert not locks.release(store, "migrate", "theirs")
        assert not locks.extend(store, "migrate", "30s", "theirs")
        assert locks.release(store, "migrate", "mine")
        assert not locks.release(store, "migrate", "mine")
        assert locks.acquire(store, "migrate", "30s", "theirs")

    def test_a_lock_ends_by_itself_unless_it_is_extended(self, store: Store, clock: VirtualClock) -> None:
        assert locks.acquire(store, "migrate", "30s", "mine")
        clock.advance("29s")
        assert locks.extend(store, "migrate", "30s", "mine")
        clock.advance("29s")
        assert not locks.acquire(store, "migrate", "30s", "theirs")
        clock.advance("1s")
        assert locks.acquire(store, "migrate", "30s", "theirs")
        assert not locks.extend(store, "migrate", "30s", "mine")
        assert not locks.release(store, "migrate", "mine")

    def test_of_ten_that_want_a_lock_one_gets_it(self, handles: Handles, store: Store) -> None:
        winners: list[str] = []

        def work(handle: Store) -> None:
            token = locks.new_token()
            if locks.acquire(handle, "migrate", "30s", token):
                winners.append(token)

        self.in_threads(handles, work)
        assert len(winners) == 1

    def test_a_log_is_read_in_order_and_kept_once(self, store: Store, clock: VirtualClock) -> None:
        chunks = [
            LogChunk(run="a", attempt=attempt, seq=seq, text=f"{attempt}.{seq}\n\0é", at=clock.now)
            for attempt, seq in ((2, 0), (1, 1), (1, 0))
        ]
        store.append_log(chunks)
        store.append_log(chunks[:1])
        assert [(chunk.attempt, chunk.seq) for chunk in store.read_log("a")] == [(1, 0), (1, 1), (2, 0)]
        assert store.read_log("a")[0] == chunks[2]
        assert store.read_log("b") == []

    def test_a_hint_wakes_who_waits(self, handles: Handles, store: Store) -> None:
        # Real time, because waiting is the subject: the timeout is only reached when the test fails.
        ready, woken = threading.Event(), []

        def wait() -> None:
            handle = handles()
            handle.open()
            ready.set()
            woken.append(handle.wait(20))

        waiter = threading.Thread(target=wait)
        waiter.start()
        ready.wait(20)
        while waiter.is_alive():
            store.hint()  # the waiter may not be asleep yet: a lost hint is allowed
            waiter.join(0.01)
        assert woken == [True]

    def test_a_wait_ends_without_a_hint(self, store: Store) -> None:
        assert store.wait(0.001) is False

    def in_threads(self, handles: Handles, work: Callable[[Store], None], count: int = 10) -> None:
        """``work`` in ten threads at once, each with a handle of its own."""
        start = threading.Barrier(count)
        errors: list[BaseException] = []

        def guarded() -> None:
            try:
                handle = handles()
                handle.open()
                start.wait(20)
                work(handle)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
