"""The protocol of executors: an ``Attempt`` goes in, an ``Outcome`` comes out."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from evenbeat.core.clocks import steady_clock
from evenbeat.core.durations import write_duration
from evenbeat.core.records import AttemptOutcome, RunRecord
from evenbeat.errors import InvalidValue, RunCancelled
from evenbeat.observe.logs import run_fields
from evenbeat.observe.run_logs import RunLog
from evenbeat.observe.run_progress import ReportedProgress
from evenbeat.observe.tracing import AttemptSpan
from evenbeat.processes import begun, forks
from evenbeat.rules.flow_parts import flow_part
from evenbeat.tasks.context import RunContext, RunControl
from evenbeat.tasks.conversion import Unfit
from evenbeat.tasks.follow_up import Following, FollowUp, following
from evenbeat.tasks.retrying import Retry
from evenbeat.tasks.task import Task

# Seconds between two queries to a store that is unavailable.
_ASK_AGAIN = 1.0


class Outcome(NamedTuple):
    """How the execution of an attempt ended."""

    kind: Literal[
        "returned", "raised", "again", "unfit", "stopped", "expired", "died", "timeout", "released", "lost"
    ]
    """``again``: it raised ``Retry``. ``unfit``: this node's function cannot be called with the payload.
    ``stopped``: the function ended after a request to end. ``expired``: it was not called, since the run had
    expired. ``died``: its process died. The worker itself decides the last three: the function may still be
    running, and its result is ignored."""
    result: str | None = None
    """JSON text."""
    error: str | None = None
    """The error in one line, then its traceback. Of ``again``: the reason."""
    delay: int | None = None
    """Of ``again``: milliseconds until the next attempt."""
    final: str | None = None
    """Of ``raised``: why the run is not retried; None if its retries decide."""
    following: tuple[Following, ...] = ()
    """Of ``returned``: runs to add when the run ends."""


class Attempt:
    """A run that this worker has claimed, from the claim until the worker has recorded its end."""

    __slots__ = (
        "_ask_at",
        "_born",
        "_clock",
        "_place",
        "_ticket",
        "began",
        "claimed",
        "context",
        "control",
        "exception",
        "is_decided",
        "is_lost",
        "lease_end",
        "log",
        "over",
        "overdue",
        "progress",
        "run",
        "task",
    )

    def __init__(
        self,
        run: RunRecord,
        task: Task[..., Any],
        claimed: float,
        lease: float,
        ask: Callable[[RunRecord], bool | None],
        clock: Callable[[], float] = steady_clock,
    ) -> None:
        self.run = run
        self.task = task
        self.claimed = claimed
        """The latest time at which the store can have claimed it. All times here are times of ``clock``."""
        self.lease_end = claimed + lease
        """Until this time, the worker is certain to hold the lease."""
        self.began: float | None = None
        self.over: float | None = None
        self.overdue: float | None = None
        """When the worker asked the function to end because of its timeout."""
        self.exception: BaseException | None = None
        """The exception that the function raised, if it ran in this process."""
        self.is_decided = False
        """Whether the end of the attempt is decided: a later result of the function is ignored."""
        self.is_lost = False
        """Whether it was decided because another worker has the run."""
        self.log = RunLog(run)
        self.control = RunControl(lambda: self._held(ask))
        self.progress = ReportedProgress(run)
        self.context = RunContext(run, self.control, self.log.add, self.progress.report)
        self._clock = clock
        self._ask_at = float("-inf")
        # ``begin`` and ``withdraw`` both pop it. Popping is atomic, so only one of them succeeds.
        self._ticket = [True]
        self._born = forks.generation
        self._place: int | None = None

    @property
    def identity(self) -> tuple[str, int, str | None]:
        return self.run.attempt_identity

    def begin(self) -> bool:
        """Mark the attempt as begun; return False if it must not be executed any more. The executor calls
        this right before the function."""
        if not self._ticket or self._born != forks.generation:
            return False
        try:
            self._ticket.pop()
        except IndexError:
            return False
        self.began = self._clock()
        if begun.here is not None:
            self._place = begun.here.add(self.run)
        return True

    def end(self) -> None:
        """Mark the function as ended. The executor calls this before it reports the outcome."""
        if begun.here is not None and self._place is not None:
            begun.here.end(self._place)
            self._place = None

    def withdraw(self) -> bool:
        """Prevent the attempt from being begun; return False if it has been begun or withdrawn already."""
        try:
            return self._ticket.pop()
        except IndexError:
            return False

    def _held(self, ask: Callable[[RunRecord], bool | None]) -> bool | None:
        if self.is_decided:
            return False
        now = self._clock()
        if now < self.lease_end:
            return True
        if now < self._ask_at:
            return None
        answer = ask(self.run)
        if answer is None:
            # Each query may take as long as the store's timeout, and would delay a function that asks often.
            self._ask_at = self._clock() + _ASK_AGAIN
        return answer


Ended: TypeAlias = Callable[[Attempt, Outcome], None]


class Executor(Protocol):
    """Executes a limited number of attempts at once. Reports the outcome of each once, from any thread."""

    def start(self, ended: Ended) -> None:
        """Prepare to execute attempts. Threads and processes start when they are first needed."""

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Execute these attempts, in this order. Attempts beyond the limit wait in the executor.

        The executor calls ``attempt.begin()`` right before each function. If that returns False, it drops the
        attempt and does not call ``ended``. It calls ``attempt.end()`` right after the function.
        """

    def interrupt(self, attempt: Attempt) -> None:
        """Make the function end: cancel its coroutine, or kill its process.

        A thread cannot be killed: its function has to call ``run.raise_if_cancelled()``.
        """

    def stop(self) -> None:
        """Begin no more attempts. Kill functions that still run where that is possible, and abandon the
        others."""


def returned(attempt: Attempt, value: object) -> Outcome:
    """Return the outcome of a function that returned.

    A result that is not JSON is dropped. A result that JSON changes is stored in its changed form. The log
    says so in both cases. The run does not fail, since a retry would repeat work that is done.
    """
    if attempt.control.cancel_reason == "timeout":
        attempt.log.add("WARNING evenbeat: it returned after its timeout, which counts as success")
        _log.warning("a run returned after its timeout", extra=run_fields(attempt.run))
    if value is None:
        return _NOTHING
    if isinstance(value, FollowUp):
        try:
            more = following(value)
        except InvalidValue as error:
            return Outcome("raised", error=f"{InvalidValue.__name__}: {error}")
        outcome = _NOTHING if value.result is None else _written(attempt, value.result)
        return outcome._replace(following=more) if outcome.kind == "returned" else outcome
    return _written(attempt, value)


def _written(attempt: Attempt, value: object) -> Outcome:
    """Return the outcome of a function that returned a value."""
    if inspect.isawaitable(value) or inspect.isgenerator(value):
        # The body of the function has not run, so this is not a success.
        if inspect.iscoroutine(value):
            value.close()
        what = f"the task returned a {type(value).__name__}, which Evenbeat does not run"
        return Outcome("raised", error=f"TypeError: {what}; make it an async def and await there")
    try:
        text, changed = attempt.task.write_result(value)
    except InvalidValue as error:
        member = flow_part(attempt.run).member
        if member is not None and member.used:
            # Without it, the next steps of the flow could not run.
            why = "other steps of the flow need its result; store large data elsewhere, and return its place"
            return Outcome("raised", error=f"{InvalidValue.__name__}: {error}", final=why)
        attempt.log.add(f"WARNING evenbeat: the result is not kept: {error}")
        _log.warning("a result is not kept: %s", error, extra=run_fields(attempt.run))
        return _NOTHING
    if changed is not None:
        attempt.log.add(f"WARNING evenbeat: {changed}")
        if attempt.run.task not in _noted:
            _noted.add(attempt.run.task)
            _log.warning("JSON changes the result of a task: %s", changed, extra=run_fields(attempt.run))
    return Outcome("returned", text)


def raised(attempt: Attempt, error: BaseException) -> Outcome:
    """Return the outcome of a function that raised any exception, including SystemExit."""
    if isinstance(error, RunCancelled) and attempt.control.cancel_reason is not None:
        return Outcome("stopped", error=str(error))
    if isinstance(error, Retry):
        return Outcome("again", error=error.reason, delay=error.after)
    # The first frames are Evenbeat's. Users look for the frames of their function.
    attempt.exception = error.with_traceback(_theirs(error.__traceback__))
    misfit = error if isinstance(error, Unfit) else _misfit(attempt) if isinstance(error, TypeError) else None
    if misfit is not None:
        return Outcome("unfit", error=f"{InvalidValue.__name__}: {misfit}")
    return Outcome("raised", error=describe(error), final=attempt.task.retry_rule.refusal(error))


def end_span(span: AttemptSpan, attempt: Attempt, outcome: Outcome) -> None:
    """End the span of an attempt with this outcome. If the worker has decided otherwise meanwhile, its
    decision counts: the outcome is ignored."""
    reason, error = attempt.control.cancel_reason, outcome.error
    if outcome.kind == "stopped" or attempt.is_decided:
        how = _STOPPED.get(reason or "", "failed")
        if how == "failed" and reason == "timeout":
            error = f"timed out after {write_duration(attempt.run.execution.timeout or 0)}"
    else:
        how = _HOW.get(outcome.kind, "failed")
    is_error = how in ("failed", "lost")
    span.end(how, error or f"the attempt was {how}" if is_error else None, attempt.exception)


_HOW: dict[str, AttemptOutcome] = {"returned": "succeeded", "again": "handed back", "died": "lost"}
_STOPPED: dict[str, AttemptOutcome] = {"cancelled": "cancelled", "stopping": "handed back", "lost": "lost"}


def _misfit(attempt: Attempt) -> InvalidValue | None:
    """Return the error if the function cannot be called with the names in the payload."""
    payload = attempt.context.payload
    try:
        attempt.task.check(payload if isinstance(payload, dict) else {})
    except InvalidValue as error:
        return error
    return None


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the leading frames of executors; all of it if there are no other
    frames."""
    first = trace
    while first is not None and _OURS in first.tb_frame.f_code.co_filename:
        first = first.tb_next
    return first or trace


def describe(error: BaseException) -> str:
    """Return the error in one line, then the traceback through the task's own code."""
    try:
        line = "".join(traceback.format_exception_only(error)).strip()
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _OURS not in frame.filename]
        where = "".join(traceback.format_list(frames[-30:])).rstrip()
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        because = "" if cause is None else f"\nbecause of {''.join(traceback.format_exception_only(cause))}"
        return f"{line}\n\n{where}{because.rstrip()}".strip()
    except Exception:  # an error whose own text raises
        return type(error).__name__


_NOTHING = Outcome("returned", "null")
_noted: set[str] = set()
"""Tasks whose results JSON changes. A node logs this once per task; the log of each run has it, too."""
_log = logging.getLogger("evenbeat.executors")
_OURS = __file__.removesuffix("base.py")
