"""Hashes as records and back. Every value is text: names as they are, instants in RFC 3339, numbers in digits.

A field of a schedule that has no value is empty; one of a run is not there. Reading checks everything; a hash
that fails is unreadable, and the caller decides what becomes of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_args

from evenbeat.errors import EvenbeatError, InvalidValue
from evenbeat.instants import FIRST, LAST, Instant, read_instant, write_instant
from evenbeat.model import (
    CatchUp,
    CatchUpKind,
    Cause,
    Execution,
    Kind,
    OnCrash,
    Overlap,
    Run,
    RunState,
    Schedule,
    ScheduleState,
    Version,
)

Fields = dict[str, str]

# What a double holds: scores of sorted sets and numbers of Lua are doubles.
_MOST = 1 << 53

_KINDS = frozenset(get_args(Kind))
_OVERLAPS = frozenset(get_args(Overlap))
_CATCH_UPS = frozenset(get_args(CatchUpKind))
_ON_CRASH = frozenset(get_args(OnCrash))
_SCHEDULE_STATES = frozenset(get_args(ScheduleState))
_RUN_STATES = frozenset(get_args(RunState))
_CAUSES = frozenset(get_args(Cause))


class Unreadable(EvenbeatError):
    """A hash that this version should understand and can't. Stays inside the store."""


# Instants repeat: the runs of a burst have one time between them. 0.1 us where it is known, else 2 us.
@lru_cache(maxsize=8192)
def instant_text(value: Instant) -> str:
    if FIRST <= value <= LAST:
        return write_instant(value)
    return number_text(value)


def number_text(value: int) -> str:
    if not -_MOST <= value <= _MOST:
        raise InvalidValue(f"Redis can't hold {value}: it is beyond 2^53", field="row", value=value)
    return str(value)


@lru_cache(maxsize=8192)
def _read_instant(text: str) -> Instant:
    return read_instant(text, "instant") if text.endswith("Z") else int(text)


def optional_instant(text: str | None) -> Instant | None:
    return _read_instant(text) if text else None


def path_of(tenant: str, name: str) -> str:
    """The schedule in keys."""
    return name if tenant == "default" else f"{tenant}/{name}"


def member_of(tenant: str, name: str) -> str:
    """The schedule in indexes: a space sorts before every character of a name, so tenants stay together."""
    return f"{tenant} {name}"


def read_member(member: str) -> tuple[str, str]:
    tenant, _, name = member.partition(" ")
    return tenant, name


def fields_of(flat: list[str]) -> Fields:
    return dict(zip(flat[::2], flat[1::2], strict=True))


# Policies as fields of their own: values of up to 64 bytes keep a hash compact, which their JSON would not.
@lru_cache(maxsize=1024)
def _execution_fields(policy: Execution) -> tuple[str, ...]:
    fields = (
        "retries", number_text(policy.retries), "backoff", number_text(policy.backoff),
        "longest_backoff", number_text(policy.longest_backoff), "on_crash", policy.on_crash,
        "most_crashes", number_text(policy.crashes),
    )  # fmt: skip
    return fields if policy.timeout is None else (*fields, "timeout", number_text(policy.timeout))


@lru_cache(maxsize=1024)
def _read_execution(
    retries: str, backoff: str, longest: str, timeout: str | None, on_crash: str, crashes: str
) -> Execution:
    if on_crash not in _ON_CRASH:
        raise Unreadable(f"unknown on_crash {on_crash!r}")
    return Execution(
        retries=int(retries), backoff=int(backoff), longest_backoff=int(longest),
        timeout=int(timeout) if timeout else None,
        on_crash=on_crash,  # type: ignore[arg-type]  # it was just checked
        crashes=int(crashes),
    )  # fmt: skip


def _execution(fields: Fields) -> Execution:
    return _read_execution(
        fields["retries"], fields["backoff"], fields["longest_backoff"], fields.get("timeout"),
        fields["on_crash"], fields["most_crashes"],
    )  # fmt: skip


def _optional(value: Instant | None) -> str:
    return "" if value is None else instant_text(value)


def version_fields(version: Version) -> list[str]:
    return [str(version.generation), str(version.revision), str(version.fire_seq)]


def schedule_fields(s: Schedule) -> list[str]:
    execution = dict.fromkeys(("timeout",), "") | dict(
        zip(_execution_fields(s.execution)[::2], _execution_fields(s.execution)[1::2], strict=True)
    )
    return [
        "tenant", s.tenant, "name", s.name, "task", s.task, "trigger", s.trigger, "state", s.state,
        "next_run", _optional(s.next_tick), "wake_at", _optional(s.wake_at), "generation",
        number_text(s.generation), "revision", number_text(s.revision), "fire_seq", number_text(s.fire_seq),
        "format", number_text(s.format), "kind", s.kind, "payload", s.payload, "queue", s.queue,
        "priority", _priority(s.priority), "description", s.description, "catch_up", s.catch_up.kind,
        "grace", number_text(s.catch_up.grace), "catch_up_limit", number_text(s.catch_up.limit),
        "overlap", s.overlap,
        "max_concurrent", "" if s.max_concurrent is None else number_text(s.max_concurrent),
        "spread", number_text(s.spread), *(word for pair in execution.items() for word in pair),
        "managed_by", s.managed_by, "pause_note", s.pause_note, "paused_until", _optional(s.paused_until),
        "anchor", instant_text(s.anchor), "moved", _optional(s.moved),
        "created_at", instant_text(s.created_at), "updated_at", instant_text(s.updated_at),
    ]  # fmt: skip


def place_fields(s: Schedule) -> list[str]:
    """What firing writes: where the schedule stands, never what a user said."""
    return [
        "next_run", _optional(s.next_tick), "moved", _optional(s.moved), "wake_at", _optional(s.wake_at),
        "fire_seq", number_text(s.fire_seq), "state", s.state, "pause_note", s.pause_note,
        "paused_until", _optional(s.paused_until),
    ]  # fmt: skip


def read_schedule(fields: Fields) -> Schedule:
    try:
        _check_text(fields)
        state, overlap, kind, catch_up = (fields[name] for name in ("state", "overlap", "kind", "catch_up"))
        if state not in _SCHEDULE_STATES or overlap not in _OVERLAPS or kind not in _KINDS:
            raise Unreadable(f"unknown state {state!r}, overlap {overlap!r} or kind {kind!r}")
        if catch_up not in _CATCH_UPS:
            raise Unreadable(f"unknown catch_up {catch_up!r}")
        most = fields["max_concurrent"]
        return Schedule(
            tenant=fields["tenant"], name=fields["name"], task=fields["task"], trigger=fields["trigger"],
            kind=kind,  # type: ignore[arg-type]  # it was just checked
            payload=fields["payload"], queue=fields["queue"], priority=_read_priority(fields["priority"]),
            description=fields["description"],
            catch_up=_catch_up(catch_up, fields["grace"], fields["catch_up_limit"]),
            overlap=overlap,  # type: ignore[arg-type]  # it was just checked
            max_concurrent=int(most) if most else None, spread=int(fields["spread"]),
            execution=_execution(fields), managed_by=fields["managed_by"],
            state=state,  # type: ignore[arg-type]  # it was just checked
            pause_note=fields["pause_note"], paused_until=optional_instant(fields["paused_until"]),
            anchor=_read_instant(fields["anchor"]), next_tick=optional_instant(fields["next_run"]),
            moved=optional_instant(fields["moved"]), wake_at=optional_instant(fields["wake_at"]),
            revision=int(fields["revision"]), fire_seq=int(fields["fire_seq"]),
            generation=int(fields["generation"]), created_at=_read_instant(fields["created_at"]),
            updated_at=_read_instant(fields["updated_at"]), format=int(fields["format"]),
        )  # fmt: skip
    except KeyError as error:
        raise Unreadable(f"the field {error.args[0]} is missing") from error
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"a field can't be read: {error}") from error


@lru_cache(maxsize=1024)
def _catch_up(kind: Any, grace: str, limit: str) -> CatchUp:
    return CatchUp(kind=kind, grace=int(grace), limit=int(limit))


def run_fields(r: Run) -> list[str]:
    # What changes stands first: a compact hash is searched from its beginning.
    fields = [
        "state", r.state, "attempt", number_text(r.attempt), "tenant", r.tenant, "id", r.id, "task", r.task,
        "run_at", instant_text(r.run_at), "queue", r.queue, "priority", _priority(r.priority),
        "created_at", instant_text(r.created_at), "scheduled_at", instant_text(r.scheduled_at),
        "format", number_text(r.format), "cause", r.cause, "kind", r.kind, "payload", r.payload,
        "failures", number_text(r.failures), "crashes", number_text(r.crashes),
        "coalesced", number_text(r.coalesced), *_execution_fields(r.execution),
    ]  # fmt: skip
    if r.schedule is not None:
        fields += ("schedule", r.schedule)
    if r.generation is not None:
        fields += ("generation", number_text(r.generation))
    if r.tick is not None:
        fields += ("tick", instant_text(r.tick))
    if r.gated:
        fields += ("gated", "true")
    if r.cancel_requested:
        fields += ("cancel_requested", "true")
    for name, text in (
        ("worker", r.worker), ("claim", r.claim), ("result", r.result), ("error", r.error),
        ("settled", r.settled),
    ):  # fmt: skip
        if text is not None:
            fields += (name, text)
    for name, instant in (
        ("lease_until", r.lease_until), ("started_at", r.started_at), ("finished_at", r.finished_at),
    ):  # fmt: skip
        if instant is not None:
            fields += (name, instant_text(instant))
    return fields


def new_run(r: Run) -> list[object]:
    """A run as the scripts add it: what decides its places in the indexes, then its fields."""
    fields = run_fields(r)
    return [
        r.id, r.tenant, False if r.schedule is None else path_of(r.tenant, r.schedule), r.format,
        f"{r.queue}:{r.priority}:{r.task}", r.state, r.run_at, r.created_at, r.lease_until or False,
        r.finished_at or False, r.worker or False, r.claim or False, fields,
    ]  # fmt: skip


def read_run(fields: Fields) -> Run:
    try:
        _check_text(fields)
        state, cause, kind = fields["state"], fields["cause"], fields["kind"]
        if state not in _RUN_STATES or cause not in _CAUSES or kind not in _KINDS:
            raise Unreadable(f"unknown state {state!r}, cause {cause!r} or kind {kind!r}")
        get = fields.get
        generation, tick = get("generation"), get("tick")
        return Run(
            id=fields["id"], tenant=fields["tenant"], schedule=get("schedule"),
            generation=int(generation) if generation else None, tick=optional_instant(tick),
            cause=cause,  # type: ignore[arg-type]  # it was just checked
            coalesced=int(fields["coalesced"]), gated=get("gated") == "true", task=fields["task"],
            kind=kind,  # type: ignore[arg-type]  # it was just checked
            payload=fields["payload"], queue=fields["queue"], priority=_read_priority(fields["priority"]),
            execution=_execution(fields),
            state=state,  # type: ignore[arg-type]  # it was just checked
            scheduled_at=_read_instant(fields["scheduled_at"]), run_at=_read_instant(fields["run_at"]),
            attempt=int(fields["attempt"]), failures=int(fields["failures"]), crashes=int(fields["crashes"]),
            worker=get("worker"), claim=get("claim"), lease_until=optional_instant(get("lease_until")),
            cancel_requested=get("cancel_requested") == "true", created_at=_read_instant(fields["created_at"]),
            started_at=optional_instant(get("started_at")), finished_at=optional_instant(get("finished_at")),
            result=get("result"), error=get("error"), settled=get("settled"), format=int(fields["format"]),
        )  # fmt: skip
    except KeyError as error:
        raise Unreadable(f"the field {error.args[0]} is missing") from error
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"a field can't be read: {error}") from error


def readable_runs(rows: list[list[str]]) -> list[Run]:
    found = []
    for row in rows:
        try:
            found.append(read_run(fields_of(row)))
        except Unreadable:
            continue
    return found


def readable_schedule(fields: Fields) -> Schedule | None:
    try:
        return read_schedule(fields) if "revision" in fields else None
    except Unreadable:
        return None


def _check_text(fields: Fields) -> None:
    """Bytes that are no UTF-8 have come as lone surrogates, which no text of ours has."""
    joined = "".join(fields.values())
    if not joined.isascii():
        try:
            joined.encode()
        except UnicodeEncodeError:
            raise Unreadable("a field holds text that is not UTF-8") from None


def _priority(value: int) -> str:
    if not (isinstance(value, int) and 0 <= value <= 9):
        raise InvalidValue(f"priority {value} is not one of 0 to 9", field="priority", value=value)
    return str(value)


def _read_priority(text: str) -> int:
    if len(text) != 1 or not text.isdecimal():
        raise Unreadable(f"priority {text!r} is not one of 0 to 9")
    return int(text)
