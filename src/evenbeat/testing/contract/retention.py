"""The part of the contract about purging by tenant, state and number."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, LogChunk, RunState
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import EndedRuns, Held, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, run, schedule

STATES: tuple[RunState, ...] = ("succeeded", "failed", "cancelled")


def add_history(store: Store, now: Instant, tenants: str = "abc", each: int = 3) -> None:
    """Add runs of each tenant and state that ended a second apart, the newest first in number, and some that
    have not ended."""
    runs = []
    for tenant, state in product(tenants, STATES):
        for at in range(each):
            name = f"{tenant}-{state}-{at}"
            end = now - at * 1000
            runs.append(
                run(name, tenant=tenant, state=state, attempt=1, created_at=end - 10, finished_at=end)
            )
        runs.append(run(f"{tenant}-{state}-waiting", tenant=tenant, run_at=now + MINUTE, created_at=now))
    store.add_runs(runs)


class RetentionContract(Contract):
    @pytest.mark.parametrize(
        ("selected", "kept"),
        [
            (EndedRuns(), ""),
            (EndedRuns(states=("failed",)), "succeeded cancelled"),
            (EndedRuns(states=("failed", "cancelled")), "succeeded"),
            (EndedRuns(tenant="a"), "b c"),
            (EndedRuns(tenant="a", states=("succeeded",)), "b c a-failed a-cancelled"),
            (EndedRuns(spared=("a",)), "a"),
            (EndedRuns(spared=("a", "b", "nobody"), states=("failed",)), "a b c-succeeded c-cancelled"),
            (EndedRuns(tenant="nobody"), "a b c"),
            (EndedRuns(states=()), "a b c"),
        ],
        ids=repr,
    )
    def test_a_purge_deletes_the_selected_runs_alone(
        self, store: Store, clock: VirtualClock, selected: EndedRuns, kept: str
    ) -> None:
        add_history(store, clock.now)
        store.append_log([LogChunk(run="a-failed-2", attempt=1, seq=0, text="log", at=clock.now)])
        before = clock.now - 500
        while store.purge(before, 2, selected).until < before:
            pass
        found = {each.id for each in self.runs(store) if each.state in FINAL_STATES}
        names = [f"{tenant}-{state}" for tenant, state in product("abc", STATES)]
        stays = [name for name in names if any(word in (name, *name.split("-")) for word in kept.split())]
        # The newest ended later.
        assert found == {f"{name}-0" for name in names} | {f"{name}-{at}" for name in stays for at in (1, 2)}
        assert len(self.runs(store, states=("queued",))) == 9
        assert bool(store.read_log("a-failed-2")) is ("a-failed" in stays)
        counted = store.count_runs("a")
        assert {state: counted.get(state, 0) for state in STATES} == {
            state: 3 if f"a-{state}" in stays else 1 for state in STATES
        }

    @pytest.mark.parametrize("limit", [2, 100])
    @pytest.mark.parametrize(
        "selected",
        [
            EndedRuns(),
            EndedRuns(states=("succeeded",)),
            EndedRuns(tenant="a"),
            EndedRuns(tenant="a", states=("succeeded",)),
            EndedRuns(spared=("b",)),
            EndedRuns(others=True),
        ],
        ids=repr,
    )
    def test_a_purge_keeps_runs_that_are_held(
        self, store: Store, clock: VirtualClock, selected: EndedRuns, limit: int
    ) -> None:
        # Each mark is held for another time, and all ends are mixed.
        marks = {"code": "n1/code", "memory": "n2/memory", "other": "n1", "none": None, "middle": "/code/n"}
        ended = [
            run(
                f"{name}-{age}", tenant="a", state="succeeded", attempt=1, fired_by=mark,
                finished_at=clock.now - age * MINUTE,
            )
            for name, mark in marks.items()
            for age in range(1, 9)
        ]  # fmt: skip
        store.add_runs(ended)
        held = (Held("/code", clock.now - 3 * MINUTE), Held("/memory", clock.now - 6 * MINUTE))
        before, deleted = clock.now - 90_000, 0
        for _ in range(100):
            purged = store.purge(before, limit, replace(selected, held=held))
            deleted += purged.deleted
            if purged.until == before:
                break
        else:
            pytest.fail("the purge does not end")
        kept = {f"{name}-1" for name in marks}
        kept |= {"code-2", "code-3"} | {f"memory-{age}" for age in range(2, 7)}
        assert {each.id for each in self.runs(store)} == kept
        assert deleted == len(ended) - len(kept)
        # Time passes: what is held now goes later.
        later = tuple(Held(each.mark, each.before + 3 * MINUTE) for each in held)
        assert store.purge(before, 100, replace(selected, held=later)).deleted == 5
        assert store.purge(before, 100, selected).deleted == 2

    def test_many_runs_that_are_held_do_not_stop_a_purge(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs(
            [
                run(f"{at:03}", state="failed", attempt=1, finished_at=clock.now, fired_by=fired_by)
                for at in range(40)
                for fired_by in ("n/code" if at != 37 else "n",)
            ]
        )
        edge = clock.advance("1ms")
        for selected in (
            EndedRuns(),
            EndedRuns(tenant="default"),
            EndedRuns(tenant="default", states=("failed",)),
        ):
            held = replace(selected, held=(Held("/code", clock.now - MINUTE),))
            for _ in range(20):
                if store.purge(edge, 5, held).until == edge:
                    break
            else:
                pytest.fail("the purge does not end")
            assert {each.id for each in self.runs(store)} == {f"{at:03}" for at in range(40) if at != 37}

    def test_a_purge_says_how_far_it_got_and_continues_there(self, store: Store, clock: VirtualClock) -> None:
        add_history(store, clock.now, "ab", each=6)
        before = clock.now - 500
        since, gone = None, []
        for _ in range(30):
            purged = store.purge(before, 2, EndedRuns(spared=("a",), states=STATES[:2], since=since))
            gone.append(purged.deleted)
            assert purged.until <= before
            assert since is None or purged.until >= since
            since = purged.until
            if since == before:
                break
        assert (sum(gone), max(gone)) == (10, 2)
        # Runs that ended before ``since`` are not looked at.
        left = EndedRuns(since=clock.now - 2500)
        assert store.purge(before, 100, left).deleted == 8
        assert store.purge(before, 100).deleted == 12

    def test_runs_that_ended_in_the_same_millisecond_are_all_looked_at(
        self, store: Store, clock: VirtualClock
    ) -> None:
        ended = [
            run(f"{at:03}", tenant="b" if at == 49 else "a", state="failed", attempt=1, finished_at=clock.now)
            for at in range(50)
        ]
        store.add_runs(ended)
        edge = clock.advance("1ms")
        since = None
        for _ in range(20):
            purged = store.purge(edge, 5, EndedRuns(spared=("a",), since=since))
            since = purged.until
            if since == edge:
                break
        assert since == edge
        assert store.count_runs("b") == {}
        assert store.count_runs("a") == {"failed": 49}

    def test_ledger_rows_and_records_go_only_if_asked(self, store: Store, clock: VirtualClock) -> None:
        self.add(store, schedule(trigger="every 10s"))
        clock.advance("1m")
        self.fire(store)
        edge = clock.advance("1s")
        assert store.find_skipped("default", "cleanup") != []
        assert store.purge(edge, 100, EndedRuns()).deleted == 0
        assert store.find_skipped("default", "cleanup") != []
        assert store.purge(edge, 100, EndedRuns(states=(), others=True)).deleted == 1
        assert store.find_skipped("default", "cleanup") == []

    def test_the_end_of_the_run_at_a_position(self, store: Store, clock: VirtualClock) -> None:
        now = clock.now
        add_history(store, now, "ab", each=4)
        for tenant in ("a", "b"):
            assert [store.ended_at(at, tenant, ("failed",)) for at in range(1, 6)] == [
                *(now, now - 1000, now - 2000, now - 3000),
                None,
            ]
        assert [store.ended_at(at, "a", STATES) for at in (1, 3, 4, 12, 13)] == [
            *(now, now, now - 1000, now - 3000),
            None,
        ]
        assert [store.ended_at(at, "a", ("failed", "succeeded")) for at in (2, 3, 8, 9)] == [
            *(now, now - 1000, now - 3000),
            None,
        ]
        assert [store.ended_at(at, None, STATES) for at in (6, 7, 24, 25)] == [
            *(now, now - 1000, now - 3000),
            None,
        ]
        assert [store.ended_at(at, None, ("cancelled",)) for at in (2, 3, 8, 9)] == [
            *(now, now - 1000, now - 3000),
            None,
        ]
        assert store.ended_at(1, "nobody", STATES) is None
        assert store.ended_at(0, "a", STATES) is None
        assert store.ended_at(1, "a", ()) is None

    def test_the_position_follows_runs_that_end_and_are_retried(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run(name, run_at=clock.now, created_at=clock.now) for name in "abc"])
        ends = []
        for claimed in self.claim(store):
            ends.append(clock.advance("1s"))
            assert store.settle_runs([attempts.failed(claimed, "no", clock.now, claimed.id)]) == [True]
        assert [store.ended_at(at, "default", ("failed",)) for at in (1, 2, 3)] == ends[::-1]
        again = attempts.retried(self.runs(store, ids=("c",))[0], "again")
        assert again is not None
        assert store.settle_runs([again]) == [True]
        assert store.ended_at(1, "default", ("failed",)) == ends[1]
        assert store.purge(ends[2] + 1, 10, EndedRuns(tenant="default")).deleted == 2
        assert [each.id for each in self.runs(store)] == ["c"]

    def test_a_purged_tick_does_not_fire_again(self, store: Store, clock: VirtualClock) -> None:
        first = clock.advance("1m")
        made = self.add(store, schedule(tenant="acme", overlap="allow"))
        clock.advance("1m")
        self.fire(store)
        (claimed,) = self.claim(store)
        tick = claimed.tick
        assert store.settle_runs([attempts.succeeded(claimed, None, clock.now, "done")]) == [True]
        late = plan(made, clock.now)
        clock.advance("30s")
        selected = EndedRuns(tenant="acme", states=("succeeded",))
        assert store.purge(clock.now, 10, selected).deleted == 1
        # Not when a node that slept writes what it had planned, nor when the schedule fires or catches up,
        assert self.fire(store).planned == ()
        self.put(store, made, late)
        assert self.runs(store) == []
        clock.advance("5m")
        self.fire(store)
        assert tick not in [each.tick for each in self.runs(store)]
        # nor when it is paused and resumed.
        row = self.get(store, tenant="acme")
        assert row is not None
        self.put(store, row, changes.pause(row, clock.now))
        clock.advance("5m")
        row = self.get(store, tenant="acme")
        assert row is not None
        self.put(store, row, changes.resume(row, clock.now))
        self.fire(store)
        ticks = [each.tick for each in self.runs(store)]
        assert tick not in ticks
        assert min(each for each in ticks if each is not None) > first + MINUTE

    def test_indexes_agree_with_the_rows(self, store: Store, clock: VirtualClock) -> None:
        add_history(store, clock.now)
        self.add(store, schedule())
        clock.advance("2m")
        self.fire(store)
        (claimed, *_) = self.claim(store, limit=1)
        assert claimed.state == "running"
        assert store.check_indexes(100, mend=False) == []
        assert store.check_indexes(100, mend=True) == []
