"""The context of a run: a task receives it in a parameter annotated ``RunContext``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from evenbeat.core.checks import check_amount, check_text
from evenbeat.core.flows import FlowPlace
from evenbeat.core.instants import from_ms
from evenbeat.core.json_text import from_json
from evenbeat.core.records import Cause, RunRecord
from evenbeat.errors import RunCancelled
from evenbeat.rules.dependencies import predecessor_run
from evenbeat.rules.flow_parts import flow_place

LONGEST_NOTE = 200
"""Characters of a note on the progress of a run."""


class RunControl:
    """The worker's side of a run that is executed: why it should end, and whether its lease is held."""

    __slots__ = ("_holds", "cancel_reason")

    def __init__(self, holds: Callable[[], bool | None] = lambda: True) -> None:
        self._holds = holds
        self.cancel_reason: str | None = None
        """Why the run should end; None while it should not."""

    def request_cancel(self, reason: str) -> None:
        """Ask the run to end. The first reason counts, except that a lost lease overrides any other."""
        if self.cancel_reason is None or reason == "lost":
            self.cancel_reason = reason

    def holds_lease(self) -> bool | None:
        """Return whether the worker holds the lease; None if the store does not answer."""
        return False if self.cancel_reason == "lost" else self._holds()


class RunContext:
    """The run that a task executes, as the task sees it.

    A function with a parameter of this annotation receives it. For type checkers, make it the first
    parameter: ``def digest(run: RunContext, team: str)``.
    """

    __slots__ = ("_control", "_log", "_progress", "_record")

    def __init__(
        self,
        record: RunRecord,
        control: RunControl | None = None,
        log: Callable[[str], None] = lambda _: None,
        progress: Callable[[float, str, float | None], None] = lambda *_: None,
    ) -> None:
        self._record = record
        self._control = RunControl() if control is None else control
        self._log = log
        self._progress = progress

    @property
    def id(self) -> str:
        """The same for all attempts, and never used again: the idempotency key."""
        return self._record.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._record.task

    @property
    def tenant(self) -> str:
        """The tenant that the run belongs to."""
        return self._record.tenant

    @property
    def schedule(self) -> str | None:
        """The name of its schedule; None if it was enqueued by hand."""
        return self._record.schedule

    @property
    def tick(self) -> datetime | None:
        """The tick of this run: its nominal instant, however late the run starts."""
        return None if self._record.tick is None else from_ms(self._record.tick)

    @property
    def scheduled_at(self) -> datetime:
        """When the run was to start: its tick plus its share of the spread, or the time it was enqueued for.

        The same for every attempt.
        """
        return from_ms(self._record.scheduled_at)

    @property
    def cause(self) -> Cause:
        """What made the run: ``tick``, ``run_now``, ``backfill`` or ``enqueue``."""
        return self._record.cause

    @property
    def predecessor(self) -> str | None:
        """The id of the run whose success started this one (``on_success_of``); None if none did.

        The tick of that run is this run's ``tick``.
        """
        return predecessor_run(self._record)

    @property
    def flow(self) -> FlowPlace | None:
        """The flow that this run is a step of; None if it is not one."""
        return flow_place(self._record)

    @property
    def coalesced(self) -> int:
        """How many missed ticks this run stands for besides its own."""
        return self._record.coalesced

    @property
    def attempt(self) -> int:
        """The number of this attempt, 1 or more. It only grows: the fencing token."""
        return self._record.attempt

    @property
    def failures(self) -> int:
        """How many earlier attempts failed."""
        return self._record.failures

    @property
    def priority(self) -> int:
        """0 to 9: higher first."""
        return self._record.priority

    @property
    def queue(self) -> str:
        """The queue that the run waited in."""
        return self._record.queue

    @property
    def payload(self) -> Any:
        """The named arguments as they are stored: JSON, not converted by the function's annotations."""
        return from_json(self._record.payload)

    @property
    def cancel_requested(self) -> bool:
        """Whether the run should end soon; ``cancel_reason`` says why."""
        return self._control.cancel_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """``cancelled``, ``timeout``, ``lost`` or ``stopping``; None while the run should go on."""
        return self._control.cancel_reason

    def raise_if_cancelled(self) -> None:
        """Raise ``RunCancelled`` if this run should end. Call it between the steps of long work.

        While the store does not answer, the run goes on: it ends only when another worker is known to have
        it.
        """
        if self._control.cancel_reason is None and self._control.holds_lease() is False:
            self._control.request_cancel("lost")
        if self._control.cancel_reason is not None:
            raise RunCancelled(self._control.cancel_reason)

    def holds_lease(self) -> bool:
        """Return whether this worker holds the run's lease, so that no other worker executes it.

        Call it before an effect that must not happen twice. If the lease was not renewed in time, this asks
        the store, and returns False if the store does not answer.
        """
        return self._control.holds_lease() is True

    def log(self, text: str) -> None:
        """Add a line to the log of this run. Records of ``logging`` are added as well."""
        self._log(text)

    def progress(self, done: float, note: str = "", *, total: float | None = None) -> None:
        """Report how far the job is: ``progress(0.4, "step 2")``, or ``progress(4_312, total=10_000)``.

        Without a total, a float of 0.0 to 1.0 is a share: its total is 1. An int is a count.

        Call it as often as you like: the store gets the last value, once a second at most. ``runs.get`` and
        the dashboard show it while the attempt runs, and the last value after its end; the log has it, too.
        ``total`` may be an estimate that ``done`` exceeds. ``InvalidValue`` for a value that is not a number
        of 0 or more, and for a note of more than 200 characters.
        """
        amount = check_amount("done", done)
        of = None if total is None else check_amount("total", total)
        if of is None and type(amount) is float and amount <= 1:
            of = 1
        check_text("note", note, LONGEST_NOTE)
        self._progress(amount, note, of)

    def __repr__(self) -> str:
        return f"<RunContext {self.id} of {self.task}, attempt {self.attempt}>"
