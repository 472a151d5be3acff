"""Schedules: written by compare-and-set, and found."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.rates import Rate
from evenbeat.core.records import CatchUp, Execution, Record
from evenbeat.errors import InvalidValue
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import RecordWrite, ScheduleQuery, Store, Write, Written
from evenbeat.stores.pages import write_position
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, schedule


class ScheduleContract(Contract):
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
                tags="billing team:ops",
                priority=8,
                queue="reports",
                kind="flow",
                overlap="queue",
                max_concurrent=3,
                spread=30_000,
                managed_by="code",
                catch_up=CatchUp("skip", grace=7, limit=8, max_age=9, rate=Rate(10, 60_000)),
                execution=Execution(retries=3, timeout=5000, on_crash="fail"),
                state="paused",
                pause_note="naïve ∑ \x01",
                paused_by="ann@db1",
                declared='{"task":"work","payload":{"text":"\\u0000"}}',
                after="load within 1h wait 30m",
                template='{"name":"nightly","own":["retries"]}',
                last_fire=store.now() - 1,
            ),
        )
        assert made.paused_at == store.now()
        assert self.get(store) == made

    def test_names_with_dots_and_colons_do_not_touch_each_other(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # In byte order. "." and ":" separate the parts of keys, and "schedule" and "default" are such parts.
        names = ["a", "a-b", "a.b", "a.b.c", "a:b", "a:b:c", "a_b", "default", "default:a", "schedule:a"]
        keys = [(tenant, name) for tenant in ("acme", "default") for name in names]
        for tenant, name in reversed(keys):
            self.add(store, schedule(name, tenant=tenant, payload=f'"{tenant} {name}"', overlap="skip"))
        found = store.find_schedules(ScheduleQuery(limit=7))
        assert [row.key for row in found.items] == keys[:7]
        rest = store.find_schedules(ScheduleQuery(limit=100, cursor=found.cursor))
        assert [row.key for row in rest.items] == keys[7:]
        # A tick becomes a run of each, the next one is skipped, since none has ended.
        for _ in range(2):
            clock.advance("1m")
            self.fire(store)
        for tenant, name in keys:
            (fired,) = self.runs(store, tenant=tenant, schedule=name)
            assert (fired.id, fired.payload) == (f"{tenant}/{name}/1/{fired.tick}", f'"{tenant} {name}"')
            (skipped,) = store.find_skipped(tenant, name)
            assert (skipped.schedule, skipped.tenant, skipped.count) == (name, tenant, 1)
        # The end of a run counts for its own schedule, and a deletion deletes one schedule.
        claimed = {run.id: run for run in self.claim(store)}
        (one,) = self.runs(store, tenant="default", schedule="a:b")
        (ended,) = store.settle_runs([attempts.succeeded(claimed[one.id], None, clock.now, "end")])
        assert ended
        for figures in store.statistics(keys):
            counted = int((figures.tenant, figures.schedule) == ("default", "a:b"))
            assert figures.run_count == counted
        before = self.get(store, "a:b")
        assert before is not None
        self.put(store, before, changes.delete(before, clock.now))
        left = [row.key for row in store.find_schedules(ScheduleQuery(limit=100)).items]
        assert left == [key for key in keys if key != ("default", "a:b")]
        clock.advance("1h")
        while store.purge(clock.now, 100).deleted:
            pass
        assert sorted(run.id for run in self.runs(store)) == sorted(set(claimed) - {one.id})

    def test_a_schedule_with_an_unreadable_trigger_is_found_changed_and_deleted(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for name in "abcd":
            row = self.add(store, schedule(name))
            if name in "bc":
                spoilt = replace(row, trigger="every now and then", revision=2)
                assert self.put(store, row, Planned(spoilt)).accepted
        clock.advance("1m")
        fired = self.fire(store)
        assert [planned.schedule.name for planned in fired.planned] == ["a", "d"]
        assert sorted(fired.quarantined) == [("default", "b"), ("default", "c")]
        found = store.find_schedules(ScheduleQuery()).items
        assert [row.name for row in found] == ["a", "b", "c", "d"]
        changed = changes.change(found[1], {"trigger": "every 5m"}, clock.now)
        assert self.put(store, found[1], changed).accepted
        assert self.put(store, found[2], changes.delete(found[2], clock.now)).accepted
        # The missed ticks cannot be counted: the tick that was due stands for them.
        for name, reason in (("b", "changed"), ("c", "deleted")):
            (skipped,) = store.find_skipped("default", name)
            assert (skipped.first, skipped.count, skipped.reason) == (clock.now, 1, reason)
        clock.advance("5m")
        assert sorted(planned.schedule.name for planned in self.fire(store).planned) == ["a", "b", "d"]

    def test_a_schedule_that_has_fired_often_can_be_changed(self, store: Store, clock: VirtualClock) -> None:
        # Some drivers have another type for counts beyond 32 bits.
        often = replace(changes.create(schedule(), store.now()).schedule, fire_seq=1 << 40, revision=1 << 35)
        (written,) = store.put_schedules([Write(Planned(often), None)])
        assert written.accepted
        clock.advance("1m")
        assert len(self.fire(store).planned) == 1
        row = self.get(store)
        assert row is not None
        assert (row.damage, row.fire_seq, row.revision) == ("", (1 << 40) + 1, 1 << 35)
        assert self.put(store, row, changes.pause(row, clock.now)).accepted

    def test_the_declaration_stays_when_the_schedule_fires(self, store: Store, clock: VirtualClock) -> None:
        planned = changes.declare(schedule(), store.now(), None)
        assert planned is not None
        (written,) = store.put_schedules([Write(planned, None)])
        assert written.accepted
        clock.advance("1m")
        self.fire(store)
        row = self.get(store)
        assert row is not None
        assert row.declared == planned.schedule.declared != ""
        assert changes.declare(schedule(), clock.now, row) is None

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
        triggered = changes.run_now(created.schedule, "manual-1", store.now())
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

    def test_writes_of_one_schedule_in_a_batch_see_each_other(self, store: Store) -> None:
        made = changes.create(schedule(), store.now())
        changed = changes.change(made.schedule, {"payload": "1"}, store.now())
        stale = changes.change(made.schedule, {"payload": "2"}, store.now())
        assert changed is not None
        assert stale is not None
        answers = store.put_schedules(
            [Write(made, None), Write(changed, made.schedule.version), Write(stale, made.schedule.version)]
        )
        assert [answer.accepted for answer in answers] == [True, True, False]
        assert answers[2].current == changed.schedule
        assert self.get(store) == changed.schedule

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

    def test_schedules_are_found_by_their_keys(self, store: Store) -> None:
        for tenant, name in (("acme", "x"), ("acme", "y"), ("zeta", "x"), ("zeta", "y")):
            self.add(store, schedule(name, tenant=tenant, task=f"task-{name}"))

        def keys(**query: Any) -> list[tuple[str, str]]:
            return [found.key for found in store.find_schedules(ScheduleQuery(**query)).items]

        wanted = (("zeta", "y"), ("acme", "x"), ("acme", "nothing"), ("nobody", "x"))
        assert keys(keys=wanted) == [("acme", "x"), ("zeta", "y")]
        assert keys(keys=wanted, tenant="acme") == [("acme", "x")]
        assert keys(keys=wanted, task="task-y") == [("zeta", "y")]
        assert keys(keys=()) == []
        first = store.find_schedules(ScheduleQuery(keys=wanted, limit=1))
        assert [found.key for found in first.items] == [("acme", "x")]
        rest = store.find_schedules(ScheduleQuery(keys=wanted, limit=1, cursor=first.cursor))
        assert [found.key for found in rest.items] == [("zeta", "y")]
        assert rest.cursor is None

    def test_late_schedules_are_found_by_their_wake_up(self, store: Store, clock: VirtualClock) -> None:
        start = clock.now
        self.add(store, schedule("soon", "every 1m"))
        self.add(store, schedule("later", "every 1h", tenant="acme"))
        paused = self.add(store, schedule("paused", "every 1m"))
        assert self.put(store, paused, changes.pause(paused, store.now())).accepted

        def names(before: int, **query: Any) -> list[str]:
            query["wakes_before"] = before
            return [found.name for found in store.find_schedules(ScheduleQuery(**query)).items]

        assert names(start + MINUTE) == []
        assert names(start + MINUTE + 1) == ["soon"]
        assert names(start + 61 * MINUTE) == ["later", "soon"]
        assert names(start + 61 * MINUTE, tenant="acme") == ["later"]
        assert names(start + 61 * MINUTE, limit=1) == ["later"]
        assert names(start + 61 * MINUTE, keys=(("default", "soon"), ("default", "paused"))) == ["soon"]
        assert names(start + MINUTE, keys=(("default", "soon"),)) == []
        assert names(start + 61 * MINUTE, tenant="default", name="soon") == ["soon"]
        assert names(start + MINUTE, tenant="default", name="soon") == []
        assert names(start + 61 * MINUTE, states=("paused",)) == []

    def test_a_write_adds_its_records_in_the_same_step(self, store: Store, clock: VirtualClock) -> None:
        note = Record(kind="audit", tenant="acme", key="1", body="made", expires=clock.now + MINUTE)
        made = changes.create(schedule(), store.now())
        assert store.put_schedules([Write(made._replace(records=(note,)), None)])[0].accepted
        assert store.find_records("audit") == [note]
        # Refused: nothing is added. Repeated: nothing is added twice, and what is there stays.
        other = replace(note, key="2", body="refused")
        changed = changes.change(made.schedule, {"priority": 8}, store.now())
        assert changed is not None
        refused = replace(made.schedule.version, revision=7)
        assert not store.put_schedules([Write(changed._replace(records=(other,)), refused)])[0].accepted
        assert store.find_records("audit") == [note]
        notes = (replace(note, body="other"), replace(note, key="3"))
        second = Write(changed._replace(records=notes), made.schedule.version)
        assert store.put_schedules([second])[0].accepted
        assert store.put_schedules([second])[0].accepted  # its reply was lost
        assert store.find_records("audit") == [note, replace(note, key="3")]
        clock.advance("1m")
        assert store.find_records("audit") == []
        # An expired record counts as missing.
        assert self.put(store, changed.schedule, changes.pause(changed.schedule, store.now())).accepted
        row = self.get(store)
        assert row is not None
        resumed = changes.resume(row, store.now())
        fresh = replace(note, body="again", expires=clock.now + MINUTE)
        assert resumed is not None
        assert store.put_schedules([Write(resumed._replace(records=(fresh,)), row.version)])[0].accepted
        assert store.find_records("audit") == [fresh]

    def test_a_cursor_may_be_a_position_between_schedules(self, store: Store) -> None:
        """A search for names that begin alike starts at the first of them."""
        for name in ("a", "a-1", "aZ", "b", "b-1", "b:2", "c"):
            self.add(store, schedule(name))
        for before, names in (("a~", ["b", "b-1", "b:2", "c"]), ("aY~", ["aZ", "b"]), ("", ["a", "a-1"])):
            position = write_position(("default", before))
            query = ScheduleQuery(tenant="default", cursor=position, limit=len(names))
            assert [each.name for each in store.find_schedules(query).items] == names

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

    def test_pages_of_every_search_continue_where_the_last_one_ended(
        self, store: Store, clock: VirtualClock
    ) -> None:
        for tenant in ("acme", "beta"):
            for at in range(3):
                self.add(store, schedule(f"s{at}", tenant=tenant, task=f"task-{at % 2}"))

        def page(**query: Any) -> tuple[list[tuple[str, str]], str | None]:
            found = store.find_schedules(ScheduleQuery(**query))
            return [each.key for each in found.items], found.cursor

        searches: list[dict[str, Any]] = [
            {},
            {"tenant": "acme"},
            {"tenant": "beta"},
            {"name": "s1"},
            {"task": "task-0"},
            {"tenant": "beta", "task": "task-0"},
            {"changed_since": clock.now},
            {"tenant": "beta", "wakes_before": clock.now + 2 * MINUTE},
            {"keys": (("acme", "s2"), ("beta", "s0"), ("beta", "s2"))},
        ]
        for search in searches:
            wanted, end = page(**search)
            assert len(wanted) >= 2, search
            assert end is None, search
            found: list[tuple[str, str]] = []
            cursor = None
            for _ in wanted:
                keys, cursor = page(**search, limit=1, cursor=cursor)
                found += keys
            assert (found, cursor) == (wanted, None), search
        # A cursor is a position among all schedules, whichever search it comes from.
        _, before = page(limit=1)
        assert page(tenant="beta", cursor=before)[0] == [("beta", "s0"), ("beta", "s1"), ("beta", "s2")]
        _, behind = page(tenant="beta", limit=1)
        assert page(tenant="acme", cursor=behind) == ([], None)

    def test_a_deleted_schedule_is_found_only_when_asked_for(self, store: Store) -> None:
        made = self.add(store, schedule())
        assert self.put(store, made, changes.delete(made, store.now())).accepted
        assert store.find_schedules(ScheduleQuery()).items == ()
        tombstone = self.get(store)
        assert tombstone is not None
        assert tombstone.state == "deleted"

    def test_a_write_is_recognised_again_when_only_its_wake_up_has_moved(
        self, store: Store, clock: VirtualClock
    ) -> None:
        write = Write(changes.create(schedule(spread=50_000), store.now()), None)
        assert store.put_schedules([write])[0].accepted
        clock.advance("1m")
        self.fire(store)
        assert store.put_schedules([write])[0].accepted

    def test_of_two_that_add_a_run_to_the_same_row_one_is_refused(self, store: Store) -> None:
        row = self.add(store, schedule("cleanup"))
        first, second = (changes.run_now(row, name, store.now()) for name in ("first", "second"))
        assert first is not None
        assert second is not None
        assert first.schedule == second.schedule  # the rows do not say whose write it was
        assert self.put(store, row, first).accepted
        assert not self.put(store, row, second).accepted
        assert self.put(store, row, first).accepted  # repeated after a lost reply
        assert [run.id for run in self.runs(store)] == ["first"]

    def test_a_write_with_a_record_is_refused_if_another_one_is_stored(
        self, store: Store, clock: VirtualClock
    ) -> None:
        def record(version: int, **fields: Any) -> Record:
            return Record(kind="turn", key="last", body=f"of {version}", version=version, **fields)

        made = self.add(store, schedule())
        paused = changes.pause(made, clock.now)
        assert paused is not None
        first = Write(paused, made.version, RecordWrite(record(7), None))
        late = Write(paused, made.version, RecordWrite(record(8), 6))
        # There is no record yet: the one that was expected is gone.
        assert store.put_schedules([late]) == [Written(False, made)]
        assert store.get_record("turn", "default", "last") is None
        assert store.put_schedules([first]) == [Written(True, paused.schedule)]
        assert store.get_record("turn", "default", "last") == record(7)
        # A repetition, whose first reply was lost.
        assert store.put_schedules([first]) == [Written(True, paused.schedule)]
        resumed = changes.resume(paused.schedule, clock.now)
        assert resumed is not None
        for expect in (None, 8):
            refused = Write(resumed, paused.schedule.version, RecordWrite(record(9), expect))
            assert store.put_schedules([refused]) == [Written(False, paused.schedule)]
        # A write whose row has changed leaves the record as it is.
        assert not store.put_schedules([Write(resumed, made.version, RecordWrite(record(9), 7))])[0].accepted
        assert (self.get(store), store.get_record("turn", "default", "last")) == (paused.schedule, record(7))
        # An expired one counts as none.
        assert store.put_record(record(10, expires=clock.now + 1_000), 7)
        clock.advance("1s")
        again = Write(resumed, paused.schedule.version, RecordWrite(record(11), None))
        assert store.put_schedules([again]) == [Written(True, resumed.schedule)]
        assert store.get_record("turn", "default", "last") == record(11)

    def test_writes_of_one_call_may_change_a_record_one_after_the_other(self, store: Store) -> None:
        def write(name: str, version: int, expect: int | None) -> Write:
            record = Record(kind="turn", key="last", body=name, version=version)
            return Write(changes.create(schedule(name), store.now()), None, RecordWrite(record, expect))

        written = store.put_schedules(
            [write("a", 1, None), write("b", 2, 1), write("c", 3, 1), write("d", 3, 2)]
        )
        assert [each.accepted for each in written] == [True, True, False, True]
        assert [self.get(store, name) is not None for name in "abcd"] == [True, True, False, True]
        assert store.get_record("turn", "default", "last") == Record(
            kind="turn", key="last", body="d", version=3
        )

    def test_of_writes_that_change_the_same_record_at_the_same_time_one_is_accepted(
        self, store: Store, handles: Handles
    ) -> None:
        accepted: list[str] = []

        def work(handle: Store) -> None:
            for expect in (None, 1, 2):
                name = f"{threading.get_ident()}-{expect}"
                record = Record(kind="turn", key="last", body=name, version=(expect or 0) + 1)
                made = changes.create(schedule(name), handle.now())
                if handle.put_schedules([Write(made, None, RecordWrite(record, expect))])[0].accepted:
                    accepted.append(name)

        self.in_threads(handles, work)
        assert len(accepted) == 3
        found = store.find_schedules(ScheduleQuery()).items
        assert {row.name for row in found} == set(accepted)
