"""Conversion between hashes and records. Every value is text: names, instants in RFC 3339, and digits.

Values that scripts and people read have their own fields; the others are one field of JSON. Each field
costs time in every script: with a field for each value, adding and claiming a run cost the server nearly
twice as much.

A field of a schedule without a value is empty; a field of a run is missing, or empty if it is an instant.
Reading checks everything, and raises ``Unreadable``; the caller decides what to do with such a hash.
"""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import msgspec

from evenbeat.core.records import (
    CatchUp,
    Cause,
    Execution,
    Kind,
    Overlap,
    RunRecord,
    RunState,
    ScheduleRecord,
    ScheduleState,
)
from evenbeat.errors import RowRefused
from evenbeat.stores.damage import Unreadable, check_counts, check_fired_fields, salvaged
from evenbeat.stores.redis.encoding import (
    Fields,
    check_text,
    checked_priority,
    fields_of,
    instant_of,
    instant_text,
    number_text,
    optional_instant,
    optional_text,
    path_of,
    raw_policy,
    read_member,
    read_policy,
)

_OVERLAPS = frozenset(get_args(Overlap))
_SCHEDULE_STATES = frozenset(get_args(ScheduleState))
_RUN_STATES = frozenset(get_args(RunState))


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values of a schedule that users set and no script needs: the field ``definition``, as JSON.

    A missing value has the default of this class, whatever the defaults of later versions are.
    """

    kind: Kind = "task"
    payload: str = "null"
    queue: str
    priority: int
    description: str = ""
    tags: str = ""
    catch_up: msgspec.Raw
    spread: int = 0
    execution: msgspec.Raw
    template: str = ""
    calendars: str = ""
    managed_by: str
    anchor: str
    created_at: str


class RunDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values of a run that never change and no script needs: the field ``definition``, as JSON."""

    kind: Kind = "task"
    cause: Cause
    scheduled_at: str
    generation: int | None = None
    tick: str | None = None
    coalesced: int = 0
    execution: msgspec.Raw
    fired_by: str | None = None
    trace: str | None = None
    unique_key: str | None = None


class _RunKind(msgspec.Struct, frozen=True):
    kind: str = "task"


_encode = msgspec.json.Encoder().encode
_read_run_kind = msgspec.json.Decoder(_RunKind).decode
_read_schedule_rest = msgspec.json.Decoder(ScheduleDefinition).decode
_read_run_rest = msgspec.json.Decoder(RunDefinition).decode


def _definition(rest: ScheduleDefinition | RunDefinition) -> str:
    try:
        return _encode(rest).decode()
    except (UnicodeEncodeError, OverflowError) as error:
        raise RowRefused(str(error), "Redis cannot store a value") from error


_INSTANTS = frozenset(
    (
        "next_tick",
        "moved",
        "wake_at",
        "last_fire",
        "paused_until",
        "paused_at",
        "anchor",
        "created_at",
        "updated_at",
    )
)
_NUMBERS = frozenset(("max_concurrent", "generation", "revision", "fire_seq", "format"))

SCHEDULE = (
    # take_due.lua reads the first four.
    "overlap",
    "max_concurrent",
    "trigger",
    "after",
    "tenant",
    "name",
    "task",
    "state",
    "next_run",
    "moved",
    "wake_at",
    "last_fire",
    "generation",
    "revision",
    "fire_seq",
    "paused_until",
    "pause_note",
    "paused_by",
    "paused_at",
    "updated_at",
    "format",
    "definition",
)
RUN = (
    "state",
    "attempt",
    "tenant",
    "id",
    "task",
    "run_at",
    "queue",
    "priority",
    "created_at",
    "format",
    "definition",
    "payload",
    "schedule",
    "cohort",
    "worker",
    "claim",
    "result",
    "error",
    "flow",
    "earlier",
    "settled",
    "failures",
    "crashes",
    "cancel_requested",
    "lease_until",
    "started_at",
    "finished_at",
)
"""The fields of a run in Redis; those without a value are missing."""


def schedule_fields(s: ScheduleRecord) -> list[str]:
    rest = ScheduleDefinition(
        kind=s.kind,
        payload=s.payload,
        queue=s.queue,
        priority=checked_priority(s.priority),
        description=s.description,
        tags=s.tags,
        catch_up=raw_policy(s.catch_up),
        spread=s.spread,
        execution=raw_policy(s.execution),
        template=s.template,
        calendars=s.calendars,
        managed_by=s.managed_by,
        anchor=instant_text(s.anchor),
        created_at=instant_text(s.created_at),
    )
    return [
        "tenant",
        s.tenant,
        "name",
        s.name,
        "task",
        s.task,
        "trigger",
        s.trigger,
        "overlap",
        s.overlap,
        "max_concurrent",
        "" if s.max_concurrent is None else number_text(s.max_concurrent),
        "after",
        s.after,
        "followers",
        s.followers,
        "generation",
        number_text(s.generation),
        "revision",
        number_text(s.revision),
        "updated_at",
        instant_text(s.updated_at),
        "format",
        number_text(s.format),
        *fired_fields(s),
        "definition",
        _definition(rest),
        "declared",
        s.declared,
    ]


def fired_fields(s: ScheduleRecord, before: ScheduleRecord | None = None) -> list[str]:
    """Return the fields that firing writes and that differ; never those that users set."""
    fields = [
        "next_run",
        optional_text(s.next_tick),
        "wake_at",
        optional_text(s.wake_at),
        "fire_seq",
        number_text(s.fire_seq),
    ]
    if before is None or s.last_fire != before.last_fire:
        fields += ("last_fire", optional_text(s.last_fire))
    if before is None or s.state != before.state:
        fields += ("state", s.state)
    if before is None or s.moved != before.moved:
        fields += ("moved", optional_text(s.moved))
    if before is None or s.paused_until != before.paused_until:
        fields += ("paused_until", optional_text(s.paused_until))
    if before is None or s.pause_note != before.pause_note:
        fields += ("pause_note", s.pause_note)
    if before is None or s.paused_by != before.paused_by:
        fields += ("paused_by", s.paused_by)
    if before is None or s.paused_at != before.paused_at:
        fields += ("paused_at", optional_text(s.paused_at))
    return fields


def read_schedule(fields: Fields) -> ScheduleRecord:
    try:
        check_text(fields)
        rest = _read_schedule_rest(fields["definition"])
        state, overlap, most = fields["state"], fields["overlap"], fields["max_concurrent"]
        if state not in _SCHEDULE_STATES or overlap not in _OVERLAPS:
            raise Unreadable(f"unknown state {state!r} or overlap {overlap!r}")
        check_counts(int(fields["generation"]), int(fields["revision"]), int(fields["fire_seq"]))
        schedule = ScheduleRecord(
            tenant=fields["tenant"],
            name=fields["name"],
            task=fields["task"],
            trigger=fields["trigger"],
            kind=rest.kind,
            payload=rest.payload,
            queue=rest.queue,
            priority=checked_priority(rest.priority),
            description=rest.description,
            tags=rest.tags,
            catch_up=read_policy(bytes(rest.catch_up), CatchUp),
            overlap=overlap,  # type: ignore[arg-type]  # it was just checked
            max_concurrent=int(most) if most else None,
            spread=rest.spread,
            execution=read_policy(bytes(rest.execution), Execution),
            after=fields.get("after", ""),
            template=rest.template,
            managed_by=rest.managed_by,
            state=state,  # type: ignore[arg-type]  # it was just checked
            pause_note=fields["pause_note"],
            paused_until=optional_instant(fields["paused_until"]),
            paused_by=fields["paused_by"],
            paused_at=optional_instant(fields["paused_at"]),
            declared=fields.get("declared", ""),  # no fire reads it
            calendars=rest.calendars,
            followers=fields.get("followers", ""),  # nor this
            last_fire=optional_instant(fields["last_fire"]),
            anchor=instant_of(rest.anchor),
            next_tick=optional_instant(fields["next_run"]),
            moved=optional_instant(fields["moved"]),
            wake_at=optional_instant(fields["wake_at"]),
            revision=int(fields["revision"]),
            fire_seq=int(fields["fire_seq"]),
            generation=int(fields["generation"]),
            created_at=instant_of(rest.created_at),
            updated_at=instant_of(fields["updated_at"]),
            format=int(fields["format"]),
        )
        return check_fired_fields(schedule)
    except KeyError as error:
        raise Unreadable(f"the field {error.args[0]} is missing") from error
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Unreadable(f"a field cannot be read: {error}") from error


def kind_of_run(definition: str) -> str:
    """Return the kind of a run; that of a task if the definition can't be read."""
    try:
        return _read_run_kind(definition).kind
    except (msgspec.MsgspecError, UnicodeError):
        return "task"


def run_fields(r: RunRecord) -> list[str]:
    rest = RunDefinition(
        kind=r.kind,
        cause=r.cause,
        scheduled_at=instant_text(r.scheduled_at),
        generation=r.generation,
        tick=None if r.tick is None else instant_text(r.tick),
        coalesced=r.coalesced,
        execution=raw_policy(r.execution),
        fired_by=r.fired_by,
        trace=r.trace,
        unique_key=r.unique_key,
    )
    fields = [
        "state",
        r.state,
        "attempt",
        number_text(r.attempt),
        "tenant",
        r.tenant,
        "id",
        r.id,
        "task",
        r.task,
        "run_at",
        instant_text(r.run_at),
        "queue",
        r.queue,
        "priority",
        str(checked_priority(r.priority)),
        "created_at",
        instant_text(r.created_at),
        "format",
        number_text(r.format),
        "definition",
        _definition(rest),
    ]
    if r.payload != "null":
        # Apart from the definition: searches leave it out.
        fields += ("payload", r.payload)
    for name, text in (
        ("schedule", r.schedule),
        ("cohort", r.cohort),
        ("worker", r.worker),
        ("claim", r.claim),
        ("result", r.result),
        ("error", r.error),
        ("flow", r.flow),
        ("earlier", r.earlier),
        ("settled", r.settled),
    ):
        if text is not None:
            fields += (name, text)
    if r.failures:
        fields += ("failures", number_text(r.failures))
    if r.crashes:
        fields += ("crashes", number_text(r.crashes))
    if r.cancel_requested:
        fields += ("cancel_requested", "true")
    for name, instant in (
        ("lease_until", r.lease_until),
        ("started_at", r.started_at),
        ("finished_at", r.finished_at),
    ):
        if instant is not None:
            fields += (name, instant_text(instant))
    return fields


def new_run(r: RunRecord) -> list[object]:
    """Return a run as the scripts add it: the values for the indexes, then its fields."""
    fields = run_fields(r)
    return [
        r.id,
        r.tenant,
        False if r.schedule is None else path_of(r.tenant, r.schedule),
        r.format,
        f"{r.queue}:{r.priority}:{r.tenant}:{r.task}",
        r.state,
        r.run_at,
        r.created_at,
        r.lease_until or False,
        r.finished_at or False,
        r.worker or False,
        r.claim or False,
        fields,
        r.cohort or False,
    ]


def read_run(fields: Fields) -> RunRecord:
    try:
        check_text(fields)
        rest = _read_run_rest(fields["definition"])
        get = fields.get
        state = fields["state"]
        if state not in _RUN_STATES:
            raise Unreadable(f"unknown state {state!r}")
        return RunRecord(
            id=fields["id"],
            tenant=fields["tenant"],
            schedule=get("schedule"),
            generation=rest.generation,
            tick=optional_instant(rest.tick),
            cause=rest.cause,
            coalesced=rest.coalesced,
            task=fields["task"],
            kind=rest.kind,
            payload=get("payload", "null"),
            queue=fields["queue"],
            priority=checked_priority(int(fields["priority"])),
            execution=read_policy(bytes(rest.execution), Execution),
            state=state,  # type: ignore[arg-type]  # it was just checked
            scheduled_at=instant_of(rest.scheduled_at),
            run_at=instant_of(fields["run_at"]),
            attempt=int(fields["attempt"]),
            failures=int(get("failures", 0)),
            crashes=int(get("crashes", 0)),
            worker=get("worker"),
            claim=get("claim"),
            lease_until=optional_instant(get("lease_until")),
            cancel_requested=get("cancel_requested") == "true",
            created_at=instant_of(fields["created_at"]),
            started_at=optional_instant(get("started_at")),
            finished_at=optional_instant(get("finished_at")),
            result=get("result"),
            error=get("error"),
            fired_by=rest.fired_by,
            trace=rest.trace,
            cohort=get("cohort"),
            unique_key=rest.unique_key,
            flow=get("flow"),
            earlier=get("earlier"),
            settled=get("settled"),
            format=int(fields["format"]),
        )
    except KeyError as error:
        raise Unreadable(f"the field {error.args[0]} is missing") from error
    except (ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise Unreadable(f"a field cannot be read: {error}") from error


def readable_runs(rows: list[list[str]]) -> list[RunRecord]:
    found = []
    for row in rows:
        try:
            found.append(read_run(fields_of(row)))
        except Unreadable:
            continue
    return found


def schedule_of(member: str, fields: Fields) -> ScheduleRecord:
    """Read the schedule of a member of the indexes."""
    schedule = read_schedule(fields)
    if schedule.key != read_member(member):
        raise Unreadable(f"it calls itself {schedule.name} of tenant {schedule.tenant}")
    return schedule


def found_schedule(member: str, fields: Fields) -> ScheduleRecord:
    """Read a schedule; a damaged one with the fields that can be read."""
    try:
        return schedule_of(member, fields)
    except Unreadable as error:
        return salvaged(read_member(member), _plain(fields), error)


def _plain(fields: Fields) -> dict[str, object]:
    """Return the readable values of a damaged hash, by the names of the record's fields."""
    plain: dict[str, object] = dict(fields)
    with suppress(msgspec.MsgspecError, UnicodeError):
        rest = msgspec.json.decode(fields.get("definition", ""))
        plain |= rest if isinstance(rest, dict) else {}
    plain["next_tick"] = plain.pop("next_run", None)
    for name in _INSTANTS & plain.keys():
        with suppress(ValueError, OverflowError):
            plain[name] = optional_instant(str(plain[name] or ""))
    for name in _NUMBERS & plain.keys():
        with suppress(ValueError):
            plain[name] = int(str(plain[name])) if plain[name] else None
    return plain
