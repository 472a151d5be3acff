"""The end of an attempt: the transition to record, and what to log and report about it. Pure."""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.durations import write_duration
from evenbeat.core.instants import Instant
from evenbeat.core.records import Transition
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.observe.events import EventKind
from evenbeat.rules import attempts


class AttemptEnd(NamedTuple):
    """The decision about an attempt that has ended, to be recorded in the store."""

    attempt: Attempt
    transition: Transition
    kind: EventKind
    error: str | None = None
    delay: int | None = None
    exception: BaseException | None = None
    is_asked: bool = False
    """Whether the task asked to run again."""

    @property
    def size(self) -> int:
        """The characters of the result and the error."""
        texts = (self.transition.result, self.transition.error)
        return sum(len(text) for text in texts if isinstance(text, str))

    @property
    def log_line(self) -> tuple[int, str]:
        """The level and the message to log."""
        if self.is_asked:
            return logging.INFO, "a run asked to run again"
        if self.kind == "released" and self.error is not None:
            return logging.WARNING, "the payload of a run does not fit the task here, the run is handed back"
        return _LEVELS.get(self.kind, logging.INFO), _MESSAGES[self.kind]


_LEVELS = {
    "failed": logging.ERROR,
    "crashed": logging.ERROR,
    "retrying": logging.WARNING,
    "lost": logging.WARNING,
}
_MESSAGES: dict[EventKind, str] = {
    "succeeded": "a run succeeded",
    "failed": "a run failed",
    "retrying": "an attempt failed, the run will be retried",
    "cancelled": "a run was cancelled",
    "crashed": "the process of a run died",
    "released": "a run was handed back",
    "lost": "a run was lost to another worker",
}
# By the reason of a cancel request: the end of an attempt that obeyed it. "lost" may be a mistake, since a
# store that does not answer can't report whose the run is. If another worker has it, the store refuses the
# transition.
_STOPPED = {"cancelled": "cancelled", "stopping": "released", "lost": "released", "timeout": "timeout"}


def decide_end(attempt: Attempt, outcome: Outcome, now: Instant) -> AttemptEnd:
    """Return the end that an outcome leads to. 0.9 us for a success."""
    run, cancel_reason = attempt.run, attempt.control.cancel_reason
    token = f"{run.claim}.{outcome.kind}"
    kind: str = outcome.kind
    if kind == "stopped":
        kind = _STOPPED.get(cancel_reason or "", "raised")
    if kind == "released" and run.cancel_requested:
        kind = "cancelled"
    if kind == "returned":
        return AttemptEnd(attempt, attempts.succeeded(run, outcome.result, now, token), "succeeded")
    if kind == "released":
        return AttemptEnd(attempt, attempts.released(run, now, token), "released")
    if kind == "cancelled":
        return AttemptEnd(attempt, attempts.cancelled(run, now, token), "cancelled")
    if kind == "expired":
        transition = attempts.expired(run, now, token)
        assert isinstance(transition.error, str)
        return AttemptEnd(attempt, transition, "cancelled", transition.error)
    if kind == "again":
        return _asked_again(attempt, outcome, now, token)
    error = outcome.error or "the attempt ended without an error message"
    if kind == "timeout":
        error = f"timed out after {write_duration(run.execution.timeout or 0)}"
    elif kind == "raised" and cancel_reason == "timeout" and outcome.error is not None:
        # The error that the function raised comes second: a library may turn a cancellation into any error.
        error = f"timed out after {write_duration(run.execution.timeout or 0)}\n\n{outcome.error}"
    if kind == "died":
        crashed = replace(attempts.crashed(run, now, token, error), lease_ended=False)
        return AttemptEnd(attempt, crashed, "crashed", error)
    if kind == "unfit":
        transition = attempts.unfit(run, error, now, token)
    else:
        # A timeout is not an error of the task, whatever the cancelled function raises.
        refusal = None if cancel_reason == "timeout" else outcome.final
        transition = attempts.failed(run, error, now, token, refusal)
    if transition.state == "queued":
        assert isinstance(transition.delay, int)
        is_counted = transition.failures is not msgspec.UNSET
        return AttemptEnd(
            attempt, transition, "retrying" if is_counted else "released", error, transition.delay
        )
    return AttemptEnd(
        attempt, transition, "cancelled" if transition.state == "cancelled" else "failed", error
    )


def _asked_again(attempt: Attempt, outcome: Outcome, now: Instant, token: str) -> AttemptEnd:
    """Return the end of an attempt whose task raised ``Retry``."""
    delay = outcome.delay or 1
    transition = attempts.again(attempt.run, delay, outcome.error or "", now, token)
    if transition.state == "cancelled":
        return AttemptEnd(attempt, transition, "cancelled")
    return AttemptEnd(attempt, transition, "released", outcome.error, delay, is_asked=True)
