"""What an attempt's end becomes: done, tried again, failed. Pure: a transition for the store to apply."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import read_attempts, with_attempt
from evenbeat.core.records import (
    FINAL_STATES,
    LONGEST_ERROR,
    AttemptOutcome,
    AttemptRecord,
    RunRecord,
    RunState,
    ScheduleRecord,
    Statistics,
    Transition,
)
from evenbeat.rules.firing import needs_active

# A payload that does not fit the function of this node may fit that of another: during a rolling upgrade old
# and new code run side by side. Such a run is handed back this often, which takes some five minutes in all.
HAND_BACKS = 10
_FIRST_WAIT, _LONGEST_WAIT = 1_000, 60_000


def heartbeat(run: RunRecord, lease: int, token: str) -> Transition:
    """The worker is alive: its lease ends ``lease`` ms from now."""
    return Transition(run=run.id, attempt=run.attempt, expect=("running",), token=token, lease=lease)


def succeeded(
    run: RunRecord, result: str | None, now: Instant, token: str, adds: tuple[RunRecord, ...] = ()
) -> Transition:
    """The attempt returned. ``adds`` are runs that follow from it."""
    return _ended(run, "succeeded", now, token, result=result, adds=adds)


def failed(run: RunRecord, error: str, now: Instant, token: str) -> Transition:
    """The attempt raised or timed out: tried again by the retry policy, else the run has failed."""
    failures = run.failures + 1
    if run.cancel_requested:
        return cancelled(run, now, token)
    if failures > run.execution.retries:
        return _ended(run, "failed", now, token, error=error, failures=failures)
    again = _queued(run, backoff(run, failures), now, token, "failed", error)
    return replace(again, failures=failures, error=_kept(error))


def unfit(run: RunRecord, error: str, now: Instant, token: str) -> Transition:
    """The function here can't be called with the payload: handed back for a node with other code, with a
    growing delay and a bounded number of times; then it fails as an attempt that raised does."""
    # Attempts that neither failed nor crashed were handed back, for this reason or another.
    before = max(run.attempt - 1 - run.failures - run.crashes, 0)
    if run.cancel_requested or before >= HAND_BACKS:
        return failed(run, error, now, token)
    wait = min(_FIRST_WAIT << before, _LONGEST_WAIT)
    return replace(_queued(run, wait, now, token, "handed back", error), error=_kept(error))


def crashed(run: RunRecord, now: Instant, token: str, error: str | None = None) -> Transition:
    """The lease ended without a word: the worker is gone, or cut off. Its late result will be refused.

    ``error`` says why where that is known.
    """
    crashes = run.crashes + 1
    if run.cancel_requested:
        return replace(cancelled(run, now, token), lease_ended=True)
    if run.execution.on_crash == "fail" or crashes > run.execution.max_crashes:
        error = error or f"worker {run.worker} was lost during attempt {run.attempt}"
        dead = _ended(run, "failed", now, token, error=error, crashes=crashes)
        return replace(dead, lease_ended=True)
    again = _queued(run, 0, now, token, "lost", error)
    return replace(again, crashes=crashes, lease_ended=True)


def released(run: RunRecord, now: Instant, token: str) -> Transition:
    """Handed back unfinished (a worker that stops): nothing is counted, another one takes it at once."""
    return _queued(run, 0, now, token, "handed back")


def cancel(run: RunRecord, now: Instant, token: str) -> Transition | None:
    """Asked to stop: a queued run is over at once, a running one is told. None if it is over already."""
    if run.state in FINAL_STATES:
        return None
    if run.state == "queued":
        return _ended(run, "cancelled", now, token, expect=("queued",))
    return Transition(
        run=run.id, attempt=run.attempt, expect=("running",), token=token, cancel_requested=True
    )


def cancelled(run: RunRecord, now: Instant, token: str) -> Transition:
    """The attempt ended because it was asked to."""
    return _ended(run, "cancelled", now, token)


def retried(run: RunRecord, token: str, schedule: ScheduleRecord | None = None) -> Transition | None:
    """Try a run again that is over and did not succeed, because a user asked. None if it can't be.

    ``schedule`` is the row of the run's schedule as it is now, if there is one. A run whose schedule bounds
    its active runs is not made active behind the schedule's back: for those, ``changes.run_now`` with the
    run's payload asks the schedule for a new run. A bound that somebody sets in between refuses the
    transition, by its gate.
    """
    if run.state not in ("failed", "cancelled"):
        return None
    gate: tuple[str, str, int, int] | None = None
    if run.schedule is not None:
        if schedule is not None and schedule.state != "deleted" and needs_active(schedule):
            return None
        version = (0, 0) if schedule is None else (schedule.generation, schedule.revision)
        gate = (run.tenant, run.schedule, *version)
    last = _last(run)
    return Transition(
        run=run.id,
        attempt=run.attempt,
        expect=(run.state,),
        token=token,
        state="queued",
        delay=0,
        failures=0,
        crashes=0,
        cancel_requested=False,
        finished_at=None,
        error=None,
        worker=None,
        earlier=msgspec.UNSET if last is None else with_attempt(run.earlier, last),
        # A cancel that follows must not be undone by a late repetition of this.
        renews=True,
        gate=gate,
    )


def is_retrying(run: RunRecord) -> bool:
    """Whether a run has failed and waits for its next attempt."""
    return run.state == "queued" and run.failures > 0


def was_unfit(run: RunRecord) -> bool:
    """Whether the latest attempt handed the run back because its payload did not fit the function there."""
    over = past(run)
    return bool(over) and over[-1].outcome == "handed back" and over[-1].error is not None


def was_running(run: RunRecord, since: Instant | None, until: Instant | None) -> bool:
    """Whether an attempt of the run began before ``until`` and was not over before ``since``.

    A run that no attempt ended (it was cancelled while it waited) counts at the moment of its end, too.
    """
    spans = [(attempt.started_at, attempt.ended_at) for attempt in past(run)]
    if run.state == "running":
        spans.append((run.started_at, None))
    elif run.state in FINAL_STATES and run.worker is None:
        spans.append((run.finished_at, run.finished_at))
    return any(
        began is not None
        and (until is None or began < until)
        and (since is None or ended is None or ended >= since)
        for began, ended in spans
    )


def backoff(run: RunRecord, failures: int) -> int:
    """The wait before retry number ``failures``: doubled each time, bounded, and spread by a tenth.

    The spread depends on the run, so that what failed together does not come back together.
    """
    policy = run.execution
    # The shift is bounded: 2 ** 1000 is a number that nobody wants to see computed.
    wait = min(policy.backoff << min(failures - 1, 40), policy.max_backoff)
    digest = blake2b(f"{run.id}/{failures}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return wait - wait * (int.from_bytes(digest, "big") % 1000) // 10_000


def past(run: RunRecord) -> tuple[AttemptRecord, ...]:
    """The attempts of a run that are over, the oldest first."""
    last = _last(run)
    earlier = read_attempts(run.earlier)
    return earlier if last is None else (*earlier, last)


def _last(run: RunRecord) -> AttemptRecord | None:
    """The attempt that ended the run; None if none did: one that waits, also for a retry, has no worker."""
    if run.state not in FINAL_STATES or run.worker is None:
        return None
    outcome: AttemptOutcome = run.state  # type: ignore[assignment]  # one of the final states
    return AttemptRecord(run.attempt, run.worker, run.started_at, run.finished_at, outcome, run.error)


def _queued(
    run: RunRecord, delay: int, now: Instant, token: str, outcome: AttemptOutcome, error: str | None = None
) -> Transition:
    """The attempt is over, the run is not: another worker may take it ``delay`` ms from now.

    Only the end of an attempt that is not the last is added to ``earlier``: 2 us that a run which succeeds
    does not pay.
    """
    over = AttemptRecord(run.attempt, run.worker, run.started_at, now, outcome, _kept(error))
    return Transition(
        earlier=with_attempt(run.earlier, over),
        run=run.id,
        attempt=run.attempt,
        expect=("running",),
        token=token,
        state="queued",
        delay=delay,
        worker=None,
        lease=None,
    )


def _ended(
    run: RunRecord,
    state: RunState,
    now: Instant,
    token: str,
    *,
    expect: tuple[RunState, ...] = ("running",),
    result: str | None = None,
    error: str | None = None,
    failures: int | None = None,
    crashes: int | None = None,
    adds: tuple[RunRecord, ...] = (),
) -> Transition:
    counts = None
    if run.schedule is not None:
        counts = Statistics(
            tenant=run.tenant,
            schedule=run.schedule,
            run_count=1,
            success_count=int(state == "succeeded"),
            failure_count=int(state == "failed"),
            last_run=now,
            last_success=now if state == "succeeded" else None,
            last_failure=now if state == "failed" else None,
            last_error=_kept(error),
        )
    return Transition(
        run=run.id,
        attempt=run.attempt,
        expect=expect,
        token=token,
        state=state,
        finished_at=now,
        lease=None,
        result=result,
        error=_kept(error),
        failures=run.failures if failures is None else failures,
        crashes=run.crashes if crashes is None else crashes,
        adds=adds,
        counts=counts,
        wakes=None if run.schedule is None else (run.tenant, run.schedule),
    )


def _kept(error: str | None) -> str | None:
    """What is stored of an error: not all of a long one, and no lone surrogates, which no database takes."""
    return None if error is None else error[:LONGEST_ERROR].encode(errors="replace").decode()
