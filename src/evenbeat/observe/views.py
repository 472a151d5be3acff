"""Schedules and runs as users see them: datetimes instead of instants, values instead of JSON text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, TypeAlias

import msgspec

from evenbeat.core import records
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.records import (
    AttemptOutcome,
    CatchUpKind,
    Cause,
    Execution,
    Kind,
    OnCrash,
    Overlap,
    Reason,
    RunState,
    ScheduleState,
)
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.rules import attempts
from evenbeat.rules.changes import edits
from evenbeat.rules.firing import delay_of, is_waiting, next_start
from evenbeat.rules.waiting import Waiting, WaitReason
from evenbeat.stores.base import QueueCounts
from evenbeat.tasks.task import Tasks
from evenbeat.triggers import Trigger, parse_trigger

_LONGEST = timedelta.max // timedelta(milliseconds=1)

Trend: TypeAlias = Literal["empty", "drains", "steady", "grows", "stands still"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: what was said about it, and where it stands."""

    name: str
    tenant: str
    task: str
    trigger: str
    """Its text; ``parse_trigger`` makes a trigger of it."""
    state: ScheduleState
    next_run: datetime | None
    """When the coming tick fires, in the trigger's zone. None if there is none. While it is paused: the first
    after the pause, or, where that has no end, the one that would come."""
    payload: Any
    kind: Kind
    queue: str
    priority: int
    priority_name: str | None
    """``low``, ``normal`` or ``high``, where the number has a name."""
    description: str
    catch_up: CatchUpKind
    grace: timedelta
    catch_up_limit: int
    overlap: Overlap
    max_concurrent: int | None
    spread: timedelta
    spread_delay: timedelta
    """How much later than its ticks it fires: its share of the spread."""
    retries: int
    backoff: timedelta
    max_backoff: timedelta
    timeout: timedelta | None
    on_crash: OnCrash
    max_crashes: int
    managed_by: str
    pause_note: str
    paused_until: datetime | None
    paused_by: str
    paused_at: datetime | None
    timezone: str
    """Of the trigger: ``Europe/Berlin``; intervals and single instants have UTC."""
    last_enqueued_at: datetime | None
    """When it last added a run."""
    last_run_at: datetime | None
    """When one of its runs last ended."""
    is_waiting: bool
    """Whether its coming tick was due and waits for a run of it to end (``overlap``, ``max_concurrent``)."""
    last_error: str | None
    """Why it could not be fired, until it is fired again."""
    declared: bool
    """Whether code declared it: ``declare``, or a decorated task."""
    edited: dict[str, Any]
    """What was edited by hand since it was declared: the names of the options, and what the code says."""
    damage: str
    """Why the stored row can't be read, and is shown as far as it can be; empty if it can."""
    revision: int
    """Counts the changes of what was said."""
    created_at: datetime
    updated_at: datetime

    @property
    def paused(self) -> bool:
        return self.state == "paused"


class ScheduleStats(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a schedule's runs, over all time (R13)."""

    run_count: int
    success_count: int
    failure_count: int
    last_run: datetime | None
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str | None


class RunAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a run that is over."""

    number: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: AttemptOutcome
    """``succeeded``, ``failed``, ``cancelled``, ``lost`` (its worker died), ``handed back``."""
    error: str | None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was when it was looked at."""

    id: str
    tenant: str
    task: str
    state: RunState
    schedule: str | None
    tick: datetime | None
    scheduled_at: datetime
    """When it was to start: its tick with its share of the spread, else the time it was enqueued for. The
    same for every attempt."""
    run_at: datetime
    """Not before this: the tick, or the wait before a retry."""
    cause: Cause
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
    """What the function returned: converted by its annotation where the task is registered, else JSON."""
    error: str | None
    fired_by: str | None
    """The node that fired its tick; None if nobody had to."""
    attempts: tuple[RunAttempt, ...]
    """Those that are over, the oldest first; of very many only the latest."""
    retries: int
    backoff: timedelta
    max_backoff: timedelta
    timeout: timedelta | None
    on_crash: OnCrash
    max_crashes: int

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
        if self.started_at is None or self.finished_at is None or self.worker is None:
            return None
        return self.finished_at - self.started_at


class RunWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why a queued run has not started yet."""

    reason: WaitReason
    until: datetime | None
    """Of ``later``, ``retry`` and ``unfit``: when it is due."""
    nodes: tuple[str, ...]
    """The live nodes that have its task and take its queue."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it was when it was looked at, over all tenants."""

    name: str
    due: int
    """Runs that wait for a worker."""
    later: int
    """Runs that are queued for a time to come."""
    retrying: int
    """Those of ``due`` and ``later`` that have failed before."""
    running: int
    oldest_due: datetime | None
    """Since when a run has been due that nobody has taken."""
    came_due: int
    """Runs that came due in the period that was asked about, whatever became of them."""
    ended: int
    """Runs that ended in that period."""
    nodes: tuple[str, ...]
    """The live nodes that take runs from it."""

    @property
    def trend(self) -> Trend:
        """Whether what waits gets less: ``drains`` if more runs ended than came due, ``grows`` if fewer did,
        ``stands still`` if none ended, ``empty`` if nothing waits."""
        if not self.due:
            return "empty"
        if not self.ended:
            return "stands still"
        if self.ended == self.came_due:
            return "steady"
        return "drains" if self.ended > self.came_due else "grows"


class RefusedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ``retry_all`` or ``cancel_all`` has left as it was."""

    id: str
    why: str


class BulkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What ``retry_all`` or ``cancel_all`` did."""

    matched: int
    """How many runs were found."""
    done: int
    """How many of them are queued again, cancelled, or asked to stop; 0 of a dry run."""
    refused: tuple[RefusedRun, ...]
    """Those that could not be."""
    more: bool
    """Whether there were more than the limit allowed."""
    sample: tuple[Run, ...]
    """The newest few, as they were found."""


class SkippedTicks(msgspec.Struct, frozen=True, kw_only=True):
    """Ticks that did not become runs of their own, and why: a row of the ledger."""

    first: datetime
    last: datetime
    count: int
    reason: Reason
    recorded_at: datetime
    run: str | None
    """The run that stands for them, if they were coalesced."""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a run wrote to its log."""

    at: datetime
    attempt: int
    text: str


def schedule_view(
    schedule: records.ScheduleRecord, last_run: Instant | None = None, trouble: str | None = None
) -> Schedule:
    """``last_run`` is that of its statistics, ``trouble`` what a node noted that could not fire it."""
    damage, payload, edited = schedule.damage, None, {}
    trigger: Trigger | None = None
    next_run = schedule.next_tick
    try:
        trigger = parse_trigger(schedule.trigger)
        next_run = next_start(schedule)
    except InvalidTrigger as error:
        damage = damage or str(error)
    try:
        payload = records.from_json(schedule.payload)
        edited = {name: edit.declared for name, edit in edits(schedule).items()}
    except InvalidValue as error:
        damage = damage or str(error)
    except (msgspec.MsgspecError, UnicodeError) as error:
        damage = damage or f"payload: {error}"
    zone = UTC if trigger is None else trigger.tzinfo
    return Schedule(
        name=schedule.name,
        tenant=schedule.tenant,
        task=schedule.task,
        trigger=schedule.trigger,
        state=schedule.state,
        next_run=_moment(next_run, zone),
        payload=payload,
        kind=schedule.kind,
        queue=schedule.queue,
        priority=schedule.priority,
        priority_name=records.PRIORITY_NAMES.get(schedule.priority),
        description=schedule.description,
        catch_up=schedule.catch_up.kind,
        grace=_span(schedule.catch_up.grace),
        catch_up_limit=schedule.catch_up.limit,
        overlap=schedule.overlap,
        max_concurrent=schedule.max_concurrent,
        spread=_span(schedule.spread),
        spread_delay=_span(delay_of(schedule)),
        **_execution_options(schedule.execution),
        managed_by=schedule.managed_by,
        pause_note=schedule.pause_note,
        paused_until=_moment(schedule.paused_until),
        paused_by=schedule.paused_by,
        paused_at=_moment(schedule.paused_at),
        timezone=str(zone),
        last_enqueued_at=_moment(schedule.last_fire),
        last_run_at=_moment(last_run),
        is_waiting=not damage and trouble is None and is_waiting(schedule),
        last_error=trouble,
        declared=bool(schedule.declared),
        edited=edited,
        damage=damage,
        revision=schedule.revision,
        created_at=_shown(schedule.created_at),
        updated_at=_shown(schedule.updated_at),
    )


def run_view(run: records.RunRecord, tasks: Tasks | None = None) -> Run:
    """``tasks`` convert the result by the annotations of their functions."""
    return Run(
        id=run.id,
        tenant=run.tenant,
        task=run.task,
        state=run.state,
        schedule=run.schedule,
        tick=_moment(run.tick),
        scheduled_at=_shown(run.scheduled_at),
        run_at=_shown(run.run_at),
        cause=run.cause,
        coalesced=run.coalesced,
        kind=run.kind,
        payload=_value(run.payload),
        queue=run.queue,
        priority=run.priority,
        priority_name=records.PRIORITY_NAMES.get(run.priority),
        attempt=run.attempt,
        failures=run.failures,
        crashes=run.crashes,
        worker=run.worker,
        lease_until=_moment(run.lease_until),
        cancel_requested=run.cancel_requested,
        created_at=_shown(run.created_at),
        started_at=_moment(run.started_at),
        finished_at=_moment(run.finished_at),
        result=_result(run, tasks),
        error=run.error,
        fired_by=run.fired_by,
        attempts=tuple(map(_attempt_view, attempts.past(run))),
        **_execution_options(run.execution),
    )


def _execution_options(execution: Execution) -> dict[str, Any]:
    """Return how runs are executed, under the names that the options were given with."""
    return {
        "retries": execution.retries,
        "backoff": _span(execution.backoff),
        "max_backoff": _span(execution.max_backoff),
        "timeout": None if execution.timeout is None else _span(execution.timeout),
        "on_crash": execution.on_crash,
        "max_crashes": execution.max_crashes,
    }


def _result(run: records.RunRecord, tasks: Tasks | None) -> Any:
    if run.result is None:
        return None
    try:
        return _value(run.result) if tasks is None else tasks.read_result(run.task, run.result)
    except Exception:  # a class of the user's that takes what is stored no more
        return _value(run.result)


def _value(text: str) -> Any:
    """The value of a JSON text; one that is not JSON (somebody wrote it by hand) is shown as it is."""
    try:
        return records.from_json(text)
    except (msgspec.MsgspecError, UnicodeError):
        return text


def _attempt_view(attempt: records.AttemptRecord) -> RunAttempt:
    return RunAttempt(
        number=attempt.number,
        worker=attempt.worker,
        started_at=_moment(attempt.started_at),
        ended_at=_moment(attempt.ended_at),
        outcome=attempt.outcome,
        error=attempt.error,
    )


def wait_view(waiting: Waiting) -> RunWait:
    return RunWait(reason=waiting.reason, until=_moment(waiting.until), nodes=waiting.nodes)


def queue_view(counts: QueueCounts, nodes: tuple[str, ...]) -> QueueStats:
    return QueueStats(
        name=counts.queue,
        due=counts.due,
        later=counts.later,
        retrying=counts.retrying,
        running=counts.running,
        oldest_due=_moment(counts.oldest_due),
        came_due=counts.came_due,
        ended=counts.ended,
        nodes=nodes,
    )


def skipped_view(skipped: records.Skipped) -> SkippedTicks:
    return SkippedTicks(
        first=_shown(skipped.first),
        last=_shown(skipped.last),
        count=skipped.count,
        reason=skipped.reason,
        recorded_at=_shown(skipped.recorded_at),
        run=skipped.run,
    )


def stats_view(statistics: records.Statistics) -> ScheduleStats:
    return ScheduleStats(
        run_count=statistics.run_count,
        success_count=statistics.success_count,
        failure_count=statistics.failure_count,
        last_run=_moment(statistics.last_run),
        last_success=_moment(statistics.last_success),
        last_failure=_moment(statistics.last_failure),
        last_error=statistics.last_error,
    )


def log_line(chunk: records.LogChunk) -> LogLine:
    return LogLine(at=from_ms(chunk.at), attempt=chunk.attempt, text=chunk.text)


def _moment(instant: Instant | None, zone: tzinfo = UTC) -> datetime | None:
    return None if instant is None else _shown(instant, zone)


def _shown(instant: Instant, zone: tzinfo = UTC) -> datetime:
    """An instant that somebody wrote by hand may lie outside the calendar: its edge stands for it."""
    return from_ms(min(max(instant, FIRST), LAST), zone)


def _span(ms: int) -> timedelta:
    """Return a duration. One that was edited by hand may be longer than a timedelta holds."""
    return timedelta(milliseconds=min(max(ms, 0), _LONGEST))
