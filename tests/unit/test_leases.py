"""The lease renewer: renews leases, passes on cancel requests, ends timeouts, stores logs."""

from __future__ import annotations

import time

import pytest

from evenbeat.core.records import Execution
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Outcome
from evenbeat.node.lanes import LONGEST_WAIT
from evenbeat.node.leases import GRACE
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery
from tests.unit.workbench import PickySettle, TimedWorkbench, Workbench, attempt_of, result


def test_leases_are_renewed_together_when_one_is_past_a_third() -> None:
    bench = Workbench(slots=2, lease=30_000)
    bench.add("a")
    bench.add("b")
    bench.step()
    for attempt in bench.executor.running:
        attempt.lease_end -= 9
    bench.renew()
    assert bench.run("a").lease_until == bench.clock.now + 30_000  # as claimed: not yet
    bench.clock.advance("10s")
    bench.executor.running[0].lease_end -= 2
    bench.renew()
    assert [bench.run(name).lease_until for name in "ab"] == [bench.clock.now + 30_000] * 2


def test_a_function_is_notified_of_a_lost_lease_and_its_result_is_ignored() -> None:
    bench = Workbench(lease=30_000)
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    assert attempt.context.holds_lease()
    bench.clock.advance("31s")
    attempt.lease_end -= 31
    bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")])
    bench.renew()
    assert not attempt.context.holds_lease()
    assert attempt.context.cancel_requested
    assert bench.executor.interrupted == [("r", "lost")]
    bench.worker.drain()
    bench.step()
    # The worker does not wait for the function to obey.
    assert (bench.worker.held, bench.kinds()) == ({}, ["started", "lost"])
    bench.executor.end(result("late"))
    bench.step()
    assert bench.run("r").result is None
    assert bench.kinds() == ["started", "lost"]


def test_past_the_lease_the_worker_asks_the_store_whether_it_still_holds_the_run() -> None:
    bench = Workbench(lease=30_000)
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    attempt.lease_end -= 60  # the lease renewer was blocked
    assert attempt.context.holds_lease()  # no other worker took the run
    bench.clock.advance("31s")
    bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")])
    assert not attempt.context.holds_lease()


def test_a_lease_that_expired_while_the_machine_was_suspended_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Workbench(lease=30_000)
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    assert attempt.context.holds_lease()
    # As if CLOCK_MONOTONIC had stood still.
    boot_time = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: boot_time(clock) + 3_600 * 10**9)
    bench.clock.advance("1h")
    bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")])
    assert not attempt.context.holds_lease()


def test_a_lease_is_renewed_at_once_after_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(lease=30_000)
    bench.add("r")
    bench.step()
    boot_time = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: boot_time(clock) + 20 * 10**9)
    bench.clock.advance("20s")
    bench.renew()
    assert bench.run("r").lease_until == bench.clock.now + 30_000


def test_an_unavailable_store_at_the_end_of_a_lease_stops_no_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Workbench(lease=30_000)
    seconds = bench.count_seconds()
    bench.add("r")
    bench.step()
    run = bench.executor.running[0].context
    seconds[0] += 31
    asked: list[object] = []

    def away(query: RunQuery) -> object:
        asked.append(query)
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "find_runs", away)
        run.raise_if_cancelled()
        run.raise_if_cancelled()
        assert not run.holds_lease()  # the store does not answer
        assert len(asked) == 1  # each query may take as long as the store's timeout
        seconds[0] += 2
        run.raise_if_cancelled()
    seconds[0] += 2
    assert run.holds_lease()
    assert bench.executor.interrupted == []


def test_an_expired_lease_is_renewed_if_no_other_worker_took_the_run() -> None:
    bench = Workbench(lease=30_000)
    seconds = bench.count_seconds()
    bench.add("r")
    bench.step()
    bench.clock.advance("40s")
    seconds[0] += 40
    bench.renew()
    assert bench.run("r").lease_until == bench.clock.now + 30_000
    assert bench.executor.interrupted == []


def test_short_leases_are_checked_often_enough() -> None:
    bench = Workbench(lease=1_000)
    bench.add("r")
    bench.step()
    due = bench.renew()
    assert due is not None
    assert due - bench.clock.now <= 1_000 / 12


def test_an_attempt_that_exceeds_its_timeout_fails_and_its_later_result_is_ignored() -> None:
    bench = Workbench(slots=1)
    bench.add("r", Execution(timeout=1_000))
    bench.add("s")
    bench.step()
    attempt = bench.executor.running[0]
    bench.renew()
    assert not attempt.context.cancel_requested
    assert attempt.began is not None
    attempt.began -= 1
    bench.renew()
    bench.step()
    assert bench.executor.interrupted == [("r", "timeout")]
    assert bench.run("r").state == "running"  # the function gets some time to end by itself
    assert attempt.overdue is not None
    attempt.overdue -= GRACE
    bench.renew()
    bench.step()
    run = bench.run("r")
    assert (run.state, run.error) == ("failed", "timed out after 1s")
    assert bench.executor.interrupted == [("r", "timeout")]
    assert bench.run("s").state == "queued"  # its thread is still taken
    bench.executor.end(result("late"))
    bench.step()
    assert bench.run("r").state == "failed"
    assert bench.run("s").state == "running"


def test_a_cancel_request_reaches_the_function_and_the_run_ends_as_cancelled() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.ask_to_cancel("r")
    attempt = bench.executor.running[0]
    attempt.claimed -= 2
    bench.renew()
    assert attempt.context.cancel_requested
    bench.executor.end(Outcome("stopped", error="cancelled"))
    bench.step()
    assert bench.run("r").state == "cancelled"


def test_a_cancelled_run_that_returns_nevertheless_has_succeeded() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.ask_to_cancel("r")
    bench.executor.running[0].claimed -= 2
    bench.renew()
    bench.executor.end(result("done"))
    bench.step()
    assert bench.run("r").state == "succeeded"


def test_a_cancelled_run_that_ignores_the_request_still_times_out() -> None:
    bench = Workbench()
    bench.add("r", Execution(timeout=1_000))
    bench.step()
    bench.ask_to_cancel("r")
    attempt = bench.executor.running[0]
    attempt.claimed -= 2
    bench.renew()
    assert attempt.control.cancel_reason == "cancelled"
    assert attempt.began is not None
    attempt.began -= 2
    bench.renew()
    assert attempt.overdue is not None
    attempt.overdue -= GRACE
    bench.renew()
    bench.step()
    assert bench.run("r").state == "cancelled"


def test_a_run_that_was_cancelled_and_handed_back_is_cancelled_and_not_begun_again() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.ask_to_cancel("r")
    bench.store.settle_runs([attempts.released(bench.run("r"), bench.clock.now, "stopping worker")])
    other = Workbench()
    other.store = bench.store
    other.worker._store = bench.store
    other.step()
    assert other.executor.running == []
    other.step()
    assert bench.run("r").state == "cancelled"


def test_a_run_that_was_claimed_ahead_and_has_to_wait_is_handed_back() -> None:
    bench = Workbench(slots=1)
    bench.claim_ahead()
    bench.add("long")
    bench.add("short")
    bench.step()
    assert bench.run("short").state == "running"
    for attempt in bench.worker.held.values():
        attempt.claimed -= 2
    bench.renew()
    bench.worker._draining = True  # so that it is not claimed again by the same step
    bench.step()
    assert bench.run("short").state == "queued"
    assert bench.run("long").state == "running"


def test_log_lines_of_a_long_run_are_stored_while_it_runs() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    attempt.context.log("halfway")
    attempt.claimed -= 2
    bench.renew()
    assert [chunk.text for chunk in bench.store.read_log("r")] == ["halfway"]
    attempt.context.log("done")
    bench.executor.end()
    bench.step()
    assert [chunk.text for chunk in bench.store.read_log("r")] == ["halfway", "done"]


def test_log_lines_that_could_not_be_stored_are_stored_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    attempt.context.log("halfway")
    attempt.claimed -= 2

    def away(chunks: object) -> None:
        raise StoreUnavailable("locked")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "append_log", away)
        with pytest.raises(StoreUnavailable):
            bench.renew()
    bench.executor.end()
    bench.step()
    assert [chunk.text for chunk in bench.store.read_log("r")] == ["halfway"]


def test_the_lease_renewer_sleeps_while_no_run_is_held() -> None:
    assert Workbench().renew() is None


def test_a_refused_heartbeat_after_the_end_of_a_run_is_not_a_lost_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Workbench()
    seconds = bench.count_seconds()
    bench.add("r")
    bench.step()
    held = list(bench.worker.held.values())
    # Given up while its function still runs: the end is recorded just before the heartbeat is sent.
    bench.worker.give_up(held[0], "timeout")
    bench.step()
    seconds[0] += 20
    bench.renewer._renew(held, seconds[0])
    assert bench.executor.interrupted == []
    assert "the lease of a run was lost" not in caplog.messages
    assert "lost" not in bench.kinds()


def test_a_heartbeat_that_can_not_be_written_costs_no_other_run_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Workbench(slots=2)
    seconds = bench.count_seconds()
    bench.add("a")
    bench.add("b")
    bench.step()
    monkeypatch.setattr(bench.store, "settle_runs", PickySettle(bench, poison=("a",)))
    bench.clock.advance("11s")
    seconds[0] += 11
    bench.renew()
    assert bench.run("b").lease_until == bench.clock.now + 30_000
    assert bench.executor.interrupted == [("a", "lost")]


# -- with a clock of its own ---------------------------------------------------------------------------------


@pytest.fixture
def timed() -> TimedWorkbench:
    return TimedWorkbench()


def test_a_lease_is_renewed_at_a_third_together_with_those_past_a_sixth() -> None:
    timed = TimedWorkbench(slots=3)
    for name, wait in (("a", 4.0), ("b", 5.0), ("c", 0.0)):
        timed.add(name)
        timed.step()
        timed.wait(wait)
    start = timed.clock.now
    timed.renew()
    assert timed.run("a").lease_until == start - 9_000 + 30_000
    timed.wait(1.0)
    timed.renew()
    # 10 s old, 6 s and 1 s: the youngest has more than five sixths left.
    assert [timed.run(name).lease_until for name in "ab"] == [timed.clock.now + 30_000] * 2
    assert timed.run("c").lease_until == start + 30_000
    assert attempt_of(timed, "a").lease_end == timed.seconds + 30
    before = timed.run("a").lease_until
    timed.wait(8.0)
    timed.renew()
    assert timed.run("a").lease_until == before


def test_a_run_that_waits_for_a_slot_is_handed_back_after_the_longest_wait_and_not_before() -> None:
    timed = TimedWorkbench(slots=1)
    lane = timed.worker._lanes["thread"]
    lane._rate, lane._since = 1_000.0, timed.seconds
    timed.add("long", "short")
    timed.step()
    timed.wait(LONGEST_WAIT)
    timed.renew()
    assert not timed.worker._outcomes
    timed.wait(0.01)
    timed.renew()
    assert [(attempt.run.id, outcome.kind) for attempt, outcome in timed.worker._outcomes] == [
        ("short", "released")
    ]


def test_leases_are_checked_every_quarter_of_a_second_and_more_often_if_they_are_short() -> None:
    for lease, pause in ((30_000, 250), (3_000, 250), (1_200, 100)):
        timed = TimedWorkbench(lease=lease)
        assert timed.renew() is None
        timed.add("r")
        timed.step()
        assert timed.renew() == timed.clock.now + pause


def test_a_timeout_ends_an_attempt_at_its_time_and_once(timed: TimedWorkbench) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    timed.wait(1.499)
    timed.renew()
    assert timed.executor.interrupted == []
    timed.wait(0.001)
    timed.renew()
    timed.renew()
    assert timed.executor.interrupted == [("r", "timeout")]
    timed.wait(GRACE - 0.25)
    timed.renew()
    timed.step()
    assert timed.run().state == "running"
    timed.wait(0.25)
    timed.renew()
    timed.step()
    assert (timed.run().state, timed.run().error) == ("failed", "timed out after 1s500ms")
    assert timed.executor.interrupted == [("r", "timeout")]


def test_a_function_that_returns_after_its_timeout_has_succeeded_and_is_not_repeated(
    timed: TimedWorkbench,
) -> None:
    timed.add("r", execution=Execution(timeout=1_500, retries=3))
    timed.step()
    timed.wait(1.5)
    timed.renew()
    timed.step()
    timed.wait(2.5)
    timed.executor.end(Outcome("returned", '"paid"'))
    timed.step()
    run = timed.run()
    assert (run.state, run.result, run.attempt, run.failures) == ("succeeded", '"paid"', 1, 0)
    assert timed.emitted[-2 if timed.emitted[-1].kind == "idle" else -1].kind == "succeeded"


def test_an_error_that_a_function_raises_after_its_timeout_comes_second(timed: TimedWorkbench) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    timed.wait(1.5)
    timed.renew()
    timed.executor.end(Outcome("raised", error="ConnectionError: closed\n\nin client.py"))
    timed.step()
    error = "timed out after 1s500ms\n\nConnectionError: closed\n\nin client.py"
    assert (timed.run().state, timed.run().error) == ("failed", error)


def test_cancel_requests_are_queried_once_a_second_and_passed_on_once(timed: TimedWorkbench) -> None:
    timed.add("r", "s")
    timed.step()
    request = attempts.cancel(timed.run(), timed.clock.now, "user")
    assert request is not None
    timed.store.settle_runs([request])
    timed.wait(0.875)
    timed.renew()
    assert timed.executor.interrupted == []
    timed.wait(0.125)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled")]
    request = attempts.cancel(timed.run("s"), timed.clock.now, "another")
    assert request is not None
    timed.store.settle_runs([request])
    timed.wait(0.875)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled")]
    timed.wait(0.125)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled"), ("s", "cancelled")]
    timed.worker.drain()
    timed.executor.end(result("all the same"))
    timed.step()
    assert timed.run().state == "succeeded"
