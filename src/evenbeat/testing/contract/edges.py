"""Edge cases: one millisecond before and after, one row too many, and rows that changed meanwhile."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, Record, ScheduleRecord, Skipped, Statistics
from evenbeat.errors import InvalidValue
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.stores.base import EndedRuns, Fired, RunQuery, ScheduleQuery, Store, Write
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, run, schedule


class EdgeContract(Contract):
    def test_a_store_that_is_closed_gets_ready_to_join_a_transaction(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.close()
        store.open_to_join()
        assert store.now() == clock.now
        # A value that is not a connection is refused, and so is any connection if the store cannot join.
        with pytest.raises(InvalidValue) as caught:
            store.add_runs_within(object(), [run("one")])
        assert caught.value.field == "within"
        store.open()
        assert self.runs(store) == []

    def test_a_schedule_fires_at_its_millisecond_and_not_before(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        clock.now += MINUTE - 1
        early = self.fire(store)
        assert (early.planned, early.next_wake) == ((), clock.now + 1)
        clock.now += 1
        fired = self.fire(store)
        assert [planned.schedule.next_tick for planned in fired.planned] == [clock.now + MINUTE]
        assert fired.next_wake == clock.now + MINUTE

    def test_the_next_wake_up_is_that_of_the_rows_as_they_are(
        self, store: Store, clock: VirtualClock
    ) -> None:
        start = clock.now
        first = self.add(store, schedule("a"))
        second = self.add(store, schedule("b", "every 2m"))
        assert self.fire(store).next_wake == start + MINUTE
        paused = self.put(store, first, changes.pause(first, clock.now)).current
        assert self.fire(store).next_wake == start + 2 * MINUTE
        assert paused is not None
        self.put(store, second, changes.delete(second, clock.now))
        assert self.fire(store).next_wake is None
        self.put(store, paused, changes.resume(paused, clock.now))
        assert self.fire(store).next_wake == start + MINUTE
        # Written again with the same wake-up: it fires once, and so do the others.
        row = self.get(store, "a")
        assert row is not None
        assert self.put(store, row, changes.change(row, {"priority": 9}, clock.now)).accepted
        self.add(store, schedule("c"))
        clock.advance("3m")
        assert sorted(planned.schedule.name for planned in self.fire(store).planned) == ["a", "c"]
        assert len(self.runs(store)) == 2

    def test_a_pause_that_ends_by_itself_is_over_in_the_row(self, store: Store, clock: VirtualClock) -> None:
        row = self.add(store, schedule())
        self.put(store, row, changes.pause(row, clock.now, "moving", clock.now + 90_000, "ann"))
        clock.advance("90s")
        (planned,) = self.fire(store).planned
        awake = self.get(store)
        assert awake == planned.schedule
        assert awake is not None
        assert (awake.state, awake.pause_note, awake.paused_until) == ("active", "", None)
        assert (awake.paused_by, awake.paused_at) == ("", None)
        moved = changes.reschedule(awake, clock.now + 1_000, clock.now)
        assert self.put(store, awake, moved).accepted
        clock.now += 1_000
        (planned,) = self.fire(store).planned
        assert self.get(store) == planned.schedule
        assert planned.schedule.moved is None

    def test_a_fire_writes_each_field_that_is_its_own(self, store: Store, clock: VirtualClock) -> None:
        before = self.add(store, schedule())
        clock.advance("1m")
        fields: dict[str, Any] = {
            "next_tick": clock.now + 1,
            "moved": clock.now + 2,
            "wake_at": clock.now + 3,
            "state": "paused",
            "pause_note": "moving",
            "paused_until": clock.now + 3,
            "paused_by": "ann@db1",
            "paused_at": clock.now + 4,
            "last_fire": clock.now + 5,
            "fire_seq": before.fire_seq + 1,
        }
        assert (
            len(store.fire_due(clock.now, 10, lambda row, *_: Planned(replace(row, **fields))).planned) == 1
        )
        assert self.get(store) == replace(before, **fields)

    def test_a_note_of_quarantine_is_of_its_schedule_and_counts_up(
        self, store: Store, clock: VirtualClock
    ) -> None:
        def broken(*_: object) -> Planned:
            raise ValueError("no sense")

        row = self.add(store, schedule("s", tenant="acme"))
        for version in (1, 2):
            clock.advance("1m")
            assert store.fire_due(clock.now, 10, broken).quarantined == (("acme", "s"),)
            (note,) = store.find_records("quarantine")
            assert (note.kind, note.tenant, note.key) == ("quarantine", "acme", "s")
            assert note.version == version
            assert "no sense" in note.body
            assert store.get_record("quarantine", "acme", "s") == note
            asleep = self.get(store, "s", "acme")
            assert asleep is not None
            assert (asleep.wake_at, asleep.next_tick) == (None, row.next_tick)
            self.put(store, asleep, Planned(replace(asleep, wake_at=clock.now, revision=version + 1)))

    def test_a_wish_to_cancel_reaches_active_runs_alone(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule())
        store.add_runs([run("over", run_at=clock.now), run("held", run_at=clock.now), run("waits")])
        held = {one.id: one for one in self.claim(store)}
        store.settle_runs(
            [
                attempts.succeeded(held["over"], None, clock.now, "t1"),
                attempts.released(held["waits"], clock.now, "t2"),
            ]
        )
        clock.advance("1m")

        def asking(row: ScheduleRecord, now: Instant, active: tuple[Active, ...] = ()) -> Planned:
            return plan(row, now, active)._replace(cancels=("over", "gone", "held", "waits"))

        assert len(store.fire_due(clock.now, 10, asking).planned) == 1
        asked = {one.id: one.cancel_requested for one in self.runs(store, ids=("over", "held", "waits"))}
        assert asked == {"over": False, "held": True, "waits": True}

    def test_plan_is_given_the_cancel_requests_of_active_runs(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule(overlap="cancel_running"))
        self.add(store, schedule("other", overlap="cancel_running"))
        mine = {"schedule": "cleanup", "run_at": clock.now}
        store.add_runs([run("a", **mine), run("b", **mine), run("c", **mine), run("d", run_at=clock.now)])
        held = {one.id: one for one in self.claim(store)}
        wish = attempts.cancel(held["a"], clock.now, "t1")
        assert wish is not None
        store.settle_runs([wish, attempts.released(held["b"], clock.now, "t2")])
        store.settle_runs([attempts.succeeded(held["c"], None, clock.now, "t3")])
        clock.advance("1m")
        given: dict[str, set[Active]] = {}

        def asking(row: ScheduleRecord, now: Instant, active: tuple[Active, ...] = ()) -> Planned:
            given[row.name] = set(active)
            return plan(row, now, active)

        store.fire_due(clock.now, 10, asking)
        assert given == {
            "cleanup": {Active("a", "running", True), Active("b", "queued", False)},
            "other": set(),
        }

    def test_a_run_is_claimed_at_its_millisecond_and_not_before(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now + 5)])
        clock.now += 4
        early = self.claimed(store, "t1")
        assert (early.runs, early.next_due) == ((), clock.now + 1)
        clock.now += 1
        late = self.claimed(store, "t2")
        assert ([one.id for one in late.runs], late.next_due) == (["a"], None)
        assert (late.runs[0].started_at, late.runs[0].lease_until) == (clock.now, clock.now + 30_000)

    def test_a_claim_takes_as_many_as_its_limit_of_all_its_queues(
        self, store: Store, clock: VirtualClock
    ) -> None:
        names = [
            ("a", "default", 5),
            ("b", "slow", 5),
            ("c", "default", 9),
            ("d", "other", 9),
            ("e", "slow", 0),
        ]
        store.add_runs(
            [run(name, queue=queue, priority=priority, run_at=clock.now) for name, queue, priority in names]
        )
        queues = ("default", "slow")
        assert [one.id for one in self.claim(store, "t1", limit=2, queues=queues)] == ["c", "a"]
        rest = self.claimed(store, "t2", limit=1, queues=queues)
        assert ([one.id for one in rest.runs], rest.next_due) == (["b"], clock.now)
        assert [one.id for one in self.claim(store, "t3", limit=9, queues=queues)] == ["e"]
        assert self.claimed(store, "t4", limit=9, queues=queues).next_due is None

    def test_a_run_that_a_claim_skips_is_there_for_the_next_claim(
        self, store: Store, clock: VirtualClock
    ) -> None:
        tasks = ["other", "work", "other", "work"]
        store.add_runs([run(f"r{at}", task=task, run_at=clock.now) for at, task in enumerate(tasks)])
        mine = self.claimed(store, "t1", limit=1, tasks=frozenset({"work"}))
        assert ([one.id for one in mine.runs], mine.next_due) == (["r1"], clock.now)
        assert [one.id for one in self.claim(store, "t2", tasks=frozenset({"other"}))] == ["r0", "r2"]
        assert [one.id for one in self.claim(store, "t3", tasks=frozenset({"work"}))] == ["r3"]

    def test_rows_of_a_newer_format_wake_no_node(self, store: Store, clock: VirtualClock) -> None:
        made = changes.create(schedule(), clock.now)
        newer = made._replace(schedule=replace(made.schedule, format=FORMAT + 1))
        assert store.put_schedules([Write(newer, None)])[0].accepted
        store.add_runs([run("a", run_at=clock.now + 50, format=FORMAT + 1)])
        assert self.fire(store).next_wake is None
        assert self.claimed(store, "t1").next_due is None
        clock.advance("1m")
        assert self.fire(store) == Fired((), None)
        assert self.claimed(store, "t2") == ((), None)

    def test_a_run_is_claimed_by_the_time_that_it_has_now(self, store: Store, clock: VirtualClock) -> None:
        # A run of another task is before it in its queue.
        store.add_runs([run("b", task="other", run_at=clock.now + 50)])
        store.add_runs([run("a", run_at=clock.now + 100, created_at=clock.now)])
        mine = frozenset({"work"})
        (row,) = self.runs(store, task="work")
        wish = attempts.cancel(row, clock.now, "t1")
        assert wish is not None
        assert store.settle_runs([wish]) == [True]
        (row,) = self.runs(store, task="work")
        again = attempts.retried(row, "t2")
        assert again is not None
        assert store.settle_runs([again]) == [True]
        (held,) = self.claim(store, "c1", tasks=mine)
        assert store.settle_runs([replace(attempts.released(held, clock.now, "t3"), delay=60_000)]) == [True]
        clock.now += 100
        early = self.claimed(store, "c2", tasks=mine)
        assert (early.runs, early.next_due) == ((), clock.now + 59_900)

    def test_every_priority_is_claimed_the_highest_first(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run(f"p{priority}", priority=priority, run_at=clock.now) for priority in range(10)])
        assert [one.priority for one in self.claim(store)] == list(range(9, -1, -1))

    def test_queues_of_one_claim_take_turns_by_time(self, store: Store, clock: VirtualClock) -> None:
        start = clock.now
        clock.now += 10
        queues = ["a", "b", "b", "a", "b"]
        store.add_runs([run(f"r{at}", queue=queue, run_at=start + at) for at, queue in enumerate(queues)])
        claimed = self.claim(store, queues=("b", "a"))
        assert [one.id for one in claimed] == ["r0", "r1", "r2", "r3", "r4"]

    def test_a_claim_whose_now_is_ahead_takes_nothing_early(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now + 1_000)])
        ahead = self.claimed(store, "t1", now=clock.now + 60_000)
        assert (ahead.runs, ahead.next_due) == ((), clock.now + 1_000)
        # Not even together with one that is due.
        store.add_runs([run("b", run_at=clock.now)])
        beside = self.claimed(store, "t2", now=clock.now + 60_000)
        assert ([one.id for one in beside.runs], beside.next_due) == (["b"], clock.now + 1_000)

    def test_the_next_due_run_is_the_earliest_of_the_tasks_of_a_claim(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name, task, delay in (("a", "work", 300), ("b", "other", 100), ("c", "work", 200)):
            store.add_runs([run(name, task=task, run_at=clock.now + delay)])
        assert self.claimed(store, "t1", tasks=frozenset({"work"})).next_due == clock.now + 200
        assert self.claimed(store, "t2", tasks=frozenset({"work", "other"})).next_due == clock.now + 100
        assert self.claimed(store, "t3").next_due == clock.now + 100
        assert self.claimed(store, "t4", tasks=frozenset({"nobody's"})).next_due is None

    def test_cancelled_and_purged_runs_of_a_queue_are_skipped(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run(name, run_at=clock.now, created_at=clock.now) for name in "abc"])
        for name in "ab":
            (found,) = self.runs(store, ids=(name,))
            wish = attempts.cancel(found, clock.now, f"t{name}")
            assert wish is not None
            assert store.settle_runs([wish]) == [True]
        clock.now += 1
        assert store.purge(clock.now, 1).deleted == 1
        assert [one.id for one in self.claim(store, "t1", limit=1)] == ["c"]
        assert self.claimed(store, "t2").next_due is None

    def test_a_repeated_claim_returns_the_runs_that_it_still_holds(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run(name, run_at=clock.now) for name in "abc"])
        held = self.claim(store, "mine", limit=3)
        store.settle_runs(
            [attempts.succeeded(held[0], None, clock.now, "t1"), attempts.released(held[1], clock.now, "t2")]
        )
        assert [one.id for one in self.claim(store, "theirs", worker="w2")] == ["b"]
        assert [one.id for one in self.claim(store, "mine", limit=3)] == ["c"]

    def test_a_lease_is_over_at_its_millisecond(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a"), run("b")])
        for name, lease in (("a", 10), ("b", 20)):
            self.claim(store, name, limit=1, lease=lease)
        start = clock.now
        clock.now = start + 9
        assert store.lost_runs(clock.now, 10) == ((), start + 10)
        clock.now = start + 10
        assert [one.id for one in store.lost_runs(clock.now, 10).runs] == ["a"]
        assert store.lost_runs(clock.now, 10).next_end == start + 20
        clock.now = start + 30
        some = store.lost_runs(clock.now, 1)
        assert ([one.id for one in some.runs], some.next_end) == (["a"], start + 20)
        every = store.lost_runs(clock.now, 2)
        assert ([one.id for one in every.runs], every.next_end) == (["a", "b"], None)
        assert [one.id for one in store.lost_runs(start + 19, 10).runs] == ["a"]

    def test_statistics_of_one_that_never_ran_are_empty(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", schedule="s", tenant="acme", run_at=clock.now)])
        (held,) = self.claim(store)
        store.settle_runs([attempts.succeeded(held, None, clock.now, "t")])
        found = store.statistics([("acme", "other"), ("acme", "s"), ("default", "s")])
        assert [(one.tenant, one.schedule, one.run_count) for one in found] == [
            ("acme", "other", 0),
            ("acme", "s", 1),
            ("default", "s", 0),
        ]
        assert found[0] == Statistics(tenant="acme", schedule="other")

    def test_history_is_purged_to_the_millisecond(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now), run("queued", run_at=clock.now + 9)])
        (held,) = self.claim(store)
        store.settle_runs([attempts.succeeded(held, None, clock.now, "t")])
        finished = clock.now
        clock.advance("1h")
        assert store.purge(finished, 10).deleted == 0
        assert store.purge(finished + 1, 10).deleted == 1
        assert [one.id for one in self.runs(store)] == ["queued"]
        assert store.purge(clock.now, 10).deleted == 0

    def test_the_ledger_is_purged_to_the_millisecond(self, store: Store, clock: VirtualClock) -> None:
        row = self.add(store, schedule())
        clock.advance("5m")
        self.put(store, row, changes.delete(row, clock.now))
        recorded = clock.now
        clock.advance("1h")
        assert store.purge(recorded, 10).deleted == 0
        assert len(store.find_skipped("default", "cleanup")) == 1
        assert store.purge(recorded + 1, 10).deleted == 1
        assert store.find_skipped("default", "cleanup") == []

    def test_a_purge_takes_no_more_than_its_limit_of_all_kinds(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = self.add(store, schedule())
        store.add_runs([run(name, run_at=clock.now) for name in "abc"])
        held = self.claim(store)
        store.settle_runs([attempts.succeeded(one, None, clock.now, f"t{one.id}") for one in held])
        clock.advance("5m")
        self.put(store, row, changes.delete(row, clock.now))
        store.put_record(
            Record(kind="k", tenant="default", key="x", body="1", version=1, expires=clock.now + 1)
        )
        clock.advance("1h")
        gone = [store.purge(clock.now, 2).deleted for _ in range(5)]
        assert sum(gone) == 5
        assert max(gone) == 2
        assert gone[-1] == 0

    def test_a_record_expires_at_its_millisecond(self, store: Store, clock: VirtualClock) -> None:
        record = Record(kind="k", tenant="default", key="x", body="1", version=1, expires=clock.now + 10)
        assert store.put_record(record)
        clock.now += 9
        assert store.get_record("k", "default", "x") == record
        assert store.find_records("k") == [record]
        assert not store.put_record(replace(record, body="2", version=2))
        clock.now += 1
        assert store.get_record("k", "default", "x") is None
        assert store.find_records("k") == []
        assert store.put_record(replace(record, body="2", version=2, expires=None))
        assert not store.delete_record("k", "default", "x", 1)
        assert store.delete_record("k", "default", "x", 2)
        assert not store.delete_record("k", "default", "x", 2)

    def test_records_are_purged_to_the_millisecond_and_some_never(
        self, store: Store, clock: VirtualClock
    ) -> None:
        long_ago = clock.now - 60 * MINUTE
        for key, end in (("x", clock.now + 10), ("y", None)):
            store.put_record(Record(kind="k", tenant="default", key=key, body="1", version=1, expires=end))
        clock.now += 9
        assert store.purge(long_ago, 10).deleted == 0
        clock.now += 1
        assert store.purge(long_ago, 10, EndedRuns()).deleted == 0
        assert store.purge(long_ago, 10).deleted == 1
        clock.advance("1h")
        assert store.purge(clock.now, 10).deleted == 0
        assert [record.key for record in store.find_records("k")] == ["y"]

    def test_a_ledger_is_cut_at_its_limit_and_kept_apart(self, store: Store, clock: VirtualClock) -> None:
        for name, tenant in (("s", "default"), ("s", "acme"), ("other", "default")):
            row = self.add(store, schedule(name, tenant=tenant))
            ledger = tuple(
                Skipped(
                    tenant=tenant,
                    schedule=name,
                    generation=1,
                    first=at,
                    last=at + 5,
                    count=2,
                    reason="late",
                    recorded_at=clock.now,
                )
                for at in (10, 30, 20)
            )
            self.put(store, row, changes.pause(row, clock.now)._replace(skipped=ledger))
        found = store.find_skipped("default", "s", 2)
        assert [(one.first, one.tenant, one.schedule) for one in found] == [
            (30, "default", "s"),
            (20, "default", "s"),
        ]
        assert len(store.find_skipped("acme", "s")) == 3
        assert store.find_skipped("acme", "other") == []

    def test_pages_end_where_there_is_no_more(self, store: Store, clock: VirtualClock) -> None:
        for name in "abc":
            self.add(store, schedule(name))
        store.add_runs([run(name, created_at=clock.now) for name in "abc"])
        for limit, cursor in ((2, True), (3, False), (4, False)):
            schedules = store.find_schedules(ScheduleQuery(limit=limit))
            assert (len(schedules.items), schedules.cursor is not None) == (min(limit, 3), cursor)
            runs = store.find_runs(RunQuery(limit=limit))
            assert (len(runs.items), runs.cursor is not None) == (min(limit, 3), cursor)

    def test_filters_of_runs_hold_together(self, store: Store, clock: VirtualClock) -> None:
        made = [
            run(
                f"{tenant}-{name}-{task}-{queue}-{at}",
                tenant=tenant,
                schedule=name or None,
                task=task,
                queue=queue,
            )
            for tenant in ("default", "acme")
            for name in ("", "s", "t")
            for task in ("work", "other")
            for queue in ("default", "slow")
            for at in range(2)
        ]
        store.add_runs([replace(one, created_at=clock.now + at) for at, one in enumerate(made)])
        held = self.claim(store, limit=12, queues=("default", "slow"))
        ends = [attempts.succeeded(one, None, clock.now, f"t{one.id}") for one in held[:6]]
        assert all(store.settle_runs(ends))
        rows = self.runs(store)
        assert len(rows) == 48
        choices: list[tuple[str, tuple[Any, ...]]] = [
            ("tenant", (None, "acme")),
            ("schedule", (None, "s", "nobody's")),
            ("task", (None, "work")),
            ("queue", (None, "slow")),
            ("states", (None, ("queued", "running"), ("succeeded",), ("queued", "succeeded"), ("failed",))),
        ]
        for values in product(*(options for _, options in choices)):
            filters = {
                name: value for (name, _), value in zip(choices, values, strict=True) if value is not None
            }
            query = RunQuery(**filters, limit=5)
            expected = [one for one in rows if query.matches(one)]
            page = store.find_runs(query)
            assert [one.id for one in page.items] == [one.id for one in expected[:5]], filters
            assert (page.cursor is not None) == (len(expected) > 5), filters
            if page.cursor is not None:
                rest = self.runs(store, **filters, limit=5)
                assert [one.id for one in rest] == [one.id for one in expected], filters

    def test_changed_since_includes_the_millisecond(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule("a"))
        clock.now += 10
        self.add(store, schedule("b"))

        def changed(since: Instant) -> list[str]:
            return [row.name for row in store.find_schedules(ScheduleQuery(changed_since=since)).items]

        assert changed(clock.now) == ["b"]
        assert changed(clock.now - 10) == ["a", "b"]
        assert changed(clock.now - 9) == ["b"]
        assert changed(clock.now + 1) == []

    def test_a_retry_waits_for_its_delay_to_the_millisecond(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store)
        back: Any = replace(attempts.released(held, clock.now, "t"), delay=50)
        assert store.settle_runs([back]) == [True]
        clock.now += 49
        early = self.claimed(store, "t2")
        assert (early.runs, early.next_due) == ((), clock.now + 1)
        clock.now += 1
        assert [one.id for one in self.claim(store, "t3")] == ["a"]
