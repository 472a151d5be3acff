"""Firing: due ticks become runs, each once."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import CatchUp, Record, ScheduleRecord
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Active, Planned, plan
from evenbeat.stores.base import Fired, PlanFunction, Store, Write
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import BIG, MINUTE, Contract, Handles, schedule


def noted(*records: Record) -> PlanFunction:
    """Return a function that plans as usual, and adds these records to each plan."""
    return lambda *given: plan(*given)._replace(records=records)


class FiringContract(Contract):
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

    def test_fire_returns_the_schedules_as_they_are_stored(self, store: Store, clock: VirtualClock) -> None:
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

    def test_a_now_ahead_of_the_stores_clock_is_not_trusted_beside_a_schedule_that_is_due(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # A check of the first wake-up alone does not protect the second schedule.
        self.add(store, schedule("due", "every 1m"))
        self.add(store, schedule("later", "every 5m"))
        clock.advance("1m")
        fired = store.fire_due(clock.now + 10 * MINUTE, 10, plan)
        assert [planned.schedule.name for planned in fired.planned] == ["due"]
        assert [found.tick for found in self.runs(store)] == [clock.now]

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

    def test_a_fire_adds_its_records_in_the_same_step(self, store: Store, clock: VirtualClock) -> None:
        for name in ("a", "b", "c"):
            self.add(store, schedule(name))
        note = Record(kind="signal", tenant="acme", key="1", body="first", expires=clock.now + 5 * MINUTE)
        clock.advance("1m")
        # Two of the three plans of a batch add the same record. The third cannot be planned, and adds none.
        notes = {"a": (note,), "b": (replace(note, body="second"), replace(note, key="2"))}
        fired = store.fire_due(clock.now, 10, lambda row, *rest: noted(*notes[row.name])(row, *rest))
        assert [planned.records for planned in fired.planned] == [notes["a"], notes["b"]]
        assert fired.quarantined == (("default", "c"),)
        assert store.find_records("signal") == [note, replace(note, key="2")]
        # Nothing is due, so nothing is planned and no record is added.
        assert store.fire_due(clock.now, 10, noted(replace(note, key="3"))).planned == ()
        # A record that exists stays as it is; the others are added.
        clock.advance("1m")
        store.fire_due(clock.now, 10, noted(replace(note, body="later"), replace(note, key="4")))
        assert store.find_records("signal") == [note, *(replace(note, key=key) for key in "24")]

    def test_an_expired_record_counts_as_missing_for_a_fire_by_the_clock_of_the_store(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        note = Record(kind="signal", key="1", body="old", expires=clock.now + 2 * MINUTE)
        assert store.put_record(note)
        clock.advance("2m")
        fresh = replace(note, body="new", expires=clock.now + MINUTE)
        fired = store.fire_due(clock.now - MINUTE, 10, noted(fresh))
        assert len(fired.planned) == 1
        assert store.find_records("signal") == [fresh]

    def test_records_of_a_fire_exist_if_and_only_if_it_was_applied(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        for at in range(20):
            self.add(store, schedule(f"s{at:02}"))
        clock.advance("1m")
        applied: list[Record] = []
        numbers = itertools.count()

        def own(row: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
            note = Record(kind="signal", key=f"{next(numbers):06}", body=row.name)
            return plan(row, now, active)._replace(records=(note,))

        def work(handle: Store) -> None:
            for _ in range(5):
                for planned in handle.fire_due(handle.now(), 7, own).planned:
                    applied.extend(planned.records)

        self.in_threads(handles, work)
        assert store.find_records("signal") == sorted(applied, key=lambda note: note.key)
        assert sorted(note.body for note in applied) == [f"s{at:02}" for at in range(20)]

    def test_two_nodes_that_plan_latest_at_different_moments_fire_once(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # The second node read the row before the first fired it, and plans with a later time.
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
        steps: dict[str, list[Callable[[ScheduleRecord], Planned | None]]] = {
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
        # plan changes the row while the store fires it, as another node would: the fire must not undo it.
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
        assert store.purge(clock.now, 100).deleted >= 1
        # The row is as the first fire left it: the write is accepted as a repetition, which adds nothing.
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

        def fails_on_b(row: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
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
        # Writing it again wakes it up.
        assert self.put(store, asleep, changes.change(asleep, {"trigger": "every 2m"}, clock.now)).accepted
        clock.advance("2m")
        assert "b" in [planned.schedule.name for planned in self.fire(store).planned]

    def test_a_row_that_this_node_can_not_plan_now_is_put_off_and_fires_later(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name in ("a", "b"):
            self.add(store, schedule(name))
        clock.advance("1m")

        def lacks_what_b_takes(row: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
            if row.name == "b":
                return Planned(replace(row, wake_at=now + MINUTE), deferred="too many open files")
            return plan(row, now, active)

        fired = store.fire_due(clock.now, 10, lacks_what_b_takes)
        assert fired.quarantined == ()
        assert [found.schedule for found in self.runs(store)] == ["a"]
        assert store.find_records("quarantine") == []
        clock.advance("1m")
        self.fire(store)
        (late,) = self.runs(store, schedule="b")
        assert (late.tick, late.coalesced) == (clock.now, 1)

    def test_a_row_of_a_newer_format_is_left_alone(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        newer = replace(made, format=made.format + 1, revision=made.revision + 1)
        assert self.put(store, made, Planned(newer)).accepted
        clock.advance("1m")
        assert self.fire(store) == Fired((), None)
        assert self.runs(store) == []
        assert self.get(store) == newer

    @pytest.mark.parametrize(
        ("count", "size", "largest"), [(25, 10, 2_000), (3, 30_000, 200)], ids=["runs", "bytes"]
    )
    def test_a_backlog_fires_in_steps_of_2000_runs_or_4_megabytes(
        self, store: Store, clock: VirtualClock, count: int, size: int, largest: int
    ) -> None:
        payload = f'"{"x" * size}"'
        wishes = [schedule(f"s{at:02}", catch_up=CatchUp("all"), payload=payload) for at in range(count)]
        store.put_schedules([Write(changes.create(wish, store.now()), None) for wish in wishes])
        clock.advance("100m")
        found = []
        while planned := self.fire(store, limit=500).planned:
            found.append(sum(len(entry.runs) for entry in planned))
        assert max(found) <= largest
        assert store.count_runs() == {"queued": sum(found)} == {"queued": 100 * count}

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
