"""Conversion between rows of SQL tables and records. Reading a row also checks its values beyond the types of
the columns, and raises ``Unreadable``; the caller decides what to do with such a row."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from evenbeat.core.json_text import decode_policy, encode_policy
from evenbeat.core.records import (
    CatchUp,
    Cause,
    Execution,
    Kind,
    LogChunk,
    Overlap,
    Record,
    RunRecord,
    RunState,
    ScheduleRecord,
    ScheduleState,
    Skipped,
    Statistics,
    Version,
)
from evenbeat.rules.definitions import DEFINITION
from evenbeat.stores.damage import Unreadable, check_counts, check_fired_fields, salvaged, salvaged_version

Row: TypeAlias = tuple[Any, ...]

SCHEDULE = (
    "tenant",
    "name",
    *DEFINITION,
    "state",
    "pause_note",
    "paused_until",
    "paused_by",
    "paused_at",
    "declared",
    "calendars",
    "followers",
    "anchor",
    "next_tick",
    "moved",
    "wake_at",
    "last_fire",
    "revision",
    "fire_seq",
    "generation",
    "created_at",
    "updated_at",
    "format",
)
RUN = (
    "id",
    "tenant",
    "schedule",
    "generation",
    "tick",
    "cause",
    "coalesced",
    "task",
    "kind",
    "payload",
    "queue",
    "priority",
    "execution",
    "state",
    "scheduled_at",
    "run_at",
    "attempt",
    "failures",
    "crashes",
    "worker",
    "claim",
    "lease_until",
    "cancel_requested",
    "created_at",
    "started_at",
    "finished_at",
    "result",
    "error",
    "fired_by",
    "trace",
    "cohort",
    "unique_key",
    "flow",
    "earlier",
    "settled",
    "format",
)
FIRED_FIELDS = (
    "next_tick",
    "moved",
    "wake_at",
    "last_fire",
    "fire_seq",
    "state",
    "pause_note",
    "paused_until",
    "paused_by",
    "paused_at",
)
"""The fields of a schedule that firing writes. Firing never writes the fields that users set."""
UNFIRED = ("declared", "followers", "template")
"""Texts of a schedule that firing neither reads nor writes."""
SKIPPED = Skipped.__struct_fields__
STATISTICS = Statistics.__struct_fields__
RECORD = ("kind", "tenant", "key", "version", "body", "expires")
LOG = LogChunk.__struct_fields__[:-1]  # without run_created_at, which is compared and not stored

_GENERATION, _REVISION, _FIRE_SEQ = (SCHEDULE.index(name) for name in ("generation", "revision", "fire_seq"))
_KINDS = frozenset(get_args(Kind))
_OVERLAPS = frozenset(get_args(Overlap))
_SCHEDULE_STATES = frozenset(get_args(ScheduleState))
_RUN_STATES = frozenset(get_args(RunState))
_CAUSES = frozenset(get_args(Cause))


class InvalidTextRow(tuple[Any, ...]):
    """A row with text that is not UTF-8 and was decoded with REPLACED. SQLite stores such bytes."""


REPLACED = "\N{REPLACEMENT CHARACTER}"
# The columns that decide how a run is executed; the others are for people.
_ESSENTIAL = tuple(
    RUN.index(name) for name in ("id", "tenant", "schedule", "task", "payload", "queue", "flow")
)


def read_schedule(row: Row) -> ScheduleRecord:
    """Read a schedule from a row that begins with the columns of SCHEDULE."""
    (
        tenant,
        name,
        task,
        trigger,
        kind,
        payload,
        queue,
        priority,
        description,
        tags,
        catch_up,
        overlap,
        max_concurrent,
        spread,
        execution,
        after,
        template,
        managed_by,
        state,
        pause_note,
        paused_until,
        paused_by,
        paused_at,
        declared,
        calendars,
        followers,
        anchor,
        next_tick,
        moved,
        wake_at,
        last_fire,
        revision,
        fire_seq,
        generation,
        created_at,
        updated_at,
        format_,
        *_,
    ) = row
    if type(row) is InvalidTextRow:
        raise Unreadable("the row holds text that is not UTF-8")
    if state not in _SCHEDULE_STATES or overlap not in _OVERLAPS or kind not in _KINDS:
        raise Unreadable(f"unknown state {state!r}, overlap {overlap!r} or kind {kind!r}")
    check_counts(generation, revision, fire_seq)
    schedule = ScheduleRecord(
        tenant=tenant,
        name=name,
        task=task,
        trigger=trigger,
        kind=kind,
        payload=payload,
        queue=queue,
        priority=priority,
        description=description,
        tags=tags,
        catch_up=_policy("catch_up", catch_up, CatchUp),
        overlap=overlap,
        max_concurrent=max_concurrent,
        spread=spread,
        execution=_policy("execution", execution, Execution),
        after=after,
        template=template,
        managed_by=managed_by,
        state=state,
        pause_note=pause_note,
        paused_until=paused_until,
        paused_by=paused_by,
        paused_at=paused_at,
        declared=declared,
        calendars=calendars,
        followers=followers,
        anchor=anchor,
        next_tick=next_tick,
        moved=moved,
        wake_at=wake_at,
        last_fire=last_fire,
        revision=revision,
        fire_seq=fire_seq,
        generation=generation,
        created_at=created_at,
        updated_at=updated_at,
        format=format_,
    )
    return check_fired_fields(schedule)


def key_of(row: Row) -> tuple[str, str]:
    """Return (tenant, name) of a schedule's row, even if the rest of the row can't be read."""
    return row[0], row[1]


def version_of(row: Row) -> Version:
    """Read the version of a schedule's row, even if the rest of the row can't be read."""
    return salvaged_version(row[_GENERATION], row[_REVISION], row[_FIRE_SEQ])


def schedule_row(schedule: ScheduleRecord) -> Row:
    s = schedule
    return (
        s.tenant,
        s.name,
        s.task,
        s.trigger,
        s.kind,
        s.payload,
        s.queue,
        s.priority,
        s.description,
        s.tags,
        encode_policy(s.catch_up),
        s.overlap,
        s.max_concurrent,
        s.spread,
        encode_policy(s.execution),
        s.after,
        s.template,
        s.managed_by,
        s.state,
        s.pause_note,
        s.paused_until,
        s.paused_by,
        s.paused_at,
        s.declared,
        s.calendars,
        s.followers,
        s.anchor,
        s.next_tick,
        s.moved,
        s.wake_at,
        s.last_fire,
        s.revision,
        s.fire_seq,
        s.generation,
        s.created_at,
        s.updated_at,
        s.format,
    )


def read_run(row: Row) -> RunRecord:
    """Read a run from a row that begins with the columns of RUN."""
    (
        id_,
        tenant,
        schedule,
        generation,
        tick,
        cause,
        coalesced,
        task,
        kind,
        payload,
        queue,
        priority,
        execution,
        state,
        scheduled_at,
        run_at,
        attempt,
        failures,
        crashes,
        worker,
        claim,
        lease_until,
        cancel_requested,
        created_at,
        started_at,
        finished_at,
        result,
        error,
        fired_by,
        trace,
        cohort,
        unique_key,
        flow,
        earlier,
        settled,
        format_,
        *_,
    ) = row
    if type(row) is InvalidTextRow and any(REPLACED in (row[at] or "") for at in _ESSENTIAL):
        raise Unreadable("the row holds text that is not UTF-8")
    if state not in _RUN_STATES or cause not in _CAUSES or kind not in _KINDS:
        raise Unreadable(f"unknown state {state!r}, cause {cause!r} or kind {kind!r}")
    check_counts(attempt, failures, crashes)
    return RunRecord(
        id=id_,
        tenant=tenant,
        schedule=schedule,
        generation=generation,
        tick=tick,
        cause=cause,
        coalesced=coalesced,
        task=task,
        kind=kind,
        payload=payload,
        queue=queue,
        priority=priority,
        execution=_policy("execution", execution, Execution),
        state=state,
        scheduled_at=scheduled_at,
        run_at=run_at,
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        worker=worker,
        claim=claim,
        lease_until=lease_until,
        cancel_requested=cancel_requested == 1,
        created_at=created_at,
        started_at=started_at,
        finished_at=finished_at,
        result=result,
        error=error,
        fired_by=fired_by,
        trace=trace,
        cohort=cohort,
        unique_key=unique_key,
        flow=flow,
        earlier=earlier,
        settled=settled,
        format=format_,
    )


def run_row(run: RunRecord) -> Row:
    r = run
    return (
        r.id,
        r.tenant,
        r.schedule,
        r.generation,
        r.tick,
        r.cause,
        r.coalesced,
        r.task,
        r.kind,
        r.payload,
        r.queue,
        r.priority,
        encode_policy(r.execution),
        r.state,
        r.scheduled_at,
        r.run_at,
        r.attempt,
        r.failures,
        r.crashes,
        r.worker,
        r.claim,
        r.lease_until,
        r.cancel_requested,
        r.created_at,
        r.started_at,
        r.finished_at,
        r.result,
        r.error,
        r.fired_by,
        r.trace,
        r.cohort,
        r.unique_key,
        r.flow,
        r.earlier,
        r.settled,
        r.format,
    )


def read_schedules(rows: list[Row]) -> list[ScheduleRecord]:
    """Read schedules. A damaged schedule has the fields that can be read, and defaults for the others."""
    found = []
    for row in rows:
        try:
            found.append(read_schedule(row))
        except Unreadable as error:
            found.append(salvaged(row[:2], dict(zip(SCHEDULE, row, strict=False)), error))
    return found


def readable_runs(rows: list[Row]) -> list[RunRecord]:
    found = []
    for row in rows:
        try:
            found.append(read_run(row))
        except Unreadable:
            continue
    return found


def read_skipped(row: Row) -> Skipped:
    return Skipped(**dict(zip(SKIPPED, row, strict=True)))


def skipped_row(skipped: Skipped) -> Row:
    return msgspec.structs.astuple(skipped)


def read_statistics(row: Row) -> Statistics:
    return Statistics(**dict(zip(STATISTICS, row, strict=True)))


def statistics_row(statistics: Statistics) -> Row:
    return msgspec.structs.astuple(statistics)


def read_record(row: Row) -> Record:
    return Record(**dict(zip(RECORD, row, strict=True)))


def record_row(record: Record) -> Row:
    return (record.kind, record.tenant, record.key, record.version, record.body, record.expires)


def read_log(row: Row) -> LogChunk:
    return LogChunk(**dict(zip(LOG, row, strict=True)))


def log_row(chunk: LogChunk) -> Row:
    return msgspec.structs.astuple(chunk)[:-1]


def _policy(field: str, text: str, kind: Any) -> Any:
    try:
        return decode_policy(text, kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unreadable(f"{field}: {error}") from error
