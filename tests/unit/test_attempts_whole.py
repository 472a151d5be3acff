"""Every transition as a whole: what an attempt's end changes, and that it changes nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenbeat.core.json_text import read_attempts, with_attempt
from evenbeat.core.records import (
    EARLIER_ERROR,
    EARLIER_KEPT,
    AttemptOutcome,
    AttemptRecord,
    Execution,
    RunRecord,
    ScheduleRecord,
    Statistics,
    Transition,
)
from evenbeat.rules import attempts

T = 1_772_366_400_000


def running(**fields: Any) -> RunRecord:
    standard: dict[str, Any] = {
        "id": "r",
        "task": "work",
        "tenant": "acme",
        "schedule": "s",
        "state": "running",
        "attempt": 5,
        "failures": 1,
        "crashes": 2,
        "worker": "w",
        "started_at": T - 9,
        "lease_until": T,
    }
    return RunRecord(**{**standard, **fields})


def counted(**fields: Any) -> Statistics:
    return Statistics(tenant="acme", schedule="s", run_count=1, last_run=T, **fields)


def transition(**fields: Any) -> Transition:
    return Transition(run="r", attempt=5, claim=None, **{"expect": ("running",), "token": "t", **fields})


def ended(**fields: Any) -> Transition:
    return transition(
        **{
            "finished_at": T,
            "lease": None,
            "result": None,
            "error": None,
            "failures": 1,
            "crashes": 2,
            "wakes": ("acme", "s"),
            **fields,
        }
    )


def queued(outcome: AttemptOutcome, why: str | None = None, number: int = 5, **fields: Any) -> Transition:
    earlier = with_attempt(None, AttemptRecord(number, "w", T - 9, T, outcome, why))
    standard = {"state": "queued", "delay": 0, "worker": None, "lease": None, "earlier": earlier}
    return transition(**{**standard, **fields})


def test_a_heartbeat() -> None:
    assert attempts.heartbeat(running(), 30_000, "t") == transition(lease=30_000)


def test_a_success() -> None:
    counts = counted(success_count=1, last_success=T)
    follows = (RunRecord(id="next", task="work"),)
    expected = ended(state="succeeded", result="1", counts=counts, adds=follows)
    assert attempts.succeeded(running(), "1", T, "t", follows) == expected
    assert attempts.succeeded(running(), "1", T, "t") == replace(expected, adds=())
    alone = running(schedule=None)
    assert attempts.succeeded(alone, "1", T, "t") == replace(expected, adds=(), counts=None, wakes=None)


def test_a_final_failure_and_one_that_is_retried() -> None:
    counts = counted(failure_count=1, last_failure=T, last_error="boom")
    dead = ended(state="failed", error="boom", failures=2, counts=counts)
    assert attempts.failed(running(execution=Execution(retries=1)), "boom", T, "t") == dead
    again = running(execution=Execution(retries=2, backoff=1_000))
    expected = queued("failed", "boom", failures=2, error="boom", delay=attempts.backoff(again, 2))
    assert attempts.failed(again, "boom", T, "t") == expected


def test_a_run_that_was_cancelled_however_its_attempt_ended() -> None:
    expected = ended(state="cancelled", counts=counted())
    asked = running(cancel_requested=True, execution=Execution(retries=9))
    assert attempts.cancelled(running(), T, "t") == expected
    assert attempts.failed(asked, "boom", T, "t") == expected
    assert attempts.unfit(asked, "boom", T, "t") == expected
    assert attempts.crashed(asked, T, "t") == replace(expected, lease_ended=True)


def test_a_payload_that_does_not_fit() -> None:
    # How many attempts before did not fit, and the wait.
    error = "no such argument"
    for before, wait in ((0, 1_000), (1, 2_000), (5, 32_000), (6, 60_000), (9, 60_000)):
        earlier = unfit_before(before)
        run = running(attempt=before + 1, execution=Execution(retries=1), earlier=earlier)
        last = AttemptRecord(before + 1, "w", T - 9, T, "handed back", error)
        expected = queued("handed back", delay=wait, error=error, earlier=with_attempt(earlier, last))
        assert attempts.unfit(run, error, T, "t") == replace(expected, attempt=before + 1)
    run = running(attempt=11, execution=Execution(retries=2, backoff=77), earlier=unfit_before(10))
    assert attempts.unfit(run, "boom", T, "t") == attempts.failed(run, "boom", T, "t")


def unfit_before(count: int) -> str | None:
    """Return so many attempts that did not fit."""
    earlier: str | None = None
    for number in range(1, count + 1):
        earlier = with_attempt(earlier, AttemptRecord(number, "w", 0, 0, "handed back", "InvalidValue: no"))
    return earlier


def test_a_task_that_asks_to_run_again() -> None:
    why = "the task asked to run again after 1m30s: not yet"
    assert attempts.again(running(), 90_000, "not yet", T, "t") == queued("handed back", why, delay=90_000)
    alone = queued("handed back", "the task asked to run again after 1s", delay=1_000)
    assert attempts.again(running(), 1_000, "", T, "t") == alone
    cancelled = attempts.again(running(cancel_requested=True), 1_000, "", T, "t")
    assert cancelled == attempts.cancelled(running(), T, "t")


def test_a_run_that_expired() -> None:
    error = "expired: it had not started by 2026-03-01T12:00:00Z, 1m after its planned start"
    run = running(scheduled_at=T - 60_000, execution=Execution(expires=60_000))
    assert attempts.expires_at(run) == T
    assert [attempts.is_expired(run, now) for now in (T - 1, T)] == [False, True]
    assert attempts.expired(run, T, "t") == ended(state="cancelled", error=error, counts=counted())
    waiting = replace(run, state="queued")
    assert attempts.expired(waiting, T, "t").expect == ("queued",)
    assert attempts.was_expired(replace(run, state="cancelled", error=error))
    assert not attempts.was_expired(replace(run, state="failed", error=error))
    never = replace(run, execution=Execution())
    assert (attempts.expires_at(never), attempts.is_expired(never, T)) == (None, False)


def test_an_error_that_must_not_be_retried() -> None:
    run = running(execution=Execution(retries=9))
    error = "boom\n\nnot retried: give_up_on names ValueError"
    counts = counted(failure_count=1, last_failure=T, last_error=error)
    dead = ended(state="failed", error=error, failures=2, counts=counts)
    assert attempts.failed(run, "boom", T, "t", "give_up_on names ValueError") == dead


def test_a_crash() -> None:
    counts = counted(failure_count=1, last_failure=T, last_error="worker w was lost during attempt 5")
    lost = ended(
        state="failed", error="worker w was lost during attempt 5", crashes=3, counts=counts, lease_ended=True
    )
    assert attempts.crashed(running(execution=Execution(max_crashes=2)), T, "t") == lost
    assert attempts.crashed(running(execution=Execution(max_crashes=9, on_crash="fail")), T, "t") == lost
    why = replace(lost, error="killed", counts=replace(counts, last_error="killed"))
    assert attempts.crashed(running(execution=Execution(max_crashes=2)), T, "t", "killed") == why
    again = queued("lost", crashes=3, lease_ended=True)
    assert attempts.crashed(running(execution=Execution(max_crashes=3)), T, "t") == again
    killed = queued("lost", "killed", crashes=3, lease_ended=True)
    assert attempts.crashed(running(execution=Execution(max_crashes=3)), T, "t", "killed") == killed


def test_a_release() -> None:
    assert attempts.released(running(), T, "t") == queued("handed back")


def test_a_cancel_request() -> None:
    assert attempts.cancel(running(), T, "t") == transition(cancel_requested=True)
    waiting = running(state="queued")
    assert attempts.cancel(waiting, T, "t") == ended(state="cancelled", expect=("queued",), counts=counted())
    for state in ("succeeded", "failed", "cancelled"):
        assert attempts.cancel(running(state=state), T, "t") is None


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_retry_by_hand(state: str) -> None:
    over = running(state=state, finished_at=T, error="boom")
    last = AttemptRecord(5, "w", T - 9, T, state, "boom")  # type: ignore[arg-type]  # one of the two
    expected = transition(
        expect=(state,),
        state="queued",
        delay=0,
        failures=0,
        crashes=0,
        cancel_requested=False,
        finished_at=None,
        error=None,
        worker=None,
        earlier=with_attempt(None, last),
        renews=True,
        gate=("acme", "s", 0, 0),
    )
    assert attempts.retried(over, "t") == expected
    alone = replace(over, schedule=None)
    assert attempts.retried(alone, "t") == replace(expected, gate=None)
    row = ScheduleRecord(name="s", task="work", trigger="* * * * *", generation=3, revision=8)
    assert attempts.retried(over, "t", row) == replace(expected, gate=("acme", "s", 3, 8))
    bounded = replace(row, overlap="skip")
    assert attempts.retried(over, "t", bounded) is None
    gone = replace(bounded, state="deleted")
    assert attempts.retried(over, "t", gone) == replace(expected, gate=("acme", "s", 3, 8))
    for active in ("queued", "running", "succeeded"):
        assert attempts.retried(running(state=active), "t") is None


def test_a_backoff_is_shortened_by_up_to_a_tenth() -> None:
    policy = Execution(backoff=10_000, max_backoff=35_000)
    for failures, most in ((1, 10_000), (2, 20_000), (3, 35_000), (4, 35_000), (60, 35_000)):
        found = {attempts.backoff(running(id=f"r{at}", execution=policy), failures) for at in range(300)}
        assert most * 0.9 < min(found) < most * 0.91
        assert most * 0.99 < max(found) <= most
    one = running(execution=policy)
    assert attempts.backoff(one, 3) != attempts.backoff(one, 4)
    assert attempts.backoff(running(id="\ud800", execution=policy), 1) > 0  # a row that another program wrote
    long = running(execution=Execution(backoff=1_000_000, max_backoff=10**9))
    assert [attempts.backoff(long, failures) for failures in (1, 2)] == [909_400, 1_991_000]


def test_a_stored_error_is_cut_and_has_no_lone_surrogates() -> None:
    run = running(execution=Execution(retries=0))
    for error, kept in (
        ("", ""),
        ("x" * 10_000, "x" * 10_000),
        ("x" * 10_001, "x" * 10_000),
        ("\ud800a", "?a"),
    ):
        dead = attempts.failed(run, error, T, "t")
        assert dead.counts is not None
        assert dead.error == dead.counts.last_error == kept
        assert attempts.failed(running(execution=Execution(retries=9)), error, T, "t").error == kept
        assert attempts.unfit(running(attempt=1), error, T, "t").error == kept


def test_the_attempts_that_have_ended() -> None:
    first = AttemptRecord(1, "v", T - 90, T - 80, "lost")
    waiting = running(state="queued", worker=None, earlier=with_attempt(None, first))
    assert attempts.ended_attempts(waiting) == (first,)
    assert attempts.ended_attempts(replace(waiting, state="running", worker="w")) == (first,)
    over = replace(waiting, state="failed", worker="w", finished_at=T, error="boom")
    assert attempts.ended_attempts(over) == (first, AttemptRecord(5, "w", T - 9, T, "failed", "boom"))
    # Cancelled while it waited: no attempt ended it, so a retry adds none.
    cancelled = replace(waiting, state="cancelled", finished_at=T)
    assert attempts.ended_attempts(cancelled) == (first,)
    again = attempts.retried(cancelled, "t")
    assert again is not None
    assert again.earlier is msgspec.UNSET


def test_a_run_keeps_its_newest_attempts_and_the_beginnings_of_their_errors() -> None:
    earlier: str | None = None
    for number in range(1, EARLIER_KEPT + 3):
        earlier = with_attempt(earlier, AttemptRecord(number, "w", T, T, "failed", "x" * 9_999))
    kept = read_attempts(earlier)
    assert [attempt.number for attempt in kept] == list(range(3, EARLIER_KEPT + 3))
    assert {attempt.error for attempt in kept} == {"x" * EARLIER_ERROR}


@pytest.mark.parametrize("text", ["", "{}", '[["a"]]', '[{"number": 1}]', "\ud800"])
def test_attempts_that_can_not_be_read_count_as_none(text: str) -> None:
    assert read_attempts(text) == ()
