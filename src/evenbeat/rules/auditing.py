"""The audit: what an entry says about a change, and the records that keep it. Pure.

A change is kept as two records with the same body. One is of kind ``audit``, for the newest changes of a
tenant. The other is of kind ``audited``, whose key begins with the subject, for the history of one schedule
or run. A store adds both in the same step as the change itself. Both are new: adding a record that may exist
already costs MongoDB a repetition, and locks its row in PostgreSQL.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.audits import AuditEntry
from evenbeat.core.durations import UNITS
from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import FIRST, LAST, Instant, from_ms, write_instant
from evenbeat.core.json_text import encode, from_json
from evenbeat.core.masking import masked
from evenbeat.core.records import Record, RunRecord, ScheduleRecord
from evenbeat.errors import InvalidTrigger
from evenbeat.rules.definitions import options_of
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import next_start

KEPT = 365 * UNITS["d"]
"""How long an entry is kept, in milliseconds."""
LONGEST_TEXT = 2_000
"""The most characters of a value that an entry keeps."""
CUT = "… (cut)"

ENTRY, BY_SUBJECT = "audit", "audited"
"""The kinds of records."""


class Change(NamedTuple):
    """A change by hand: its subject, and the fields that differ."""

    kind: str
    subject: str
    tenant: str
    action: str
    before: dict[str, Any]
    after: dict[str, Any]


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an entry's records."""

    at: Instant
    actor: str
    via: str
    action: str
    kind: str
    subject: str
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}


# Made at import, not when the first entry is read: see the end of core/records.py.
_bodies = msgspec.json.Decoder(_Body)


def schedule_change(action: str, row: ScheduleRecord | None, planned: Planned) -> Change:
    """Return what a plan changes about the schedule with this row.

    ``before`` is empty if the schedule is new, ``after`` if it is deleted; the other one then leaves out
    options that have their defaults. A run that was added by hand is named in ``after``.
    """
    after_row = planned.schedule
    old = {} if row is None or row.state == "deleted" else _facts(row)
    new = {} if after_row.state == "deleted" else _facts(after_row)
    if old and new:
        differs = [name for name, value in new.items() if value != old[name]]
        before, after = {name: old[name] for name in differs}, {name: new[name] for name in differs}
    else:
        before, after = _noteworthy(old), _noteworthy(new)
    for run in planned.runs:
        if run.cause == "run_now":
            after["run"] = run.id
            if run.payload != after_row.payload:
                after["payload"] = _value(run.payload)
    return Change("schedule", after_row.name, after_row.tenant, action, before, after)


def run_change(action: str, run: RunRecord, before: dict[str, Any], after: dict[str, Any]) -> Change:
    """Return what a call changes about a run."""
    return Change("run", run.id, run.tenant, action, before, after)


def retry_by_schedule(run: RunRecord, _: ScheduleRecord | None, planned: Planned) -> Change:
    """Return what is recorded of a run that its schedule adds again, since it bounds its active runs."""
    return run_change("retry", run, {}, {"run": planned.runs[-1].id})


def enqueued(run: RunRecord) -> Change:
    """Return what is recorded of a run that was enqueued by hand."""
    after: dict[str, Any] = {"task": run.task, "queue": run.queue, "payload": _value(run.payload)}
    if run.run_at != run.created_at:
        after["run_at"] = _time(run.run_at)
    return run_change("enqueue", run, {}, after)


def records_of(change: Change, actor: str, via: str, key: str, now: Instant) -> tuple[Record, ...]:
    """Return the records of an entry. ``key`` is a new one of ``core.ids.new_key``."""
    body = _Body(
        at=now,
        actor=actor,
        via=via,
        action=change.action,
        kind=change.kind,
        subject=change.subject,
        before={name: _kept(name, value) for name, value in change.before.items()},
        after={name: _kept(name, value) for name, value in change.after.items()},
    )
    text, end = encode(body), now + KEPT
    by_subject = prefix_of(change.kind, change.subject) + key
    return (
        Record(kind=ENTRY, tenant=change.tenant, key=key, body=text, expires=end),
        Record(kind=BY_SUBJECT, tenant=change.tenant, key=by_subject, body=text, expires=end),
    )


def prefix_of(kind: str, subject: str) -> str:
    """Return the beginning of the keys of one subject's entries."""
    return f"{kind}/{subject}/"


def key_range(prefix: str, since: Instant | None, until: Instant | None) -> tuple[str, str]:
    """Return the first key, and the first one behind the last, of entries from ``since`` to before ``until``.

    Later entries sort before earlier ones.
    """
    start = "" if until is None else first_key_of(until - 1)
    # A digit is less than a letter past f.
    end = "g" if since is None else first_key_of(since - 1)
    return prefix + start, prefix + end


def read_entry(record: Record) -> AuditEntry | None:
    """Return the entry of a record; None if a person or a newer version wrote it in another form."""
    try:
        body = _bodies.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return AuditEntry(
        id=record.key.rpartition("/")[2],
        at=from_ms(min(max(body.at, FIRST), LAST)),
        actor=body.actor,
        via=body.via,
        action=body.action,
        tenant=record.tenant,
        kind=body.kind,
        subject=body.subject,
        before=body.before,
        after=body.after,
    )


def _noteworthy(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts without options that have their defaults."""
    return {name: value for name, value in facts.items() if value != _NOTHING[name]}


def _facts(row: ScheduleRecord) -> dict[str, Any]:
    try:
        from_json(row.payload)
    except (msgspec.MsgspecError, UnicodeError):  # the row is damaged
        row = replace(row, payload=encode(row.payload.encode(errors="replace").decode()))
    facts = options_of(row)
    facts |= {
        "state": row.state,
        "pause_note": row.pause_note,
        "paused_until": _time(row.paused_until),
        "next_run": _next_run(row),
        "damage": row.damage,
    }
    return facts


def _next_run(row: ScheduleRecord) -> str | None:
    try:
        return _time(next_start(row))
    except (InvalidTrigger, OSError):  # this machine can't read the trigger
        return _time(row.next_tick)


def _time(instant: Instant | None) -> str | None:
    return None if instant is None else write_instant(min(max(instant, FIRST), LAST))


def _value(payload: str) -> Any:
    try:
        return from_json(payload)
    except (msgspec.MsgspecError, UnicodeError):
        return payload


def _kept(name: str, value: Any) -> Any:
    """Return a value as an entry keeps it: secrets are masked, and a long value is cut."""
    try:
        # Masked before it is cut: half of a secret is a secret.
        hidden = masked({name: value})[name]
        text = hidden if isinstance(hidden, str) else encode(hidden)
    except (RecursionError, ValueError, OverflowError):
        return "(can't be kept)"
    return hidden if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + CUT


# No schedule has this task, trigger and state: they are always noteworthy.
_NOTHING = _facts(ScheduleRecord(name="", task="", trigger="", state="deleted"))
