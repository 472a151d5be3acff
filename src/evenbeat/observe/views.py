"""Turn records into what users get back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

import msgspec

from evenbeat.core import records
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.json_depth import TooDeep
from evenbeat.core.json_text import from_json
from evenbeat.core.rates import write_rate
from evenbeat.core.records import Execution
from evenbeat.core.results import (
    LogLine,
    QueueStats,
    RecentRun,
    Run,
    RunAttempt,
    RunWait,
    Schedule,
    ScheduleStats,
    SkippedTicks,
)
from evenbeat.errors import InvalidTrigger, InvalidValue
from evenbeat.observe.trigger_explanations import trigger_words
from evenbeat.rules import attempts
from evenbeat.rules.definitions import edits
from evenbeat.rules.dependencies import predecessor_run, predecessor_schedule
from evenbeat.rules.firing import catching_up, is_waiting
from evenbeat.rules.flow_parts import flow_part, flow_place, is_begun
from evenbeat.rules.inheritance import inherited_by, template_of
from evenbeat.rules.ownership import kind_of, source_of
from evenbeat.rules.ticks import next_start, spread_delay
from evenbeat.rules.waiting import Waiting
from evenbeat.stores.base import QueueCounts
from evenbeat.tasks.task import Tasks
from evenbeat.triggers import Trigger, parse_trigger

_LONGEST = timedelta.max // timedelta(milliseconds=1)


class _Texts(NamedTuple):
    """What the readable texts of a schedule say."""

    damage: str
    trigger: Trigger | None
    next_run: Instant | None
    payload: Any
    edited: dict[str, Any]


def _texts_of(schedule: records.ScheduleRecord) -> _Texts:
    damage, payload = schedule.damage, None
    edited: dict[str, Any] = {}
    trigger: Trigger | None = None
    next_run = schedule.next_tick
    try:
        trigger = parse_trigger(schedule.trigger)
        next_run = next_start(schedule)
    except InvalidTrigger as error:
        damage = damage or str(error)
    try:
        payload = from_json(schedule.payload)
        edited = {name: edit.declared for name, edit in edits(schedule).items()}
    except InvalidValue as error:
        damage = damage or str(error)
    except (msgspec.MsgspecError, UnicodeError) as error:
        damage = damage or f"payload: {error}"
    return _Texts(damage, trigger, next_run, payload, edited)


def damage_of(schedule: records.ScheduleRecord) -> str:
    """Return why a schedule can't be read; empty if it can. Some damage is inside of texts that stores return
    as they are: the trigger, the payload, and what the code declared."""
    return _texts_of(schedule).damage


def schedule_view(
    schedule: records.ScheduleRecord, last_run: Instant | None = None, trouble: str | None = None
) -> Schedule:
    """Return a schedule for users. ``last_run`` comes from its statistics, ``trouble`` from the note of a
    node that could not fire it."""
    damage, trigger, next_run, payload, edited = _texts_of(schedule)
    zone = UTC if trigger is None else trigger.tzinfo
    held = None if damage or trouble is not None else catching_up(schedule)
    return Schedule(
        name=schedule.name,
        tenant=schedule.tenant,
        task=schedule.task,
        trigger=schedule.trigger,
        words=trigger_words(schedule.trigger, schedule.name),
        state=schedule.state,
        next_run=_moment(next_run, zone),
        payload=payload,
        kind=schedule.kind,
        queue=schedule.queue,
        priority=schedule.priority,
        priority_name=records.PRIORITY_NAMES.get(schedule.priority),
        description=schedule.description,
        tags=tuple(schedule.tags.split()),
        catch_up=schedule.catch_up.kind,
        grace=_span(schedule.catch_up.grace),
        catch_up_limit=schedule.catch_up.limit,
        catch_up_max_age=None if schedule.catch_up.max_age is None else _span(schedule.catch_up.max_age),
        catch_up_rate=None if schedule.catch_up.rate is None else write_rate(schedule.catch_up.rate),
        overlap=schedule.overlap,
        max_concurrent=schedule.max_concurrent,
        spread=_span(schedule.spread),
        spread_delay=_span(spread_delay(schedule)),
        after=schedule.after or None,
        **_execution_options(schedule.execution),
        managed_by=kind_of(schedule.managed_by),
        source=source_of(schedule.managed_by),
        pause_note=schedule.pause_note,
        paused_until=_moment(schedule.paused_until),
        paused_by=schedule.paused_by,
        paused_at=_moment(schedule.paused_at),
        timezone=str(zone),
        last_enqueued_at=_moment(schedule.last_fire),
        last_run_at=_moment(last_run),
        is_waiting=not damage and trouble is None and is_waiting(schedule),
        catch_up_left=0 if held is None else held.ticks_left,
        catch_up_at=None if held is None else _moment(held.next_at),
        last_error=trouble,
        declared=bool(schedule.declared),
        edited=edited,
        template=template_of(schedule.template) or None,
        inherited=inherited_by(schedule.template),
        damage=damage,
        revision=schedule.revision,
        created_at=_shown(schedule.created_at),
        updated_at=_shown(schedule.updated_at),
    )


def run_view(run: records.RunRecord, tasks: Tasks | None = None) -> Run:
    """Return a run for users. ``tasks`` convert the result by the annotations of their functions."""
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
        predecessor=predecessor_run(run),
        predecessor_schedule=predecessor_schedule(run),
        coalesced=run.coalesced,
        # A command without the app can't know that what it enqueues is a flow.
        kind="flow" if is_begun(run) else run.kind,
        payload=_value(run.payload),
        queue=run.queue,
        priority=run.priority,
        priority_name=records.PRIORITY_NAMES.get(run.priority),
        # The changes of a flow count its attempt up: it has one.
        attempt=run.attempt if flow_part(run).state is None else 1,
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
        attempts=tuple(map(_attempt_view, attempts.ended_attempts(run))),
        expires_at=_moment(attempts.expires_at(run)),
        unique_key=run.unique_key,
        flow=flow_place(run),
        **_execution_options(run.execution),
    )


def recent_view(run: records.RunRecord) -> RecentRun:
    """Return a run in brief, with the duration and the lateness that ``Run`` has."""
    duration = lateness = None
    if run.started_at is not None:
        if run.finished_at is not None and (run.worker is not None or is_begun(run)):
            duration = _span(run.finished_at - run.started_at)
        if run.attempt == 1 or is_begun(run):
            lateness = _span(run.started_at - run.scheduled_at)
    return RecentRun(
        id=run.id,
        state=run.state,
        scheduled_at=_shown(run.scheduled_at),
        duration=duration,
        lateness=lateness,
    )


def with_refusals(run: Run, refused: Mapping[int, Instant]) -> Run:
    """Return the run with the instants at which late results of its attempts were refused."""
    attempts = (
        msgspec.structs.replace(attempt, refused_at=_moment(refused.get(attempt.number)))
        for attempt in run.attempts
    )
    return msgspec.structs.replace(run, attempts=tuple(attempts))


def _execution_options(execution: Execution) -> dict[str, Any]:
    """Return how runs are executed, under the names that the options were given with."""
    return {
        "retries": execution.retries,
        "backoff": _span(execution.backoff),
        "max_backoff": _span(execution.max_backoff),
        "timeout": None if execution.timeout is None else _span(execution.timeout),
        "on_crash": execution.on_crash,
        "max_crashes": execution.max_crashes,
        "expires": None if execution.expires is None else _span(execution.expires),
    }


def _result(run: records.RunRecord, tasks: Tasks | None) -> Any:
    if run.result is None:
        return None
    try:
        return _value(run.result) if tasks is None else tasks.read_result(run.task, run.result)
    except Exception:  # the user's class does not accept the stored value any more
        return _value(run.result)


def _value(text: str) -> Any:
    """Return the value of a JSON text; a text that is not JSON, edited by hand, is returned as it is."""
    try:
        return from_json(text)
    except TooDeep:
        return "(nested too deeply)"
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
    return RunWait(
        reason=waiting.reason,
        until=_moment(waiting.until),
        nodes=waiting.nodes,
        limit=None if waiting.hold is None else waiting.hold.limit.name,
    )


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
    """Return a datetime. An instant that was edited by hand may lie outside the calendar: use its edge."""
    return from_ms(min(max(instant, FIRST), LAST), zone)


def _span(ms: int) -> timedelta:
    """Return a duration. One that was edited by hand may be longer than a timedelta holds."""
    return timedelta(milliseconds=min(max(ms, 0), _LONGEST))
