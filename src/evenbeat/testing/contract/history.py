"""History: runs found and counted, statistics, the ledger, and their purging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.app.accounting import account_of
from evenbeat.core.records import LogChunk, Record, RunRecord, ScheduleRecord, Skipped, Statistics
from evenbeat.errors import InvalidValue
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import RunQuery, ScheduleQuery, Store
from evenbeat.stores.pages import cursor_at
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, run, schedule


class HistoryContract(Contract):
    def test_runs_are_found_by_every_filter_the_newest_first(self, store: Store, clock: VirtualClock) -> None:
        for at in range(25):
            store.add_runs(
                [
                    run(
                        f"r{at:02}",
                        created_at=clock.now + at // 2,
                        run_at=clock.now,
                        tenant=f"t{at % 2}",
                        task=f"task{at % 3}",
                        queue=f"q{at % 5}",
                        schedule="s" if at % 2 else None,
                    )
                ]
            )
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

    def test_runs_are_found_from_an_instant_of_their_creation_on(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs(
            [
                run(f"r{at}", run_at=clock.now, created_at=clock.now + at // 2, tenant=f"t{at % 2}")
                for at in range(12)
            ]
        )
        everything = self.runs(store)
        for fields in ({}, {"tenant": "t1"}, {"states": ("queued",)}, {"ids": ("r1", "r5", "r9")}):
            for limit in (1, 100):
                wanted = self.runs(store, created_since=clock.now + 3, limit=limit, **fields)
                assert wanted == [
                    each for each in self.runs(store, **fields) if each.created_at >= clock.now + 3
                ]
        assert len(self.runs(store, created_since=clock.now)) == len(everything)
        assert self.runs(store, created_since=clock.now + 6) == []

    def test_a_search_for_runs_leaves_out_large_fields(self, store: Store, clock: VirtualClock) -> None:
        many = [f"r{at:02}" for at in range(6)]
        store.add_runs(
            [
                run(
                    name,
                    run_at=clock.now,
                    created_at=clock.now + at,
                    payload='{"n":1}',
                    tenant="t",
                    schedule="s",
                )
                for at, name in enumerate(many)
            ]
        )
        ended = [
            attempts.succeeded(each, '"done"', clock.now, f"{each.id}-s") for each in self.claim(store)[:3]
        ]
        failed = [
            attempts.failed(each, "Boom: why", clock.now, f"{each.id}-f")
            for each in self.runs(store, states=("running",))[:2]
        ]
        assert all(store.settle_runs([*ended, *failed]))
        whole = self.runs(store)
        assert {found.payload for found in whole} == {'{"n":1}'}
        assert {found.result for found in whole} == {None, '"done"'}
        assert {found.error for found in whole} == {None, "Boom: why"}
        searches: tuple[dict[str, Any], ...] = (
            {},
            {"limit": 2},
            {"ids": tuple(many)},
            {"tenant": "t", "schedule": "s"},
            {"tenant": "t", "schedule": "s", "states": ("running",)},
            {"states": ("running",)},
            {"states": ("running",), "worker": "w1"},
            {"states": ("succeeded", "failed"), "finished_since": clock.now},
            {"since": clock.now - 1, "until": clock.now + 1},
        )
        for fields in searches:
            found = self.runs(store, **fields)
            assert found, fields
            assert self.runs(store, without=("payload", "result", "error"), **fields) == [
                replace(each, payload="null", result=None, error=None) for each in found
            ]
            assert self.runs(store, without=("payload",), **fields) == [
                replace(each, payload="null") for each in found
            ]

    def test_a_search_for_runs_may_start_at_an_instant(self, store: Store, clock: VirtualClock) -> None:
        created = {"a": 5, "b": 5, "c": 4, "d": 6, "e": 3}
        store.add_runs(
            [
                run(name, run_at=clock.now, created_at=clock.now + at, tenant="acme", schedule="s")
                for name, at in created.items()
            ]
        )
        for fields in ({}, {"tenant": "acme", "schedule": "s"}, {"ids": tuple(created)}):
            for limit in (1, 2, 10):
                query = RunQuery(**fields, limit=limit, cursor=cursor_at(clock.now + 5))
                found: list[str] = []
                while True:
                    page = store.find_runs(query)
                    found += [item.id for item in page.items]
                    if page.cursor is None:
                        break
                    query = replace(query, cursor=page.cursor)
                assert found == ["a", "b", "c", "e"]
        assert store.find_runs(RunQuery(cursor=cursor_at(clock.now + 2))).items == ()

    def test_runs_are_found_by_worker_and_by_cancel_request(self, store: Store, clock: VirtualClock) -> None:
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
            [attempts.succeeded(mine[0], None, clock.now, "t0"), attempts.released(mine[1], clock.now, "t1")]
        ) == [True, True]
        assert ids(worker="w1") == ["r0", "r2"]
        assert ids(worker="w1", states=("running",)) == ["r2"]

    def test_runs_are_found_by_when_they_ended(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs(
            [run(f"r{at}", run_at=clock.now, created_at=clock.now, schedule="s") for at in range(5)]
        )
        ends: dict[str, int] = {}
        for held in self.claim(store, limit=4):
            clock.advance("1s")
            ends[held.id] = clock.now
            end = attempts.failed(held, "boom", clock.now, held.id) if held.id == "r1" else None
            end = end or attempts.succeeded(held, None, clock.now, held.id)
            assert store.settle_runs([end]) == [True]

        def found(since: int, **query: Any) -> list[str]:
            return [run.id for run in self.runs(store, finished_since=since, **query)]

        order = sorted(ends)
        assert found(0) == order
        assert found(ends["r1"]) == [name for name in order if ends[name] >= ends["r1"]]
        assert found(max(ends.values()) + 1) == []
        assert found(0, states=("failed",)) == ["r1"]
        assert found(0, tenant="default", limit=1) == order
        assert found(0, tenant="acme") == []
        assert found(0, schedule="s", task="work", limit=3) == order

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
        while store.purge(clock.now, 1).deleted:
            pass
        assert self.runs(store) == []
        (figures,) = store.statistics([("default", "cleanup")])
        assert (figures.run_count, figures.success_count, figures.failure_count) == (3, 2, 1)
        assert (figures.last_error, figures.last_run) == ("boom", clock.now - 60 * MINUTE)
        assert figures.last_success == figures.last_run
        assert figures.last_failure == clock.now - 61 * MINUTE

    def test_the_last_error_is_that_of_the_last_failure_also_if_it_has_no_text(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        errors = []
        for error in ("boom", None, "", None):
            clock.advance("1m")
            self.fire(store)
            (held,) = self.claim(store, f"claim-{clock.now}")
            end = attempts.succeeded(held, None, clock.now, held.id)
            if error is not None:
                end = attempts.failed(held, error, clock.now, held.id)
            assert store.settle_runs([end]) == [True]
            errors.append(store.statistics([("default", "cleanup")])[0].last_error)
        assert errors == ["boom", "boom", "", ""]

    def test_negative_limits_are_refused_and_zero_asks_for_nothing(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self.add(store, schedule())
        clock.advance("10m")
        self.fire(store)
        calls: list[Callable[[int], object]] = [
            lambda limit: store.find_schedules(ScheduleQuery(limit=limit)).items,
            lambda limit: store.find_runs(RunQuery(limit=limit)).items,
            lambda limit: self.claim(store, "zero", limit=limit),
            lambda limit: store.find_skipped("default", "cleanup", limit),
            lambda limit: store.lost_runs(clock.now, limit).runs,
            lambda limit: store.fire_due(clock.now + MINUTE, limit, plan).planned,
            lambda limit: store.purge(clock.now + MINUTE, limit).deleted,
        ]
        for call in calls:
            assert not call(0)
            with pytest.raises(InvalidValue, match="-1 is negative"):
                call(-1)
        assert len(self.runs(store, states=("queued",))) == 1

    def test_a_search_by_a_name_that_cannot_be_stored_finds_nothing(self, store: Store) -> None:
        odd = "a\0b"
        # Not found either: the part before the NUL.
        self.add(store, schedule("a", tenant="a"))
        store.add_runs([run("a", run_at=store.now(), tenant="a")])
        assert store.find_runs(RunQuery(ids=(odd,))).items == ()
        assert store.find_runs(RunQuery(tenant=odd)).items == ()
        assert store.find_runs(RunQuery(schedule=odd, task=odd, queue=odd, worker=odd)).items == ()
        assert store.find_schedules(ScheduleQuery(tenant=odd, name=odd, task=odd)).items == ()
        assert store.find_schedules(ScheduleQuery(keys=((odd, odd), ("a", odd), (odd, "a")))).items == ()
        assert store.find_skipped(odd, odd) == []
        assert store.statistics([(odd, odd)]) == [Statistics(tenant=odd, schedule=odd)]
        assert store.count_runs(odd) == {}
        assert store.get_record(odd, odd, odd) is None
        assert store.find_records(odd, odd) == []
        assert store.delete_record(odd, odd, odd, 1) is False
        assert store.read_log(odd) == []
        assert self.claim(store, tasks=frozenset((odd,)), queues=(odd,)) == []
        ghost = RunRecord(id=odd, task="work", attempt=1)
        assert store.settle_runs([attempts.succeeded(ghost, None, store.now(), "t")]) == [False]

    def test_a_purge_deletes_old_ended_runs_in_small_batches(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule(trigger="every 10s"))
        clock.advance("1m")
        self.fire(store)  # one run, five coalesced ticks: one ledger row
        (old,) = self.claim(store)
        store.settle_runs([attempts.succeeded(old, None, clock.now, "t")])
        store.append_log([LogChunk(run=old.id, attempt=1, seq=0, text="hello", at=clock.now)])
        assert store.put_record(Record(kind="node", key="n1", body="{}", expires=clock.now + 500))
        edge = clock.advance("1s")
        store.add_runs([run("active", run_at=0, created_at=0)])
        assert store.purge(edge - 1001, 100).deleted == 1  # the record, which has expired
        assert store.purge(edge, 1).deleted == 1
        assert store.purge(edge, 100).deleted == 1
        assert store.purge(edge, 100).deleted == 0
        assert [found.id for found in self.runs(store)] == ["active"]
        assert store.find_skipped("default", "cleanup") == []
        assert store.read_log(old.id) == []

    def test_the_ledger_gives_the_newest_ticks_first(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        rows = tuple(
            Skipped(
                tenant="default",
                schedule="cleanup",
                generation=1,
                first=at,
                last=at,
                count=1,
                reason="late",
                recorded_at=clock.now,
            )
            for at in (1, 3, 2)
        )
        assert self.put(store, made, Planned(replace(made, fire_seq=made.fire_seq + 1), (), rows)).accepted
        assert [row.first for row in store.find_skipped("default", "cleanup")] == [3, 2, 1]
        assert [row.first for row in store.find_skipped("default", "cleanup", limit=1)] == [3]
        assert store.find_skipped("default", "other") == []

    def test_the_records_of_all_ticks_add_up(self, store: Store, clock: VirtualClock) -> None:
        def present() -> ScheduleRecord:
            row = self.get(store)
            assert row is not None
            return row

        def change(planned: Planned | None) -> None:
            assert self.put(store, present(), planned).accepted

        self.add(store, schedule(trigger="every 1m"))
        clock.advance("5m")
        self.fire(store)  # one run, four coalesced ticks
        clock.advance("10s")
        change(changes.reschedule(present(), clock.now + 5_000, clock.now))  # the tick of the sixth minute
        clock.advance("5s")
        self.fire(store)
        change(changes.pause(present(), clock.now))
        clock.advance("3m")
        change(changes.resume(present(), clock.now))
        clock.advance("1m")
        self.fire(store)
        change(changes.reschedule(present(), clock.now + 10_000, clock.now))
        clock.advance("70s")
        found = account_of(store, present())
        assert (found.ran, found.coalesced, found.skipped) == (2, 4, {"paused": 2})
        assert (found.moved, found.pending, found.missing, found.doubled) == (1, 1, 0, 0)
        assert found.expected == 10

    def test_the_ledger_is_read_by_the_range_of_ticks(self, store: Store, clock: VirtualClock) -> None:
        made = self.add(store, schedule())
        edges = ((10, 19), (20, 20), (21, 30), (15, 25))
        rows = tuple(
            Skipped(
                tenant="default",
                schedule="cleanup",
                generation=1,
                first=first,
                last=last,
                count=1,
                reason="paused",
                recorded_at=clock.now,
            )
            for first, last in edges
        )
        assert self.put(store, made, Planned(replace(made, fire_seq=made.fire_seq + 1), (), rows)).accepted

        def found(since: int | None, until: int | None, limit: int = 100) -> list[tuple[int, int]]:
            ledger = store.find_skipped("default", "cleanup", limit, since=since, until=until)
            return [(row.first, row.last) for row in ledger]

        everything = [(21, 30), (15, 25), (20, 20), (10, 19)]
        assert found(None, None) == everything
        assert found(10, 31) == everything
        assert found(20, None) == [(21, 30), (15, 25), (20, 20)]
        assert found(None, 20) == [(15, 25), (10, 19)]
        assert found(None, 20, limit=1) == [(15, 25)]
        assert found(20, 21) == [(15, 25), (20, 20)]
        assert found(26, 30) == [(21, 30)]
        assert found(31, 40) == found(0, 10) == []
