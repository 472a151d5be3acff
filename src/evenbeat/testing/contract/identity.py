"""Runs that have the same id, one after the other: a change of the first is never made to the second."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evenbeat.core.records import LogChunk, RunRecord, Transition
from evenbeat.observe.run_logs import RunLog, refusal
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

    def _made_again(self, store: Store, run_id: str, claim: str) -> RunRecord:
        """Return a later run of the same id, as it was claimed."""
        now = store.now()
        store.add_runs([run(run_id, run_at=now, created_at=now, claim=f"made-{claim}")])
        (held,) = self.claim(store, claim)
        return held

    def _texts(self, store: Store, run_id: str) -> list[str]:
        return [chunk.text for chunk in store.read_log(run_id)]

    @pytest.mark.parametrize("is_late_first", [True, False])
    def test_a_late_line_of_a_purged_run_is_not_in_the_log_of_a_later_run_of_its_id(
        self, store: Store, clock: VirtualClock, is_late_first: bool
    ) -> None:
        earlier = self._ended(store, clock, "a", "claim-1")
        later = self._made_again(store, "a", "claim-2")
        late, own = _lines(earlier, "old 1", "old 2", "old 3"), _lines(later, "new 1", "new 2")
        assert [(line.attempt, line.seq) for line in late[:2]] == [(line.attempt, line.seq) for line in own]
        for lines in (late, own) if is_late_first else (own, late):
            store.append_log(lines)
        store.append_log([refusal(earlier, store.now())])
        assert self._texts(store, "a") == ["new 1", "new 2"]

    def test_late_lines_and_those_of_a_later_run_of_the_id_may_come_together(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # A node writes the lines of all its runs at once: it may have executed both.
        earlier = self._ended(store, clock, "a", "claim-1")
        store.append_log(_lines(earlier, "old"))
        assert store.read_log("a") == []
        later = self._made_again(store, "a", "claim-2")
        store.append_log([*_lines(earlier, "old"), *_lines(later, "new")])
        (line,) = store.read_log("a")
        assert (line.run, line.attempt, line.seq, line.text) == ("a", 1, 1, "new")

    def test_the_log_of_a_run_has_the_lines_of_all_its_attempts_and_goes_with_it(
        self, store: Store, clock: VirtualClock
    ) -> None:
        self._ended(store, clock, "a", "claim-1")
        first = self._made_again(store, "a", "claim-2")
        lost = replace(attempts.crashed(first, store.now(), "lost"), lease_ended=False)
        assert store.settle_runs([lost]) == [True]
        (second,) = self.claim(store, "claim-3")
        store.append_log(_lines(second, "2"))
        store.append_log([*_lines(first, "1"), refusal(first, store.now())])  # late, and of the same run
        assert [(line.attempt, line.seq == 1) for line in store.read_log("a")] == [
            (1, True),
            (1, False),
            (2, True),
        ]
        assert store.settle_runs([attempts.succeeded(second, "1", store.now(), "end")]) == [True]
        self._purge(store, clock)
        assert store.read_log("a") == []
        self._made_again(store, "a", "claim-4")
        assert store.read_log("a") == []


def _lines(of: RunRecord, *texts: str) -> list[LogChunk]:
    log = RunLog(of)
    for text in texts:
        log.add(text)
    return log.take()
