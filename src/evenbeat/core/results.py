"""What users get back: schedules, runs and their parts, as plain values.

Datetimes instead of instants, timedeltas instead of milliseconds, values instead of JSON text.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from evenbeat.core.flows import FlowPlace
from evenbeat.core.records import (
    AttemptOutcome,
    CatchUpKind,
    Cause,
    Kind,
    OnCrash,
    Overlap,
    Reason,
    RunState,
    ScheduleState,
)

Trend: TypeAlias = Literal["empty", "drains", "steady", "grows", "stands still"]
WaitReason: TypeAlias = Literal[
    "later", "retry", "unfit", "no_worker", "no_task", "no_queue", "limited", "busy", "next"
]
"""``later``: the run is not due yet. ``retry``: it failed and waits for its next attempt. ``unfit``: the code
of a node did not fit its payload, and it waits for another node. ``no_worker``: no live node executes runs.
``no_task``, ``no_queue``: no live node has its task, or none of those takes its queue. ``limited``: a limit
does not admit it now. ``busy``: all slots of the nodes that could execute it are in use. ``next``: one of
them takes it any moment."""


class ChangeWarning(msgspec.Struct, frozen=True, kw_only=True):
    """Why a change may have no effect, or what it does to other schedules, though it was made."""

    problem: str
    hint: str | None
    """What to do; None if nothing is known."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: its definition and its state."""

    name: str
    tenant: str
    task: str
    trigger: str
    """The trigger as text; ``parse_trigger`` turns it into a trigger."""
    words: str
    """The trigger in plain English; if it can't be read, the reason."""
    state: ScheduleState
    next_run: datetime | None
    """When the next tick fires, in the trigger's zone; None if there is none. While the schedule is paused:
    the first tick after the pause, or, if the pause has no end, the tick that would come next."""
    payload: Any
    kind: Kind
    queue: str
    priority: int
    priority_name: str | None
    """``low``, ``normal`` or ``high``, where the number has a name."""
    description: str
    tags: tuple[str, ...]
    catch_up: CatchUpKind
    grace: timedelta
    catch_up_limit: int
    catch_up_max_age: timedelta | None
    catch_up_rate: str | None
    overlap: Overlap
    max_concurrent: int | None
    spread: timedelta
    spread_delay: timedelta
    """How much later than its ticks it fires: its share of the spread."""
    after: str | None
    """The schedules that must have succeeded lately before a tick fires: ``load within 1h``."""
    retries: int
    backoff: timedelta
    max_backoff: timedelta
    timeout: timedelta | None
    on_crash: OnCrash
    max_crashes: int
    expires: timedelta | None
    managed_by: str
    """``code`` or ``file`` if one of these declares it; else ``api``."""
    source: str
    """The label of the app or file that declares it; empty if it has none."""
    pause_note: str
    paused_until: datetime | None
    paused_by: str
    paused_at: datetime | None
    timezone: str
    """The zone of the trigger, like ``Europe/Berlin``; UTC for intervals and single instants."""
    last_enqueued_at: datetime | None
    """When it last added a run."""
    last_run_at: datetime | None
    """When one of its runs last ended."""
    is_waiting: bool
    """Whether a tick is due and waits for a run of this schedule to end (``overlap``, ``max_concurrent``), or
    for another schedule to succeed (``after``)."""
    catch_up_left: int
    """How many missed ticks ``catch_up_rate`` held back when the schedule last fired; 0 if it is not catching
    up."""
    catch_up_at: datetime | None
    """When the next of them fires; None if the schedule is not catching up."""
    last_error: str | None
    """Why a node could not fire the schedule; None once it fires again."""
    declared: bool
    """Whether code declares it: by ``declare``, or with a decorated task."""
    edited: dict[str, Any]
    """Options that were edited by hand since the declaration: their names, and the values in the code."""
    template: str | None
    """The template from which it inherits; None without one."""
    inherited: tuple[str, ...]
    """The options whose values come from the template; the others are its own."""
    damage: str
    """Why parts of the stored row can't be read; empty if all of it can."""
    revision: int
    """The number of changes of the definition."""
    created_at: datetime
    updated_at: datetime
    warnings: tuple[ChangeWarning, ...] = ()
    """In the result of ``add``, ``declare`` and ``update``: the task is not known. Empty elsewhere."""

    @property
    def paused(self) -> bool:
        return self.state == "paused"


class ScheduleStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counts and last results of a schedule's runs, over all time."""

    run_count: int
    success_count: int
    failure_count: int
    last_run: datetime | None
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str | None


class RecentRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the last runs of a schedule, in brief."""

    id: str
    state: RunState
    scheduled_at: datetime
    """When it was to start."""
    duration: timedelta | None
    """How long the attempt took that ended the run; None if no attempt did."""
    lateness: timedelta | None
    """How long after ``scheduled_at`` the run started; None if it has not started, or was retried."""


class RunAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a run that has ended."""

    number: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: AttemptOutcome
    """``succeeded``, ``failed``, ``cancelled``, ``lost`` (its worker died), ``handed back``."""
    error: str | None
    refused_at: datetime | None = None
    """When a late result of this attempt was refused: its worker had lost its lease. Only ``runs.get`` reads
    it."""


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, or was at its end, as it reported by ``run.progress(…)``."""

    done: float | int
    total: float | int | None
    note: str
    at: datetime
    """When the store got the value: up to a second or two after the report."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as it was when it was read."""

    id: str
    tenant: str
    task: str
    state: RunState
    schedule: str | None
    tick: datetime | None
    scheduled_at: datetime
    """When it was to start: its tick plus its share of the spread, or the time it was enqueued for. The same
    for every attempt."""
    run_at: datetime
    """When it may start at the earliest; a retry moves it."""
    cause: Cause
    predecessor: str | None
    """The id of the run whose success started this one, which has the same tick; None if none did."""
    predecessor_schedule: str | None
    """The schedule of that run. In lists, None if a user started that run: its id does not say."""
    coalesced: int
    kind: Kind
    payload: Any
    """The named arguments as they are stored: JSON."""
    queue: str
    priority: int
    priority_name: str | None
    """``low``, ``normal`` or ``high``, where the number has a name."""
    attempt: int
    failures: int
    crashes: int
    worker: str | None
    lease_until: datetime | None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    """The return value: converted by the annotation if the task is registered here, else plain JSON."""
    error: str | None
    fired_by: str | None
    """The node that fired its tick; None if it has no tick."""
    attempts: tuple[RunAttempt, ...]
    """The attempts that have ended, the oldest first; only the latest 20 or so are kept."""
    retries: int
    backoff: timedelta
    max_backoff: timedelta
    timeout: timedelta | None
    on_crash: OnCrash
    max_crashes: int
    expires: timedelta | None
    expires_at: datetime | None
    """When it is cancelled if it has not started by then: ``expires`` after ``scheduled_at``."""
    unique_key: str | None
    """Of a unique run: its key, or ``payload`` with a digest of the payload."""
    flow: FlowPlace | None = None
    """Of a step of a flow: the flow's run, and its place there."""
    progress: RunProgress | None = None
    """The last progress that the present attempt reported, or the one that ended the run; None if it reported
    none. Only ``runs.get`` reads it."""

    @property
    def is_retrying(self) -> bool:
        """Whether it has failed and waits for its next attempt."""
        return self.state == "queued" and self.failures > 0

    @property
    def lateness(self) -> timedelta | None:
        """How long after ``scheduled_at`` the run started; None if it has not started, or was retried: only
        the latest start is known."""
        if self.started_at is None or self.attempt != 1:
            return None
        return max(timedelta(0), self.started_at - self.scheduled_at)

    @property
    def duration(self) -> timedelta | None:
        """How long the attempt took that ended the run; None if no attempt did."""
        # A run that is cancelled while it waits for a retry has no worker.
        if self.started_at is None or self.finished_at is None:
            return None
        return None if self.worker is None and self.kind != "flow" else self.finished_at - self.started_at


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list of runs."""

    items: tuple[Run, ...]
    cursor: str | None
    """Continues after these; None at the end."""


class RunWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queued run has not started yet."""

    reason: WaitReason
    until: datetime | None
    """With ``later``, ``retry`` and ``unfit``: when the run is due. With ``limited``: when the rate of the
    limit admits the next run; None if a running one has to end first."""
    nodes: tuple[str, ...]
    """The live nodes that have its task and take its queue."""
    limit: str | None = None
    """With ``limited``: the name of the limit."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue over all tenants, as it was when it was read."""

    name: str
    due: int
    """Runs that wait for a worker."""
    later: int
    """Runs that are queued for a time to come."""
    retrying: int
    """Those of ``due`` and ``later`` that have failed before."""
    running: int
    oldest_due: datetime | None
    """Since when the oldest of the ``due`` runs has been due."""
    came_due: int
    """Runs that came due in the period, whatever became of them."""
    ended: int
    """Runs that ended in that period."""
    nodes: tuple[str, ...]
    """The live nodes that take runs from it."""

    @property
    def trend(self) -> Trend:
        """``drains`` if more runs ended than came due, ``grows`` if fewer did, ``steady`` if as many did,
        ``stands still`` if none ended, ``empty`` if no run waits."""
        if not self.due:
            return "empty"
        if not self.ended:
            return "stands still"
        if self.ended == self.came_due:
            return "steady"
        return "drains" if self.ended > self.came_due else "grows"


Item = TypeVar("Item")


class RefusedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run or a schedule that a bulk change could not change."""

    tenant: str
    id: str
    """The id of the run, or the name of the schedule."""
    why: str


class ChangedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run or a schedule that a bulk change has changed."""

    tenant: str
    id: str
    """The id of the run, or the name of the schedule."""


class BulkResult(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """The outcome of a bulk change, such as ``runs.retry_all`` or ``schedules.pause_all``."""

    matched: int
    """How many runs or schedules were found."""
    done: int
    """How many of them were changed; 0 for a dry run."""
    changed: tuple[ChangedItem, ...]
    """Those that were changed."""
    refused: tuple[RefusedItem, ...]
    """The others, each with the reason; of a dry run of schedules, those that would be refused."""
    more: bool
    """Whether more of them match than the limit allows."""
    sample: tuple[Item, ...]
    """The first few of them, as they were before the change: the newest runs, or schedules by name."""
    warnings: tuple[ChangeWarning, ...] = ()
    """Of ``schedules.delete_all``: schedules that wait for deleted ones. Also for a dry run."""


class DeletedSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was deleted."""

    name: str
    tenant: str
    warnings: tuple[ChangeWarning, ...] = ()
    """Schedules that wait for it."""


class SkippedTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks that did not become runs of their own, and why: an entry of the ledger."""

    first: datetime
    last: datetime
    count: int
    reason: Reason
    recorded_at: datetime
    run: str | None
    """The run that stands for these ticks, if they were coalesced."""


class ResumePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What a resume of a schedule would do now."""

    missed: int
    """How many ticks came due in the pause, and since its end if no node has noticed that end yet. More than
    the other numbers together, if ticks have to wait for a node."""
    coalesced: int
    """How many of them a later run stands for."""
    runs: int
    """How many runs it adds at once: with ``catch_up``, or if the end of the pause has passed already."""
    skipped: int
    """How many of them it records as skipped."""
    next_run: datetime | None
    """When the schedule fires next, in the trigger's zone; None if it has no tick to come."""
    sentence: str
    """All this for people."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's log."""

    at: datetime
    attempt: int
    text: str
