"""What an attempt's end becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenbeat.core.json_text import with_attempt
from evenbeat.core.records import AttemptRecord, Execution, RunRecord, ScheduleRecord, Transition
from evenbeat.rules import attempts

T = 1_772_366_400_000


def running(**fields: Any) -> RunRecord:
    standard = {"id": "r", "task": "work", "state": "running", "attempt": 2, "worker": "w", "lease_until": T}
    return RunRecord(**{**standard, **fields})


def test_success_ends_the_run_and_is_counted() -> None:
    done = attempts.succeeded(running(schedule="s", tenant="acme"), "1", T, "t")
    assert (done.state, done.result, done.finished_at, done.lease) == ("succeeded", "1", T, None)
    assert (done.expect, done.attempt, done.token) == (("running",), 2, "t")
    assert done.counts is not None
    assert (done.counts.run_count, done.counts.success_count, done.counts.last_success) == (1, 1, T)
    assert done.wakes == ("acme", "s")


def test_a_run_without_a_schedule_is_not_counted() -> None:
    done = attempts.succeeded(running(), None, T, "t")
    assert (done.counts, done.wakes) == (None, None)


def test_failed_attempts_are_retried_with_doubling_waits_and_then_the_run_fails() -> None:
    policy = Execution(retries=3, backoff=1000, max_backoff=3000)
    waits = []
    for failures in range(3):
        again = attempts.failed(running(execution=policy, failures=failures), "boom", T, "t")
        assert (again.state, again.failures, again.counts) == ("queued", failures + 1, None)
        assert isinstance(again.delay, int)
        waits.append(again.delay)
    # Up to a tenth less, so that runs that failed together are not retried together.
    for wait, most in zip(waits, [1000, 2000, 3000], strict=True):
        assert most * 0.9 <= wait <= most
    dead = attempts.failed(running(execution=policy, failures=3, schedule="s"), "boom", T, "t")
    assert (dead.state, dead.failures, dead.error) == ("failed", 4, "boom")
    assert dead.counts is not None
    assert (dead.counts.failure_count, dead.counts.last_error) == (1, "boom")


def test_every_node_computes_the_same_backoff_for_a_run_and_other_ones_for_others() -> None:
    policy = Execution(retries=1, backoff=100_000)
    waits = {attempts.backoff(running(id=f"r{at}", execution=policy), 1) for at in range(50)}
    assert len(waits) > 25
    assert attempts.backoff(running(execution=policy), 1) == attempts.backoff(running(execution=policy), 1)


def test_a_payload_that_does_not_fit_is_handed_back_for_some_minutes_and_then_uses_the_retries() -> None:
    run = running(attempt=1, execution=Execution(retries=1), failures=0)
    waits = []
    while (end := attempts.unfit(run, "does not fit", T, "t")).failures is msgspec.UNSET:
        assert (end.state, end.crashes, end.error) == ("queued", msgspec.UNSET, "does not fit")
        assert isinstance(end.delay, int)
        waits.append(end.delay)
        assert isinstance(end.earlier, str)
        run = msgspec.structs.replace(run, attempt=run.attempt + 1, earlier=end.earlier)
    assert len(waits) == attempts.MOST_HAND_BACKS
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits == sorted(waits)
    assert 120_000 < sum(waits) < 600_000
    # From here on it counts as any other failure.
    assert (end.state, end.failures) == ("queued", 1)
    run = msgspec.structs.replace(run, attempt=run.attempt + 1, failures=1)
    end = attempts.unfit(run, "does not fit", T, "t")
    assert (end.state, end.failures) == ("failed", 2)


def test_only_payloads_that_did_not_fit_count_as_such() -> None:
    run = running(attempt=1, execution=Execution(retries=20))
    ends: list[Callable[[RunRecord], Transition]] = [
        *[lambda run: attempts.failed(run, "no", T, "t")] * 5,
        *[lambda run: attempts.released(run, T, "t")] * 5,
        *[lambda run: attempts.again(run, 1, "not yet", T, "t")] * 5,
        *[lambda run: attempts.unfit(run, "does not fit", T, "t")] * 2,
    ]
    for end_attempt in ends:
        end = end_attempt(run)
        assert isinstance(end.earlier, str)
        run = msgspec.structs.replace(run, attempt=run.attempt + 1, earlier=end.earlier)
    end = attempts.unfit(run, "does not fit", T, "t")
    assert (end.state, end.delay, end.failures) == ("queued", 4_000, msgspec.UNSET)


def test_a_cancelled_run_whose_payload_does_not_fit_is_cancelled() -> None:
    assert attempts.unfit(running(cancel_requested=True), "does not fit", T, "t").state == "cancelled"


@pytest.mark.parametrize("failures", [1, 10, 1000, 10**6])
def test_the_backoff_stays_bounded_after_any_number_of_failures(failures: int) -> None:
    policy = Execution(retries=10**6, backoff=1, max_backoff=60_000)
    assert attempts.backoff(running(execution=policy), failures) <= 60_000


def test_a_long_error_is_cut() -> None:
    dead = attempts.failed(running(), "x" * 100_000, T, "t")
    assert isinstance(dead.error, str)
    assert len(dead.error) == 10_000


def test_an_error_with_a_lone_surrogate_can_be_stored() -> None:
    dead = attempts.failed(running(schedule="s"), "bad \ud800 text", T, "t")
    assert dead.error == "bad ? text"
    assert dead.counts is not None
    assert dead.counts.last_error == "bad ? text"


def test_a_crashed_run_is_queued_again_without_using_a_retry_up_to_max_crashes() -> None:
    again = attempts.crashed(running(crashes=2, failures=1), T, "t")
    assert (again.state, again.crashes, again.delay) == ("queued", 3, 0)
    assert again.failures is msgspec.UNSET
    dead = attempts.crashed(running(crashes=3), T, "t")
    assert (dead.state, dead.crashes) == ("failed", 4)
    assert dead.error == "worker w was lost during attempt 2"


def test_a_crashed_run_fails_at_once_with_on_crash_fail() -> None:
    dead = attempts.crashed(running(execution=Execution(on_crash="fail")), T, "t")
    assert dead.state == "failed"


def test_a_crash_of_a_run_that_was_to_be_cancelled_cancels_it() -> None:
    assert attempts.crashed(running(cancel_requested=True), T, "t").state == "cancelled"


def test_a_released_run_counts_neither_a_failure_nor_a_crash() -> None:
    back = attempts.released(running(), T, "t")
    assert (back.state, back.delay, back.worker, back.lease) == ("queued", 0, None, None)
    assert back.failures is back.crashes is msgspec.UNSET


def test_cancelling_depends_on_the_state_of_the_run() -> None:
    queued = attempts.cancel(running(state="queued"), T, "t")
    assert queued is not None
    assert (queued.state, queued.expect) == ("cancelled", ("queued",))
    request = attempts.cancel(running(), T, "t")
    assert request is not None
    assert (request.state, request.cancel_requested) == (msgspec.UNSET, True)
    for state in ("succeeded", "failed", "cancelled"):
        assert attempts.cancel(running(state=state), T, "t") is None


def test_only_a_failed_or_cancelled_run_can_be_retried_by_hand() -> None:
    for state in ("failed", "cancelled"):
        again = attempts.retried(running(state=state, failures=4, crashes=2), "t")
        assert again is not None
        assert (again.state, again.failures, again.crashes, again.expect) == ("queued", 0, 0, (state,))
        assert again.renews
        assert again.gate is None
    for state in ("queued", "running", "succeeded"):
        assert attempts.retried(running(state=state), "t") is None


def test_a_retry_of_a_scheduled_run_is_gated_by_the_version_of_its_schedule() -> None:
    run = running(state="failed", tenant="acme", schedule="s", generation=1)
    row = ScheduleRecord(tenant="acme", name="s", task="work", trigger="every 1m", generation=3, revision=7)
    again = attempts.retried(run, "t", row)
    assert again is not None
    assert again.gate == ("acme", "s", 3, 7)
    never_was = attempts.retried(run, "t", None)
    assert never_was is not None
    assert never_was.gate == ("acme", "s", 0, 0)


@pytest.mark.parametrize("bound", [{"overlap": "queue"}, {"overlap": "skip"}, {"max_concurrent": 2}])
def test_a_run_of_a_schedule_that_bounds_its_runs_is_not_retried(bound: dict[str, Any]) -> None:
    run = running(state="failed", schedule="s")
    row = ScheduleRecord(name="s", task="work", trigger="every 1m", **bound)
    assert attempts.retried(run, "t", row) is None
    gone = attempts.retried(run, "t", replace(row, state="deleted"))
    assert gone is not None
    assert gone.gate == ("default", "s", 1, 1)


def test_a_heartbeat_changes_only_the_lease() -> None:
    beat = attempts.heartbeat(running(), 5000, "t")
    assert beat.lease == 5000
    assert beat.state is msgspec.UNSET
    assert beat.expect == ("running",)


# -- when it was running -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "was"),
    [
        (None, None, True),
        (T, T + 1, True),
        (T - 10, T, False),
        (None, T, False),
        (T + 10, None, True),
        (T + 11, None, False),
        (T + 3, T + 4, True),
    ],
)
def test_a_run_was_running_from_its_start_to_its_end(since: int | None, until: int | None, was: bool) -> None:
    over = running(state="succeeded", started_at=T, finished_at=T + 10)
    assert attempts.was_running(over, since, until) is was


def test_a_run_that_is_running_has_no_end_yet() -> None:
    now = running(started_at=T)
    assert attempts.was_running(now, T + 1_000_000, None)
    assert not attempts.was_running(now, None, T)


def test_a_run_was_running_with_each_of_its_attempts_and_not_while_it_waited() -> None:
    first = AttemptRecord(1, "w", T, T + 10, "failed")
    second = AttemptRecord(2, "w", T + 100, T + 110, "handed back")
    earlier = with_attempt(with_attempt(None, first), second)
    waits = running(state="queued", worker=None, started_at=T + 100, earlier=earlier)
    assert attempts.was_running(waits, T, T + 1)
    assert attempts.was_running(waits, T + 110, T + 111)
    assert not attempts.was_running(waits, T + 11, T + 100)
    assert not attempts.was_running(waits, T + 111, None)
    # Cancelled while it waited: it ended then, too.
    cancelled = replace(waits, state="cancelled", finished_at=T + 200)
    assert attempts.was_running(cancelled, T + 111, None)
    assert not attempts.was_running(cancelled, T + 201, None)
    assert not attempts.was_running(cancelled, T + 111, T + 200)


def test_a_run_that_never_began_was_not_running_but_ends_when_it_is_cancelled() -> None:
    waits = running(state="queued", worker=None, attempt=0)
    assert not attempts.was_running(waits, None, None)
    assert attempts.was_running(replace(waits, state="cancelled", finished_at=T), T, T + 1)


@pytest.mark.parametrize(
    ("fields", "is_retrying"),
    [
        ({"state": "queued", "failures": 1}, True),
        ({"state": "queued", "crashes": 1}, False),
        ({"state": "running", "failures": 1}, False),
        ({"state": "failed", "failures": 1}, False),
    ],
)
def test_a_run_is_retrying_if_it_failed_and_waits(fields: dict[str, Any], is_retrying: bool) -> None:
    assert attempts.is_retrying(running(**fields)) is is_retrying
