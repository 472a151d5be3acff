"""What an executor is, and what it gets: an attempt in, an outcome out."""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from evenbeat.core.clocks import steady_clock
from evenbeat.core.records import RunRecord
from evenbeat.errors import InvalidValue, RunCancelled
from evenbeat.observe.logs import run_fields
from evenbeat.observe.run_logs import RunLog
from evenbeat.processes import begun, forks
from evenbeat.tasks.context import RunContext, RunControl
from evenbeat.tasks.conversion import Unfit
from evenbeat.tasks.task import Task

# Seconds between two questions to a store that is away.
_ASK_AGAIN = 1.0


class Outcome(NamedTuple):
    """How the execution of an attempt ended."""

    kind: Literal["returned", "raised", "unfit", "stopped", "died", "timeout", "released", "lost"]
    """``unfit``: the function of this node can't be called with the payload. ``stopped``: it ended because it
    was asked to. ``died``: its process did. The last three are the worker's own decisions: the function may
    still be running, and counts no more."""
    result: str | None = None
    """JSON text."""
    error: str | None = None
    """The error in a line, then where it came from."""


class Attempt:
    """A run that this worker has claimed: from the claim to the moment that its end is recorded."""

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
        "lease_end",
        "log",
        "over",
        "overdue",
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
        """When it was claimed, at the latest; this and the others by ``clock``."""
        self.lease_end = claimed + lease
        """Until then the lease is held for certain."""
        self.began: float | None = None
        self.over: float | None = None
        self.overdue: float | None = None
        """When it was asked to end because it took longer than it may."""
        self.exception: BaseException | None = None
        """What the function raised, if that happened in this process."""
        self.is_decided = False
        """Whether the end of the attempt is decided: a later result of the function is ignored."""
        self.log = RunLog(run)
        self.control = RunControl(lambda: self._held(ask))
        self.context = RunContext(run, self.control, self.log.add)
        self._clock = clock
        self._ask_at = float("-inf")
        # Taken by who begins or withdraws it: one of them, since popping is atomic.
        self._ticket = [True]
        self._born = forks.generation
        self._place: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return (self.run.id, self.run.attempt)

    def begin(self) -> bool:
        """Called by the executor right before the function: False if it must not be executed any more."""
        if not self._ticket or self._born != forks.generation:
            return False
        try:
            self._ticket.pop()
        except IndexError:
            return False
        self.began = self._clock()
        if begun.here is not None:
            self._place = begun.here.add(self.run.id, self.run.attempt)
        return True

    def end(self) -> None:
        """Called by the executor when the function has ended, before it says how."""
        if begun.here is not None and self._place is not None:
            begun.here.end(self._place)
            self._place = None

    def withdraw(self) -> bool:
        """Keep it from being begun; False if it was, or is withdrawn already."""
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
            # Each question may take as long as the store's timeout: a function that asks often must go on.
            self._ask_at = self._clock() + _ASK_AGAIN
        return answer


Ended: TypeAlias = Callable[[Attempt, Outcome], None]


class Executor(Protocol):
    """Executes attempts, at most so many at once, and tells how each ended: once, from any thread."""

    def start(self, ended: Ended) -> None:
        """Get ready. Threads and processes are made when they are first needed."""

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Execute these, in this order; beyond the number at once they wait here.

        ``attempt.begin()`` is called right before each; where it answers False the attempt is dropped and
        ``ended`` is not called. ``attempt.end()`` is called right after.
        """

    def interrupt(self, attempt: Attempt) -> None:
        """Make it end by the means of this kind: cancel a coroutine, kill a process.

        A thread can't be made to; its function was asked (``run.raise_if_cancelled()``).
        """

    def stop(self) -> None:
        """No more. What still runs is left behind, or killed where that can be done."""


def returned(attempt: Attempt, value: object) -> Outcome:
    """The outcome of a function that returned. What is not JSON is not kept, and what JSON changes is kept as
    that; the log says so. The work is done, and doing it again would be worse."""
    if attempt.control.cancel_reason == "timeout":
        attempt.log.add("WARNING evenbeat: it returned after its timeout, which counts as success")
        _log.warning("a run returned after its timeout", extra=run_fields(attempt.run))
    if value is None:
        return _NOTHING
    if inspect.isawaitable(value) or inspect.isgenerator(value):
        # The function has begun nothing: taking this for success would hide that.
        if inspect.iscoroutine(value):
            value.close()
        what = f"the task returned a {type(value).__name__}, which nobody runs"
        return Outcome("raised", error=f"TypeError: {what}; make it an async def and await there")
    try:
        text, changed = attempt.task.write_result(value)
    except InvalidValue as error:
        attempt.log.add(f"WARNING evenbeat: the result is not kept: {error}")
        _log.warning("a result is not kept: %s", error, extra=run_fields(attempt.run))
        return _NOTHING
    if changed is not None:
        attempt.log.add(f"WARNING evenbeat: {changed}")
        if attempt.run.task not in _noted:
            _noted.add(attempt.run.task)
            _log.warning("a result comes back as something else: %s", changed, extra=run_fields(attempt.run))
    return Outcome("returned", text)


def raised(attempt: Attempt, error: BaseException) -> Outcome:
    """The outcome of a function that raised, whatever it was: also SystemExit harms nobody."""
    if isinstance(error, RunCancelled) and attempt.control.cancel_reason is not None:
        return Outcome("stopped", error=str(error))
    # Ours are the first frames: whoever reads the traceback looks for the function's.
    attempt.exception = error.with_traceback(_theirs(error.__traceback__))
    misfit = error if isinstance(error, Unfit) else _misfit(attempt) if isinstance(error, TypeError) else None
    if misfit is not None:
        return Outcome("unfit", error=f"{InvalidValue.__name__}: {misfit}")
    return Outcome("raised", error=describe(error))


def _misfit(attempt: Attempt) -> InvalidValue | None:
    """What is wrong with the names in the payload, if the function can't be called with them."""
    payload = attempt.context.payload
    try:
        attempt.task.check(payload if isinstance(payload, dict) else {})
    except InvalidValue as error:
        return error
    return None


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not an executor's; all of it if there is none."""
    first = trace
    while first is not None and _OURS in first.tb_frame.f_code.co_filename:
        first = first.tb_next
    return first or trace


def describe(error: BaseException) -> str:
    """The error in a line, then the way it came through the task's own code."""
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
"""Tasks whose results JSON changes: the logs of nodes say so once, those of runs each time."""
_log = logging.getLogger("evenbeat.executors")
_OURS = __file__.removesuffix("base.py")
