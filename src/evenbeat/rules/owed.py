"""Successes that are settled while the rows of schedules can't be used. Pure.

A settlement writes the row of a schedule only if something waits for the run: its next tick, or the followers
of a success. Without the rows, a settlement leaves that part out. A tick that waits is planned again after
some seconds in any case. A success leaves a record of kind ``owed``, in the same step. When the rows can be
used again, a node hands the success over in two writes. Each deletes the record that it replaces:

1. a write of the schedule that succeeded replaces its record by one for each follower,
2. a write of a follower replaces its record by the pending record that a settlement would have added.

Each write compares the version of a row that was read before the record was. So if two nodes hand over the
same success, the store refuses the second write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record, ScheduleRecord, Transition
from evenbeat.rules.changes import touch
from evenbeat.rules.dependencies import FOLLOWER, Follower, Success, woken
from evenbeat.rules.firing import CLOCKS_APART, Planned

OWED = "owed"
"""The kind of the records. Key: ``<schedule>/<run>``, and ``><follower>/<run>`` for one follower."""

Key = tuple[str, str]


class _Owed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a record."""

    schedule: str
    """The schedule whose run succeeded."""
    run: str
    tick: Instant | None
    at: Instant
    settled_at: Instant
    """When the run was settled, by the store's clock: the clock of the worker may be behind."""
    follower: str = ""


# Made at import, not when the first record is read: see the end of core/records.py.
_bodies = msgspec.json.Decoder(_Owed)


class HandOver(NamedTuple):
    """What happens to owed successes: the plans to write, and the records that nothing waits for."""

    plans: tuple[Planned, ...] = ()
    useless: tuple[Record, ...] = ()


def without_schedule(transition: Transition, now: Instant) -> Transition:
    """Return a transition that reads and writes no row of a schedule, with what it owes as records. ``now``
    is by the store's clock.

    A transition with a gate keeps it: its decision depends on the row.
    """
    ends = tuple(without_schedule(end, now) for end in transition.ends) if transition.ends else ()
    if transition.wakes is None:
        return replace(transition, ends=ends) if ends else transition
    records = transition.records
    if transition.counts is not None and transition.counts.success_count:
        tenant, name = transition.wakes
        finished = transition.finished_at
        # Like decisions.changes: the clock of a worker may be ahead.
        at = now if finished is UNSET or finished is None else min(finished, now)
        body = _Owed(name, transition.run, transition.tick, at, now)
        records += (Record(kind=OWED, tenant=tenant, key=f"{name}/{_id(body)}", body=encode(body)),)
    return replace(transition, ends=ends, wakes=None, records=records)


def needs_schedule(transitions: Iterable[Transition]) -> bool:
    """Return whether ``without_schedule`` would change one of the transitions."""
    return any(each.wakes is not None or needs_schedule(each.ends) for each in transitions)


def row_of(record: Record) -> Key | None:
    """Return the key of the schedule that a hand-over writes; None if the record can't be read."""
    owed = _read(record)
    return None if owed is None else (record.tenant, owed.follower or owed.schedule)


def hand_over(records: Sequence[Record], rows: Mapping[Key, ScheduleRecord], now: Instant) -> HandOver:
    """Decide about owed successes. ``rows`` were read before the records were.

    A row that can't be read keeps its records: they are handed over when it is repaired.
    """
    by_row: dict[Key, list[tuple[Record, _Owed]]] = {}
    useless: list[Record] = []
    for record in records:
        owed = _read(record)
        row = None if owed is None else rows.get((record.tenant, owed.follower or owed.schedule))
        if owed is None or row is None:
            useless.append(record)
        elif not row.damage:
            by_row.setdefault(row.key, []).append((record, owed))
    plans = []
    for key, some in by_row.items():
        row = rows[key]
        added = [new for _, owed in some for new in _replacements(row, owed, now)]
        spent = tuple((OWED, record.tenant, record.key) for record, _ in some)
        # A deleted schedule keeps its followers, as its runs may still succeed.
        is_deleted = row.state == "deleted"
        planned = Planned(replace(row, fire_seq=row.fire_seq + 1)) if is_deleted else touch(row, now)
        plans.append(planned._replace(records=tuple(added), spent=spent))
    return HandOver(tuple(plans), tuple(useless))


def _replacements(row: ScheduleRecord, owed: _Owed, now: Instant) -> Iterable[Record]:
    """Return the records that take the place of one."""
    if not owed.follower:
        for name in row.followers.split():
            body = encode(replace(owed, follower=name))
            yield Record(kind=OWED, tenant=row.tenant, key=f">{name}/{_id(owed)}", body=body)
        return
    if row.created_at > owed.settled_at + CLOCKS_APART:
        return  # it did not exist yet; clocks may differ, and no success may be lost
    follower = Follower(*(getattr(row, name) for name in FOLLOWER))
    done = woken(follower, owed.schedule, [Success(owed.run, owed.tick, owed.at)], now)
    if done is not None:
        yield from done.records


def _id(owed: _Owed) -> str:
    """Return what makes a success another one: an id that a user chose may be given again."""
    return owed.run if "/" in owed.run else f"{owed.run}@{owed.at}"


def _read(record: Record) -> _Owed | None:
    try:
        return _bodies.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
