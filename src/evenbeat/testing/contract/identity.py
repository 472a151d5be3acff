"""Runs that have the same id, one after the other: a change of the first is never made to the second."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenbeat.core.records import RunRecord, Transition
from evenbeat.rules import attempts
from evenbeat.stores.base import Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import Contract, run


class IdentityContract(Contract):
    def _ended(self, store: Store, clock: VirtualClock, run_id: str, claim: str) -> RunRecord:
        """Return a run as it was claimed. It has succeeded since, and is purged."""
        store.add_runs([run(run_id, run_at=store.now(), created_at=store.now(), claim=f"made-{claim}")])
        (held,) = self.claim(store, claim)
        assert store.settle_runs([attempts.succeeded(held, '"first"', store.now(), f"end-{claim}")]) == [True]
        self._purge(store, clock)
        return held

    def _purge(self, store: Store, clock: VirtualClock) -> None:
        clock.advance("1s")
        while store.purge(store.now(), 100).deleted:
            pass

    @pytest.mark.parametrize("others", [0, 1, 30])
    def test_a_transition_of_a_purged_run_is_refused_for_a_later_run_of_its_id(
        self, store: Store, clock: VirtualClock, others: int
    ) -> None:
        # Stores take other ways for one, a few and many transitions.
        earlier = self._ended(store, clock, "a", "claim-1")
        now = store.now()
        made = run("a", run_at=now, created_at=now, claim="made-2")
        store.add_runs([made, *(run(f"other-{at:02}", run_at=now) for at in range(others))])
        held = {found.id: found for found in self.claim(store, "claim-2")}
        later = held.pop("a")
        assert (later.attempt, later.claim) == (earlier.attempt, "claim-2")
        late: list[Transition | None] = [
            attempts.heartbeat(earlier, 30_000, "t1"),
            attempts.succeeded(earlier, '"first"', now, "t2"),
            attempts.failed(earlier, "boom", now, "t3"),
            attempts.released(earlier, now, "t4"),
            attempts.cancel(earlier, now, "t5"),
            replace(attempts.heartbeat(earlier, 30_000, "t6"), flow='{"steps":"."}', renews=True),
        ]
        for at, transition in enumerate(late):
            assert transition is not None
            rest = [attempts.heartbeat(other, 30_000, f"o-{at}-{other.id}") for other in held.values()]
            assert store.settle_runs([transition, *rest]) == [False, *(True for _ in rest)]
        assert self.runs(store, ids=("a",)) == [later]
        assert store.settle_runs([attempts.succeeded(later, '"second"', now, "t7")]) == [True]
        assert self.runs(store, ids=("a",))[0].result == '"second"'

    def test_a_transition_of_a_queued_run_is_refused_for_a_later_run_of_its_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # Neither was ever claimed: the tokens of their making tell them apart.
        made = run("a", run_at=store.now(), created_at=store.now(), claim="made-1")
        store.add_runs([made])
        (earlier,) = self.runs(store)
        assert earlier.claim == "made-1"
        late = [attempts.cancel(earlier, store.now(), "t1"), attempts.moved(earlier, "other", "t2")]
        ended = attempts.cancel(earlier, store.now(), "t0")
        assert ended is not None
        assert store.settle_runs([ended]) == [True]
        self._purge(store, clock)
        store.add_runs([replace(made, claim="made-2")])
        for transition in late:
            assert transition is not None
            assert store.settle_runs([transition]) == [False]
        (later,) = self.runs(store)
        assert (later.state, later.task, later.claim) == ("queued", "work", "made-2")
        (held,) = self.claim(store, "claim-1")
        assert held.claim == "claim-1"

    def test_the_end_of_a_purged_step_does_not_change_a_later_flow_of_the_same_id(
        self, store: Store, clock: VirtualClock
    ) -> None:
        earlier = self._ended(store, clock, "f", "claim-1")
        now = store.now()
        store.add_runs([run("f", run_at=now, created_at=now, claim="made-2"), run("f~step", run_at=now)])
        held = {found.id: found for found in self.claim(store, "claim-2")}
        end = attempts.succeeded(held["f~step"], '"result"', now, "end")
        change = replace(
            attempts.heartbeat(earlier, 300_000, "t1"), flow='{"steps":"s"}', renews=True, ends=(end,)
        )
        assert store.settle_runs([change]) == [False]
        assert {found.id: found for found in self.runs(store)} == held
        right = replace(change, claim=held["f"].claim)
        assert store.settle_runs([right]) == [True]
        assert {found.id: found.state for found in self.runs(store)} == {
            "f": "running",
            "f~step": "succeeded",
        }
