"""Schedules and runs as users see them: datetimes instead of instants, values instead of JSON text."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from evenbeat import model
from evenbeat.instants import Instant, from_ms
from evenbeat.model import Cause, Kind, Reason, RunState, ScheduleState
from evenbeat.rules.firing import coming
from evenbeat.tasks import Tasks
from evenbeat.triggers import Trigger, parse_trigger


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: what was said about it, and where it stands."""

    name: str
    tenant: str
    task: str
    trigger: str
    """Its text; ``parse_trigger`` makes a trigger of it."""
    state: ScheduleState
    next_run: datetime | None
    """The coming tick, in the trigger's zone. None if there is none. While it is paused: the first after the
    pause, or, where that has no end, the one that would come."""
    payload: Any
    kind: Kind
    queue: str
    priority: int
    description: str
    catch_up: model.CatchUp
    overlap: model.Overlap
    max_concurrent: int | None
    spread: int
    """Milliseconds."""
    execution: model.Execution
    managed_by: str
    pause_note: str
    paused_until: datetime | None
    revision: int
    """Counts the changes of what was said."""
    created_at: datetime
    updated_at: datetime


class ScheduleHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a schedule's runs, over all time (R13)."""

    run_count: int
    success_count: int
    failure_count: int
    last_run: datetime | None
    last_success: datetime | None
    last_failure: datetime | None
    last_error: str | None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was when it was looked at."""

    id: str
    tenant: str
    task: str
    state: RunState
    schedule: str | None
    tick: datetime | None
    scheduled_at: datetime
    """What it was meant for: its tick, else the time it was enqueued for. The same for every attempt."""
    run_at: datetime
    """Not before this: the tick, or the wait before a retry."""
    cause: Cause
    coalesced: int
    kind: Kind
    payload: Any
    """The named arguments as they are stored: JSON."""
    queue: str
    priority: int
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
    execution: model.Execution

    @property
    def lateness(self) -> float | None:
        """Seconds from when it was to start to its start; None if it has not started, or was tried again:
        only the latest start is known."""
        if self.started_at is None or self.attempt != 1:
            return None
        return max(0.0, (self.started_at - self.scheduled_at).total_seconds())

    @property
    def duration(self) -> float | None:
        """Seconds that the latest attempt took; None if it has not ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


class SkippedInfo(msgspec.Struct, frozen=True, kw_only=True):
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


def schedule_info(schedule: model.Schedule) -> ScheduleInfo:
    return ScheduleInfo(
        name=schedule.name,
        tenant=schedule.tenant,
        task=schedule.task,
        trigger=schedule.trigger,
        state=schedule.state,
        next_run=_in_zone_of(parse_trigger(schedule.trigger), coming(schedule)),
        payload=model.from_json(schedule.payload),
        kind=schedule.kind,
        queue=schedule.queue,
        priority=schedule.priority,
        description=schedule.description,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        max_concurrent=schedule.max_concurrent,
        spread=schedule.spread,
        execution=schedule.execution,
        managed_by=schedule.managed_by,
        pause_note=schedule.pause_note,
        paused_until=_moment(schedule.paused_until),
        revision=schedule.revision,
        created_at=from_ms(schedule.created_at),
        updated_at=from_ms(schedule.updated_at),
    )


def run_info(run: model.Run, tasks: Tasks | None = None) -> RunInfo:
    """``tasks`` convert the result by the annotations of their functions."""
    if run.result is None or tasks is None:
        result = None if run.result is None else model.from_json(run.result)
    else:
        result = tasks.read_result(run.task, run.result)
    return RunInfo(
        id=run.id,
        tenant=run.tenant,
        task=run.task,
        state=run.state,
        schedule=run.schedule,
        tick=_moment(run.tick),
        scheduled_at=from_ms(run.scheduled_at),
        run_at=from_ms(run.run_at),
        cause=run.cause,
        coalesced=run.coalesced,
        kind=run.kind,
        payload=model.from_json(run.payload),
        queue=run.queue,
        priority=run.priority,
        attempt=run.attempt,
        failures=run.failures,
        crashes=run.crashes,
        worker=run.worker,
        lease_until=_moment(run.lease_until),
        cancel_requested=run.cancel_requested,
        created_at=from_ms(run.created_at),
        started_at=_moment(run.started_at),
        finished_at=_moment(run.finished_at),
        result=result,
        error=run.error,
        execution=run.execution,
    )


def skipped_info(skipped: model.Skipped) -> SkippedInfo:
    return SkippedInfo(
        first=from_ms(skipped.first),
        last=from_ms(skipped.last),
        count=skipped.count,
        reason=skipped.reason,
        recorded_at=from_ms(skipped.recorded_at),
        run=skipped.run,
    )


def history(statistics: model.Statistics) -> ScheduleHistory:
    return ScheduleHistory(
        run_count=statistics.run_count,
        success_count=statistics.success_count,
        failure_count=statistics.failure_count,
        last_run=_moment(statistics.last_run),
        last_success=_moment(statistics.last_success),
        last_failure=_moment(statistics.last_failure),
        last_error=statistics.last_error,
    )


def log_line(chunk: model.LogChunk) -> LogLine:
    return LogLine(at=from_ms(chunk.at), attempt=chunk.attempt, text=chunk.text)


def _moment(instant: Instant | None) -> datetime | None:
    return None if instant is None else from_ms(instant)


def _in_zone_of(trigger: Trigger, instant: Instant | None) -> datetime | None:
    return None if instant is None else from_ms(instant, trigger.tzinfo)
