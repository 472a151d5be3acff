"""Runs: settled, renewed, taken over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Execution, Record, RunRecord, Transition
from evenbeat.errors import InvalidValue
from evenbeat.rules import attempts, changes
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Lost, ScheduleQuery, Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import BIG, MINUTE, Contract, run, schedule


class SettlingContract(Contract):
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

    def test_a_run_keeps_its_node_its_trace_and_the_ends_of_its_attempts(
        self, store: Store, clock: VirtualClock
    ) -> None:
        policy = Execution(retries=2, backoff=0)
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        named = run("a", run_at=store.now(), fired_by="node-1", trace=trace, unique_key="u", execution=policy)
        store.add_runs([named])
        past: list[tuple[int, str | None, str, str | None]] = []
        ends: tuple[Callable[[RunRecord], Transition], ...] = (
            lambda held: attempts.failed(held, "boom \u2400 \x01", clock.now, "t1"),
            lambda held: attempts.released(held, clock.now, "t2"),
            lambda held: attempts.crashed(held, clock.now, "t3"),
            lambda held: attempts.failed(held, "again", clock.now, "t4"),
            lambda held: attempts.failed(held, "the last", clock.now, "t5"),
        )
        outcomes = ("failed", "handed back", "lost", "failed", "failed")
        errors = ("boom \u2400 \x01", None, None, "again", "the last")
        for at, end in enumerate(ends):
            (held,) = self.claim(store, f"claim-{at}", worker=f"w{at}")
            assert held.trace == trace
            assert [attempt.number for attempt in attempts.ended_attempts(held)] == list(range(1, at + 1))
            clock.advance("1m")
            assert store.settle_runs([end(held)]) == [True]
            past.append((at + 1, f"w{at}", outcomes[at], errors[at]))
            (row,) = self.runs(store)
            ended = attempts.ended_attempts(row)
            assert [(one.number, one.worker, one.outcome, one.error) for one in ended] == past
            assert (row.fired_by, row.trace, row.unique_key) == ("node-1", trace, "u")
        again = attempts.retried(row, "t6")
        assert again is not None
        assert store.settle_runs([again]) == [True]
        (row,) = self.runs(store)
        ended = attempts.ended_attempts(row)
        assert [(one.number, one.worker, one.outcome, one.error) for one in ended] == past
        assert (row.worker, row.trace) == (None, trace)

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

    def test_a_transition_adds_its_records_in_the_same_step(self, store: Store, clock: VirtualClock) -> None:
        note = Record(kind="audit", key="1", body="cancelled by ann")
        store.add_runs([run("a", run_at=store.now()), run("b", run_at=store.now())])
        first, second = sorted(self.runs(store), key=lambda found: found.id)
        cancel = attempts.cancel(first, clock.now, "t1")
        assert cancel is not None
        cancel = replace(cancel, records=(note,))
        stale = replace(cancel, run="b", attempt=7, token="t2", records=(replace(note, key="2"),))
        again = attempts.cancel(second, clock.now, "t3")
        assert again is not None
        again = replace(again, records=(replace(note, body="other"), replace(note, key="3")))
        assert store.settle_runs([cancel, stale, again]) == [True, False, True]
        assert store.settle_runs([cancel]) == [True]  # its reply was lost
        assert store.find_records("audit") == [note, replace(note, key="3")]

    def test_a_single_transition_with_a_record_and_nothing_else_adds_it(
        self, store: Store, clock: VirtualClock
    ) -> None:
        # Stores take shorter ways for a single transition, and for one that adds nothing.
        store.add_runs([run("a", run_at=store.now())])
        (held,) = self.claim(store)
        note = Record(kind="audit", tenant="acme", key="1", body="done")
        done = replace(attempts.succeeded(held, None, clock.now, "t"), records=(note,))
        assert store.settle_runs([done]) == [True]
        assert store.find_records("audit") == [note]

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
            attempts.released(stale, clock.now, "late-4"),
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
        assert store.settle_runs([attempts.released(held, clock.now, "t")]) == [True]
        (again,) = self.claim(store, "claim-2", worker="w2")
        assert (again.attempt, again.failures, again.crashes, again.worker) == (2, 0, 0, "w2")

    def test_a_run_that_kills_its_workers_ends_as_failed(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=store.now(), execution=Execution(max_crashes=2))])
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

    def test_a_queued_run_is_cancelled_at_once_and_a_running_one_gets_a_request(
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

        def ask(what: Callable[[RunRecord], Transition | None]) -> Transition:
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
        with pytest.raises(InvalidValue, match="-1 is negative"):
            look(-1)
        clock.advance("10s")
        assert look(10) == (["r1", "r2", "r0"], None)

    def test_a_heartbeat_saves_a_run_from_a_reaper_that_read_it_before(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store)
        clock.advance("30s")
        (seen,) = store.lost_runs(clock.now, 10).runs
        assert store.settle_runs([attempts.heartbeat(held, 30_000, "beat")]) == [True]
        assert store.settle_runs([attempts.crashed(seen, clock.now, "reaper")]) == [False]

    def test_the_clock_of_a_fast_reaper_does_not_delay_a_run(self, store: Store, clock: VirtualClock) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        self.claim(store)
        clock.advance("30s")
        (seen,) = store.lost_runs(clock.now, 10).runs
        assert store.settle_runs([attempts.crashed(seen, clock.now + 60 * MINUTE, "reaper")]) == [True]
        assert len(self.claim(store, "claim-2")) == 1

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

    def test_transitions_of_one_run_in_a_batch_see_each_other(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store)
        step = [
            attempts.heartbeat(held, 99_000, "beat"),
            attempts.succeeded(held, "1", clock.now, "first"),
            attempts.succeeded(held, "2", clock.now, "second"),
            attempts.heartbeat(held, 1_000, "late"),
        ]
        assert store.settle_runs(step) == [True, True, False, False]
        (over,) = self.runs(store)
        assert (over.state, over.result, over.settled, over.lease_until) == ("succeeded", "1", "first", None)

    def test_transitions_of_a_batch_apply_in_their_order_also_to_runs_that_they_add(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a")])
        (held,) = self.claim(store)
        following = run("b", state="running", attempt=1)
        answers = store.settle_runs(
            [
                attempts.heartbeat(held, MINUTE, "beat"),
                attempts.succeeded(held, None, clock.now, "end", adds=(following,)),
                attempts.heartbeat(held, 2 * MINUTE, "late"),
                attempts.succeeded(following, "1", clock.now, "end-b"),
            ]
        )
        assert answers == [True, True, False, True]
        found = {entry.id: entry for entry in self.runs(store)}
        assert (found["a"].lease_until, found["a"].settled) == (None, "end")
        assert found["b"] == replace(
            following, state="succeeded", finished_at=clock.now, result="1", settled="end-b"
        )

    def test_a_run_that_a_transition_adds_can_be_settled_in_the_same_batch(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store)
        following = run("b", run_at=clock.now + MINUTE)
        done = attempts.succeeded(held, None, clock.now, "done", adds=(following,))
        dropped = attempts.cancel(following, clock.now, "dropped")
        assert dropped is not None
        assert store.settle_runs([done, dropped]) == [True, True]
        assert {found.id: found.state for found in self.runs(store)} == {"a": "succeeded", "b": "cancelled"}
        clock.advance("1h")
        assert self.claim(store, "claim-2", now=clock.now) == []

    @pytest.mark.parametrize("meanwhile", ["nothing", "changed", "deleted", "made"])
    def test_a_run_is_made_active_again_only_if_its_schedule_is_as_it_was_seen(
        self, store: Store, clock: VirtualClock, meanwhile: str
    ) -> None:
        seen = None if meanwhile == "made" else self.add(store, schedule())
        store.add_runs([run("a", schedule="cleanup", state="failed", run_at=clock.now)])
        (failed,) = self.runs(store)
        retry = attempts.retried(failed, "again", seen)
        assert retry is not None
        if meanwhile == "made":
            self.add(store, schedule(overlap="skip"))
        elif meanwhile != "nothing":
            assert seen is not None
            change = changes.delete(seen, clock.now)
            if meanwhile == "changed":
                changed = changes.change(seen, {"overlap": "skip"}, clock.now)
                assert changed is not None
                change = changed
            assert self.put(store, seen, change).accepted
        accepted = meanwhile == "nothing"
        assert store.settle_runs([retry]) == [accepted]
        assert [found.state for found in self.runs(store)] == ["queued" if accepted else "failed"]
        # A repeated transition that was applied is recognised, also if the schedule has changed.
        if accepted:
            assert seen is not None
            assert self.put(store, seen, changes.delete(seen, clock.now)).accepted
            assert store.settle_runs([retry]) == [True]

    @pytest.mark.parametrize("has_fired", [False, True])
    def test_a_gate_may_ask_that_the_schedule_has_not_fired(
        self, store: Store, clock: VirtualClock, has_fired: bool
    ) -> None:
        seen = self.add(store, schedule())
        store.add_runs([run("a", schedule="cleanup", state="failed", run_at=clock.now)])
        (failed,) = self.runs(store)
        retry = attempts.retried(failed, "again", seen)
        assert retry is not None
        retry = replace(retry, gate_fires=seen.fire_seq)
        if has_fired:
            fired = replace(seen, fire_seq=seen.fire_seq + 1)
            assert self.put(store, seen, Planned(fired)).accepted
        assert store.settle_runs([retry]) == [not has_fired]
        # A user who has not seen the run become active can't write.
        assert store.settle_runs([retry]) == [not has_fired]
        assert not self.put(store, seen, changes.pause(seen, clock.now)).accepted
        (row,) = store.find_schedules(ScheduleQuery()).items
        assert row.fire_seq == seen.fire_seq + 1
        assert store.settle_runs([replace(retry, gate_fires=None, token="other")]) == [has_fired]
        assert store.find_schedules(ScheduleQuery()).items == (row,)

    def test_a_gate_applies_to_its_own_transition_also_in_a_batch(
        self, store: Store, clock: VirtualClock
    ) -> None:
        seen = self.add(store, schedule())
        failed = run("failed", schedule="cleanup", state="failed", run_at=clock.now)
        store.add_runs([failed, run("other", run_at=clock.now)])
        (held,) = self.claim(store)
        retry = attempts.retried(failed, "again", seen)
        assert retry is not None
        assert self.put(store, seen, changes.change(seen, {"overlap": "skip"}, clock.now)).accepted
        done = attempts.succeeded(held, None, clock.now, "done")
        assert store.settle_runs([done, retry]) == [True, False]
        states = {found.id: found.state for found in self.runs(store)}
        assert states == {"failed": "failed", "other": "succeeded"}

    def test_a_run_whose_lease_was_renewed_is_lost_when_the_new_lease_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", run_at=clock.now)])
        (held,) = self.claim(store, lease=10_000)
        assert store.settle_runs([attempts.heartbeat(held, 20_000, "beat")]) == [True]
        clock.advance("15s")
        assert store.lost_runs(clock.now, 10) == Lost((), clock.now + 5_000)
        clock.advance("5s")
        assert [found.id for found in store.lost_runs(clock.now, 10).runs] == ["a"]

    def test_a_run_of_a_schedule_that_never_was_is_made_active_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        store.add_runs([run("a", schedule="ghost", state="cancelled", run_at=clock.now)])
        (over,) = self.runs(store)
        retry = attempts.retried(over, "again", None)
        assert retry is not None
        assert store.settle_runs([retry]) == [True]
        assert [found.state for found in self.runs(store)] == ["queued"]

    def test_more_than_a_database_takes_at_once_is_added_and_settled(
        self, store: Store, clock: VirtualClock
    ) -> None:
        text = f'"{"x" * 700_000}"'
        wanted = [run(f"r{at:02}", run_at=clock.now, created_at=clock.now, payload=text) for at in range(20)]
        assert store.add_runs(wanted) == [True] * 20
        assert store.add_runs(wanted) == [False] * 20
        held = self.claim(store)
        assert [entry.id for entry in held] == [entry.id for entry in wanted]
        ends = [attempts.succeeded(entry, text, clock.now, f"t-{entry.id}") for entry in held]
        assert store.settle_runs(ends) == [True] * 20
        assert store.settle_runs(ends) == [True] * 20
        found = self.runs(store)
        assert [(entry.state, entry.result) for entry in found] == [("succeeded", text)] * 20

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
