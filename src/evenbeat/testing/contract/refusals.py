"""Rows that the database refuses: each is set aside alone, and all others continue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar, Literal, TypeAlias, TypeVar, get_args

import pytest
from msgspec.structs import replace

from evenbeat.core.records import CatchUp, Record, RunRecord, ScheduleRecord, Transition
from evenbeat.errors import RowRefused
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.rules.refusals import LONGEST_WAIT, is_refusal
from evenbeat.stores.base import EVERYTHING, Fired, Store, Write, Written
from evenbeat.stores.refusals import in_parts
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, run, schedule

Table: TypeAlias = Literal["runs", "schedules"]
On: TypeAlias = Literal["add", "change", "delete"]
Refusal: TypeAlias = Literal["add", "settle", "claim", "purge", "schedule"]
"""What a database may refuse: to add, to settle, to claim or to delete a run, or to change a schedule."""

Test = TypeVar("Test", bound=Callable[..., None])


def of_refusal(what: Refusal) -> Callable[[Test], Test]:
    """Mark a test of the contract that needs a database which can refuse this: see ``refusals``."""

    def mark(test: Test) -> Test:
        test.__dict__["refusal"] = what
        return test

    return mark


class RefusalContract(Contract):
    refusals: ClassVar[frozenset[Refusal]] = frozenset(get_args(Refusal))
    """What the database can refuse. A collection hook may leave out the tests of other refusals."""

    def refusing(self, store: Store, table: Table, on: On, **fields: str) -> AbstractContextManager[None]:
        """Make the database refuse to add, change or delete the rows that have these values, until the block
        ends: by a trigger, a validator, or what else it has. Skip the test if it has nothing."""
        pytest.skip("this contract does not say how to make the database refuse a row")

    def fire_all(self, store: Store, limit: int = 100) -> list[Planned]:
        """Fire until nothing is due, as a ticker does."""
        done: list[Planned] = []
        for _ in range(1_000):
            fired = self.fire(store, limit)
            done += fired.planned
            if fired.next_wake is None or fired.next_wake > store.now():
                return done
        raise AssertionError("something stays due")

    def row(self, store: Store, name: str) -> ScheduleRecord:
        found = self.get(store, name)
        assert found is not None
        return found

    def ticks(self, store: Store, name: str) -> list[int]:
        return sorted(found.tick or 0 for found in self.runs(store, schedule=name))

    @of_refusal("add")
    def test_a_schedule_whose_run_is_refused_waits_alone_and_the_others_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name in ("a", "b", "c"):
            self.add(store, schedule(name))
        before = self.row(store, "b")
        with self.refusing(store, "runs", "add", schedule="b"):
            clock.advance("1m")
            done = self.fire_all(store)
            assert self.ticks(store, "a") == self.ticks(store, "c") == [clock.now]
            assert self.ticks(store, "b") == []
            (refused,) = [planned for planned in done if planned.deferred]
            assert refused.schedule.key == ("default", "b")
            assert is_refusal(refused.deferred)
            after = self.row(store, "b")
            assert after == refused.schedule
            # Nothing but the wake-up has changed: the tick is still due.
            assert after.wake_at == clock.now + 1_000
            assert (after.next_tick, after.version) == (before.next_tick, before.version)
            assert self.fire(store) == Fired((), after.wake_at)

    @of_refusal("add")
    def test_a_refused_schedule_is_tried_again_less_and_less_often_whichever_node_does_it(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        made = self.add(store, schedule("b", "every 1h"))
        self.add(store, schedule("a", "every 1h"))
        clock.advance("1h")
        due, tries = clock.now, []
        with self.refusing(store, "runs", "add", schedule="b"):
            for _ in range(10):
                node = handles()
                node.open()
                self.fire_all(node)
                tries.append(clock.now - due)
                clock.now = self.row(store, "b").wake_at or 0
            assert tries == [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 124_000, 184_000]
        self.fire_all(store)
        # When the cause has ended, the tick fires, once.
        assert self.ticks(store, "b") == [made.next_tick]
        assert self.row(store, "b").next_tick == due + 60 * MINUTE
        assert self.fire_all(store) == []
        assert self.ticks(store, "a") == [due]

    @of_refusal("add")
    @pytest.mark.parametrize("kind", ["latest", "all", "skip"])
    def test_missed_ticks_of_a_refused_schedule_follow_its_catch_up_rule(
        self, store: Store, clock: VirtualClock, kind: Literal["latest", "all", "skip"]
    ) -> None:
        self.add(store, schedule("b", catch_up=CatchUp(kind, grace=MINUTE)))
        self.add(store, schedule("a"))
        first = clock.now + MINUTE
        with self.refusing(store, "runs", "add", schedule="b"):
            for _ in range(4):
                clock.advance("1m")
                self.fire_all(store)
        clock.advance("1m")
        self.fire_all(store)
        every = [first + at * MINUTE for at in range(5)]
        expected = {"latest": every[-1:], "all": every, "skip": every[-2:]}
        assert self.ticks(store, "b") == expected[kind]
        skipped = {"latest": [("coalesced", 4)], "all": [], "skip": [("late", 3)]}
        assert [(row.reason, row.count) for row in store.find_skipped("default", "b")] == skipped[kind]
        clock.advance("1m")
        self.fire_all(store)
        assert self.ticks(store, "b") == [*expected[kind], clock.now]
        assert self.ticks(store, "a") == [*every, clock.now]

    @of_refusal("add")
    @pytest.mark.parametrize("bad", [{0}, {59}, {7, 8, 31}, set(range(0, 60, 2)), set(range(60))])
    def test_any_number_of_refused_schedules_leaves_the_others_on_time(
        self, store: Store, clock: VirtualClock, bad: set[int]
    ) -> None:
        names = [f"s{at:02}" for at in range(60)]
        now = store.now()
        wishes = [schedule(name, tenant="acme" if at in bad else "default") for at, name in enumerate(names)]
        store.put_schedules([Write(changes.create(wish, now), None) for wish in wishes])
        with self.refusing(store, "runs", "add", tenant="acme"):
            for _ in range(3):
                clock.advance("1m")
                self.fire_all(store, limit=50)
                on_time = {found.schedule for found in self.runs(store) if found.tick == clock.now}
                assert on_time == {name for at, name in enumerate(names) if at not in bad}
        clock.advance("2m")
        self.fire_all(store, limit=50)
        assert all(len(self.ticks(store, names[at])) == 1 for at in bad)

    @of_refusal("schedule")
    def test_a_schedule_whose_own_row_is_refused_is_left_out_and_the_others_fire(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name in ("a", "b", "c"):
            self.add(store, schedule(name))
        with self.refusing(store, "schedules", "change", name="b"):
            for _ in range(3):
                clock.advance("1m")
                done = self.fire_all(store)
                assert [found.tick for found in self.runs(store, schedule="a")][:1] == [clock.now]
                assert [found.tick for found in self.runs(store, schedule="c")][:1] == [clock.now]
                (refused,) = [planned for planned in done if planned.deferred]
                assert (refused.schedule.name, is_refusal(refused.deferred)) == ("b", True)
                # A node that has nothing else to do sleeps.
                found = self.fire(store)
                assert found.planned == ()
                assert found.next_wake is not None
                assert found.next_wake > clock.now
            assert self.ticks(store, "b") == []
        clock.now += LONGEST_WAIT
        self.fire_all(store)
        assert self.ticks(store, "b") == [clock.now]

    @of_refusal("schedule")
    def test_a_node_that_starts_anew_leaves_a_refused_row_out_as_well(
        self, handles: Handles, store: Store, clock: VirtualClock
    ) -> None:
        for name in ("a", "b"):
            self.add(store, schedule(name))
        with self.refusing(store, "schedules", "change", name="b"):
            for _ in range(3):
                clock.advance("1m")
                node = handles()
                node.open()
                self.fire_all(node)
        assert len(self.ticks(store, "a")) == 3

    @of_refusal("add")
    def test_runs_that_are_refused_do_not_keep_others_from_being_added(self, store: Store) -> None:
        runs = [run(f"r{at}", created_at=store.now()) for at in range(9)]
        refused: list[str] = []

        def refuse(one: RunRecord, error: Exception) -> bool:
            assert isinstance(error, RowRefused)
            assert error.reason
            refused.append(one.id)
            return False

        with self.refusing(store, "runs", "add", id="r5"):
            # One call takes effect as a whole, or not at all.
            with pytest.raises(RowRefused):
                store.add_runs(runs)
            assert store.count_runs() == {}
            answers = [answer for part in in_parts(store.add_runs, runs, refuse) for answer in part]
            assert (refused, answers.index(False), sum(answers)) == (["r5"], 5, 8)
        assert sorted(found.id for found in self.runs(store)) == [f"r{at}" for at in range(9) if at != 5]
        assert store.add_runs(runs) == [at == 5 for at in range(9)]

    @of_refusal("settle")
    def test_a_run_whose_end_is_refused_does_not_keep_others_from_ending(self, store: Store) -> None:
        store.add_runs([run(f"r{at}", schedule="s", created_at=store.now()) for at in range(9)])
        held = {one.id: one for one in self.claim(store)}
        ends = [attempts.succeeded(held[name], None, store.now(), f"end-{name}") for name in sorted(held)]

        def refuse(end: Transition, error: Exception) -> bool:
            assert isinstance(error, RowRefused)
            assert end.run == "r5"
            return False

        with self.refusing(store, "runs", "change", id="r5"):
            # A store may also answer that it did not accept the end.
            answers = [answer for part in in_parts(store.settle_runs, ends, refuse) for answer in part]
            assert (answers.index(False), sum(answers)) == (5, 8)
            assert store.count_runs() == {"running": 1, "succeeded": 8}
        # Each end counts once, however often its batch was tried.
        assert store.settle_runs(ends) == [True] * 9
        (figures,) = store.statistics([("default", "s")])
        assert figures.success_count == 9

    @of_refusal("schedule")
    def test_schedules_that_are_refused_do_not_keep_others_from_being_written(self, store: Store) -> None:
        rows = [self.add(store, schedule(f"s{at}")) for at in range(9)]
        writes = []
        for row in rows:
            planned = changes.change(row, {"payload": "7"}, store.now())
            assert planned is not None
            writes.append(Write(planned, row.version))
        with self.refusing(store, "schedules", "change", name="s5"):
            parts = in_parts(store.put_schedules, writes, lambda *_: Written(False, None))
            answers = [answer.accepted for part in parts for answer in part]
        assert (answers.index(False), sum(answers)) == (5, 8)
        assert [self.row(store, row.name).payload for row in rows] == ["7"] * 5 + ["null"] + ["7"] * 3

    def claimed_ids(self, store: Store, limit: int = 4) -> list[str]:
        """Claim as a worker does, until nothing is due."""
        found: list[str] = []
        for at in range(1_000):
            runs, next_due = self.claimed(store, f"claim-{store.now()}-{at}-{limit}", limit=limit)
            found += [one.id for one in runs]
            if not runs and (next_due is None or next_due > store.now()):
                return found
        raise AssertionError("something stays due")

    @of_refusal("claim")
    @pytest.mark.parametrize("limits", [(), ("task",), ("tenant",)], ids=["free", "limited", "by tenant"])
    @pytest.mark.parametrize("bad", [{0}, {5}, {0, 1, 2, 8}, set(range(9))])
    def test_a_run_that_can_not_be_started_does_not_keep_others_from_starting(
        self, store: Store, clock: VirtualClock, bad: set[int], limits: tuple[str, ...]
    ) -> None:
        if limits:
            limit = Limit(task="work", concurrency=100)
            if limits == ("tenant",):
                limit = Limit(tenant="default", concurrency=100)
            assert store.put_record(limit_record(limit, 1))
        queued = [
            run(f"r{at}", created_at=at, run_at=at, fired_by="bad" if at in bad else "good")
            for at in range(9)
        ]
        store.add_runs(queued)
        good = [f"r{at}" for at in range(9) if at not in bad]
        with self.refusing(store, "runs", "change", fired_by="bad"):
            assert sorted(self.claimed_ids(store)) == good
            # Runs that come later start, too.
            clock.advance("1s")
            store.add_runs([run("late", created_at=store.now(), run_at=store.now())])
            assert self.claimed_ids(store) == ["late"]
        clock.now += LONGEST_WAIT
        assert sorted(self.claimed_ids(store)) == sorted(f"r{at}" for at in bad)
        assert store.count_runs() == {"running": 10}
        assert {one.attempt for one in self.runs(store)} == {1}

    @of_refusal("purge")
    @pytest.mark.parametrize("bad", [{0}, {4}, {0, 1, 2, 8}, set(range(9))])
    @pytest.mark.parametrize("tenant", [None, "default"])
    def test_a_run_that_can_not_be_deleted_does_not_keep_others_from_being_purged(
        self, store: Store, clock: VirtualClock, bad: set[int], tenant: str | None
    ) -> None:
        store.add_runs(
            [
                run(f"r{at}", created_at=at, run_at=at, fired_by="bad" if at in bad else "good")
                for at in range(9)
            ]
        )
        for one in self.claim(store):
            clock.advance("1s")
            assert store.settle_runs([attempts.succeeded(one, None, clock.now, one.id)]) == [True]
        self.add(store, schedule())
        clock.advance("10m")
        self.fire(store)  # a row of the ledger
        assert store.put_record(Record(kind="note", key="old", body="", expires=clock.now + 1))
        clock.advance("1h")
        ended = EVERYTHING if tenant is None else replace(EVERYTHING, tenant=tenant, others=False)
        with self.refusing(store, "runs", "delete", fired_by="bad"):
            for _ in range(20):
                purged = store.purge(clock.now, 4, ended)
                assert purged.deleted <= 4
                if purged.until == clock.now:
                    break
            left = sorted(one.id for one in self.runs(store) if one.schedule is None)
            assert left == [f"r{at}" for at in sorted(bad)]
            if tenant is None:
                assert store.find_skipped("default", "cleanup") == []
        while store.purge(clock.now, 4, ended).until < clock.now:
            pass
        assert [one.schedule for one in self.runs(store)] == ["cleanup"]
