"""Transitions of runs: heartbeat, success, failure, crash, release, cancel, retry. Pure."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from evenbeat.core.durations import write_duration
from evenbeat.core.instants import FIRST, LAST, Instant, write_instant
from evenbeat.core.json_text import read_attempts, with_attempt
from evenbeat.core.records import (
    FINAL_STATES,
    LONGEST_ERROR,
    AttemptOutcome,
    AttemptRecord,
    Kind,
    RunRecord,
    RunState,
    ScheduleRecord,
    Statistics,
    Transition,
)
from evenbeat.rules.firing import needs_active
from evenbeat.rules.flow_parts import flow_part, is_begun, is_step
from evenbeat.rules.unique_ends import end_marks

# A payload that does not fit the function of this node may fit that of another one: during a rolling upgrade
# old and new code run side by side. Such a run is handed back this many times, which takes about five minutes
# in all.
MOST_HAND_BACKS = 10
_FIRST_WAIT, _LONGEST_WAIT = 1_000, 60_000

# How stored texts begin or end, by which readers recognise them.
NOT_RETRIED = "not retried: "
AGAIN = "the task asked to run again"
EXPIRED = "expired:"


def heartbeat(run: RunRecord, lease: int, token: str) -> Transition:
    """Renew the lease of a run: it expires ``lease`` ms from now."""
    return Transition(
        run=run.id, attempt=run.attempt, claim=run.claim, expect=("running",), token=token, lease=lease
    )


def succeeded(
    run: RunRecord, result: str | None, now: Instant, token: str, adds: tuple[RunRecord, ...] = ()
) -> Transition:
    """End a run whose attempt returned. ``adds`` are runs to add in the same step."""
    return final(run, "succeeded", now, token, result=result, adds=adds)


def failed(run: RunRecord, error: str, now: Instant, token: str, refusal: str | None = None) -> Transition:
    """End an attempt that raised or timed out: queue the run again by its retry policy, or fail it.

    ``refusal`` says why it must not be retried. The error of the run then ends with it.
    """
    failures = run.failures + 1
    if run.cancel_requested:
        return cancelled(run, now, token)
    if refusal is not None and failures <= run.execution.retries:
        note = f"\n\n{NOT_RETRIED}{refusal}"
        return final(
            run, "failed", now, token, error=error[: LONGEST_ERROR - len(note)] + note, failures=failures
        )
    if failures > run.execution.retries:
        return final(run, "failed", now, token, error=error, failures=failures)
    again = _queued(run, backoff(run, failures), now, token, "failed", error)
    return replace(again, failures=failures, error=_storable(error))


def unfit(run: RunRecord, error: str, now: Instant, token: str) -> Transition:
    """Hand back a run whose payload does not fit the function of this node, for a node with other code.

    The delay grows, and the number of times is bounded; then the attempt fails as one that raised.
    """
    before = sum(_is_unfit(attempt) for attempt in read_attempts(run.earlier))
    if run.cancel_requested or before >= MOST_HAND_BACKS:
        return failed(run, error, now, token)
    wait = min(_FIRST_WAIT << before, _LONGEST_WAIT)
    return replace(_queued(run, wait, now, token, "handed back", error), error=_storable(error))


def again(run: RunRecord, delay: int, reason: str, now: Instant, token: str) -> Transition:
    """Queue a run again whose task asked for it (``raise Retry``): no failure, and no error."""
    if run.cancel_requested:
        return cancelled(run, now, token)
    why = f"{AGAIN} after {write_duration(delay)}" + (f": {reason}" if reason else "")
    return _queued(run, delay, now, token, "handed back", why)


def expires_at(run: RunRecord) -> Instant | None:
    """Return when a run that has not started is worthless; None if it never is."""
    return None if run.execution.expires is None else _planned_start(run) + run.execution.expires


def is_expired(run: RunRecord, now: Instant) -> bool:
    """Return whether a run that has not started by now must not be executed. A flow that continues after its
    end has started."""
    if run.execution.expires is None or flow_part(run).state is not None:
        return False
    return now >= _planned_start(run) + run.execution.expires


def _planned_start(run: RunRecord) -> Instant:
    """Return when a run was to start. For a step of a flow that was resumed, that is the time of the resume:
    else its elements would expire again, however often they are resumed."""
    is_new = not run.failures and not run.crashes
    return max(run.scheduled_at, run.run_at) if is_new and is_step(run) else run.scheduled_at


def expired(run: RunRecord, now: Instant, token: str) -> Transition:
    """End a run as cancelled whose expiry has passed while it waited: it is not executed."""
    expires = run.execution.expires or 0
    # An instant that was edited by hand may lie outside the calendar.
    until = write_instant(min(max(_planned_start(run) + expires, FIRST), LAST))
    error = f"{EXPIRED} it had not started by {until}, {write_duration(expires)} after its planned start"
    state: RunState = "queued" if run.state == "queued" else "running"
    return final(run, "cancelled", now, token, expect=(state,), error=error)


def was_expired(run: RunRecord) -> bool:
    """Return whether a run was cancelled because it had expired."""
    return run.state == "cancelled" and run.error is not None and run.error.startswith(EXPIRED)


def crashed(run: RunRecord, now: Instant, token: str, error: str | None = None) -> Transition:
    """End an attempt whose lease expired: its worker died or is cut off, and a late result will be refused.

    ``error`` is the reason, where it is known.
    """
    crashes = run.crashes + 1
    if run.cancel_requested:
        return replace(cancelled(run, now, token), lease_ended=True)
    if run.execution.on_crash == "fail" or crashes > run.execution.max_crashes:
        error = error or f"worker {run.worker} was lost during attempt {run.attempt}"
        dead = final(run, "failed", now, token, error=error, crashes=crashes)
        return replace(dead, lease_ended=True)
    again = _queued(run, 0, now, token, "lost", error)
    return replace(again, crashes=crashes, lease_ended=True)


def released(run: RunRecord, now: Instant, token: str) -> Transition:
    """Hand back an unfinished run (its worker stops): not counted, and free for another worker at once."""
    return _queued(run, 0, now, token, "handed back")


def regrouped(
    run: RunRecord, now: Instant, token: str, *, kind: Kind | None = None, payload: str | None = None
) -> Transition:
    """Hand back a run that was claimed under the limits of other runs, before it begins: by the code of the
    node it is of another kind, or only now the fields of its payload are known that limits have as a key. It
    keeps its place in the queue."""
    return replace(
        _queued(run, 0, now, token, "handed back"),
        delay=msgspec.UNSET,
        kind=msgspec.UNSET if kind is None else kind,
        payload=msgspec.UNSET if payload is None else payload,
    )


def cancel(run: RunRecord, now: Instant, token: str) -> Transition | None:
    """End a queued run as cancelled, or request that a running one ends; None if it has ended already."""
    if run.state in FINAL_STATES:
        return None
    if run.state == "queued":
        return final(run, "cancelled", now, token, expect=("queued",))
    return Transition(
        run=run.id,
        attempt=run.attempt,
        claim=run.claim,
        expect=("running",),
        token=token,
        cancel_requested=True,
        # No worker holds a flow: nodes that remember it, or are about to begin it, have to read it again.
        renews=run.kind == "flow" or is_begun(run),
    )


def cancelled(run: RunRecord, now: Instant, token: str) -> Transition:
    """End a run as cancelled: its attempt obeyed the request."""
    return final(run, "cancelled", now, token)


def retried(run: RunRecord, token: str, schedule: ScheduleRecord | None = None) -> Transition | None:
    """Queue a failed or cancelled run again, as a user asked; None if that is not allowed.

    ``schedule`` is the present row of the run's schedule, if there is one. If it bounds its active runs, the
    answer is None: ``changes.run_now`` with the run's payload adds a new run by the schedule's policies
    instead. If a user sets such a bound in between, the store refuses the transition by its gate.
    """
    if run.state not in ("failed", "cancelled"):
        return None
    gate: tuple[str, str, int, int] | None = None
    if run.schedule is not None:
        if schedule is not None and schedule.state != "deleted" and needs_active(schedule):
            return None
        version = (0, 0) if schedule is None else (schedule.generation, schedule.revision)
        gate = (run.tenant, run.schedule, *version)
    last = _final_attempt(run)
    return Transition(
        run=run.id,
        attempt=run.attempt,
        claim=run.claim,
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
        # A late repetition of this transition must not undo a cancel that follows it.
        renews=True,
        gate=gate,
    )


def is_retrying(run: RunRecord) -> bool:
    """Return whether a run has failed and waits for its next attempt."""
    return run.state == "queued" and run.failures > 0


def was_unfit(run: RunRecord) -> bool:
    """Return whether the latest attempt handed back the run because its payload did not fit the function."""
    ended = ended_attempts(run)
    return bool(ended) and _is_unfit(ended[-1])


def asked_again(run: RunRecord) -> str | None:
    """Return why the latest attempt asked to run again (``raise Retry``); None if it did not."""
    ended = ended_attempts(run)
    error = ended[-1].error if ended and ended[-1].outcome == "handed back" else None
    return error if error is not None and error.startswith(AGAIN) else None


def _is_unfit(attempt: AttemptRecord) -> bool:
    """Return whether an attempt handed back its run because the payload did not fit."""
    error = attempt.error
    return attempt.outcome == "handed back" and error is not None and not error.startswith(AGAIN)


def given_up(run: RunRecord) -> str | None:
    """Return why a failed run was not retried, though it had retries left; None otherwise."""
    if run.state != "failed" or run.error is None:
        return None
    _, found, why = run.error.rpartition(f"\n\n{NOT_RETRIED}")
    return why if found else None


def was_running(run: RunRecord, since: Instant | None, until: Instant | None) -> bool:
    """Return whether an attempt of the run began before ``until`` and did not end before ``since``.

    A run that ended without an attempt (it was cancelled while it waited) counts at the moment of its end.
    """
    spans = [(attempt.started_at, attempt.ended_at) for attempt in ended_attempts(run)]
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
    """Return the wait before retry number ``failures``: doubled each time, bounded, and spread by a tenth.

    The spread depends on the run, so that runs that failed together are not retried together.
    """
    policy = run.execution
    # The shift is bounded: 2 ** 1000 would be a very long number.
    wait = min(policy.backoff << min(failures - 1, 40), policy.max_backoff)
    digest = blake2b(f"{run.id}/{failures}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return wait - wait * (int.from_bytes(digest, "big") % 1000) // 10_000


def moved(run: RunRecord, task: str, token: str) -> Transition | None:
    """Make a queued run one of another task; None if it is not queued, or has that task already.

    Its place in the queue, its payload and its earlier attempts stay. A worker that claims it meanwhile wins.
    """
    if run.state != "queued" or run.task == task:
        return None
    return Transition(
        run=run.id, attempt=run.attempt, claim=run.claim, expect=("queued",), token=token, task=task
    )


def ended_attempts(run: RunRecord) -> tuple[AttemptRecord, ...]:
    """Return the attempts of a run that have ended, the oldest first."""
    last = _final_attempt(run)
    earlier = read_attempts(run.earlier)
    return earlier if last is None else (*earlier, last)


def may_have_lost_attempts(run: RunRecord) -> bool:
    """Return whether a worker may have lost the lease of one of its attempts."""
    # A retry by hand starts counting again, and a cancelled run whose lease ends is not counted as crashed.
    lost = run.earlier is not None and any(ended.outcome == "lost" for ended in ended_attempts(run))
    return run.crashes > 0 or run.cancel_requested or lost


def _final_attempt(run: RunRecord) -> AttemptRecord | None:
    """Return the attempt that ended the run; None if none did. A run that waits has no worker."""
    if run.state not in FINAL_STATES or run.worker is None:
        return None
    outcome: AttemptOutcome = run.state  # type: ignore[assignment]  # one of the final states
    return AttemptRecord(run.attempt, run.worker, run.started_at, run.finished_at, outcome, run.error)


def _queued(
    run: RunRecord, delay: int, now: Instant, token: str, outcome: AttemptOutcome, error: str | None = None
) -> Transition:
    """End the attempt and queue the run again: a worker may claim it ``delay`` ms from now.

    Only such an attempt is added to ``earlier``, which costs 2 us: a run that succeeds at once does not pay
    them.
    """
    ended = AttemptRecord(run.attempt, run.worker, run.started_at, now, outcome, _storable(error))
    return Transition(
        earlier=with_attempt(run.earlier, ended),
        run=run.id,
        attempt=run.attempt,
        claim=run.claim,
        expect=("running",),
        token=token,
        state="queued",
        delay=delay,
        worker=None,
        lease=None,
    )


def final(
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
    """End the run."""
    return Transition(
        run=run.id,
        attempt=run.attempt,
        claim=run.claim,
        expect=expect,
        token=token,
        state=state,
        finished_at=now,
        lease=None,
        result=result,
        error=_storable(error),
        failures=run.failures if failures is None else failures,
        crashes=run.crashes if crashes is None else crashes,
        adds=adds,
        counts=None if run.schedule is None else _counts(run, run.schedule, state, now, _storable(error)),
        wakes=None if run.schedule is None else (run.tenant, run.schedule),
        tick=run.tick if state == "succeeded" else None,
        records=() if run.unique_key is None else end_marks(run, now),
    )


def _counts(run: RunRecord, schedule: str, state: RunState, now: Instant, error: str | None) -> Statistics:
    """Return the numbers that the end of a run adds to the statistics of its schedule."""
    return Statistics(
        tenant=run.tenant,
        schedule=schedule,
        run_count=1,
        success_count=int(state == "succeeded"),
        failure_count=int(state == "failed"),
        last_run=now,
        last_success=now if state == "succeeded" else None,
        last_failure=now if state == "failed" else None,
        last_error=error if state == "failed" else None,
    )


def _storable(error: str | None) -> str | None:
    """Return an error as it is stored: cut, and without lone surrogates, which no database accepts."""
    return None if error is None else error[:LONGEST_ERROR].encode(errors="replace").decode()
