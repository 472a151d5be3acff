"""What compare-and-set means, in one place for every store that decides in Python under a lock."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.instants import Instant
from evenbeat.model import Run, Schedule, Statistics, Transition


class Standing(NamedTuple):
    """What is compared of a run before a transition is applied."""

    state: str
    attempt: int
    settled: str | None
    lease_until: Instant | None


def verdict(run: Standing, transition: Transition, now: Instant) -> Literal["apply", "repeat", "refuse"]:
    """What becomes of a transition, given the run as it is; ``now`` is the store's own."""
    if run.settled == transition.token:
        return "repeat"
    if run.attempt != transition.attempt or run.state not in transition.expect:
        return "refuse"
    if transition.lease_ended and (run.lease_until or 0) > now:
        return "refuse"
    return "apply"


def may_be_repetition(current: Schedule | None, wanted: Schedule) -> bool:
    """Whether a refused write finds its own work: it does if also the runs that it adds are there.

    Two that trigger a schedule from the same row want the same row, and each its own run. The wake-up may
    have moved since: it is no part of the work.
    """
    return current is not None and replace(current, wake_at=wanted.wake_at) == wanted


def changes(transition: Transition, now: Instant) -> dict[str, object]:
    """The fields of a run that a transition sets; ``now`` is the store's own."""
    # One by one: 0.4 us, where a loop over their names takes 1.2, of some 11 for settling a run.
    fields: dict[str, object] = {}
    if (state := transition.state) is not UNSET:
        fields["state"] = state
    if (failures := transition.failures) is not UNSET:
        fields["failures"] = failures
    if (crashes := transition.crashes) is not UNSET:
        fields["crashes"] = crashes
    if (worker := transition.worker) is not UNSET:
        fields["worker"] = worker
    if (cancel_requested := transition.cancel_requested) is not UNSET:
        fields["cancel_requested"] = cancel_requested
    if (result := transition.result) is not UNSET:
        fields["result"] = result
    if (error := transition.error) is not UNSET:
        fields["error"] = error
    if (delay := transition.delay) is not UNSET:
        fields["run_at"] = now + delay
    if (finished_at := transition.finished_at) is not UNSET:
        fields["finished_at"] = None if finished_at is None else min(finished_at, now)
    if (lease := transition.lease) is not UNSET:
        fields["lease_until"] = None if lease is None else now + lease
    if transition.renews:
        fields["attempt"] = transition.attempt + 1
    fields["settled"] = transition.token
    return fields


def settled(run: Run, transition: Transition, now: Instant) -> Run:
    return replace(run, **changes(transition, now))


def added(before: Statistics, more: Statistics) -> Statistics:
    """Statistics with one run more."""
    return replace(
        before,
        run_count=before.run_count + more.run_count,
        success_count=before.success_count + more.success_count,
        failure_count=before.failure_count + more.failure_count,
        last_run=more.last_run or before.last_run,
        last_success=more.last_success or before.last_success,
        last_failure=more.last_failure or before.last_failure,
        last_error=more.last_error or before.last_error,
    )
