"""Unique runs: of one task, tenant and key, at most one run is active. Pure.

A record of kind ``unique`` names the run that holds the key. It is written by compare-and-set before its run
is added or retried, so whoever reads it can finish what its writer began: a run that is missing is added with
the id of the record, and a retry that is pending is applied. So a slow writer and its successor make one run.
A run that is missing because it was purged has left a mark of its end: the next run gets another id. If a
user has chosen the id, the record also tells when the run was made, since the id may be chosen again.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.core.checks import check_text
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import from_json
from evenbeat.core.records import ACTIVE_STATES, Record, RunRecord
from evenbeat.core.retention import SHORTEST_KEEP
from evenbeat.errors import InvalidValue, shown
from evenbeat.rules.attempts import is_expired
from evenbeat.rules.unique_ends import made_at

KIND = "unique"
PAYLOAD = "payload"
LONGEST_KEY = 200

# A missing run is added with the id of its record for a day: the caller's transaction in which it was added
# may take long. Later the record is renewed first, and an hour after that its writer is given up.
ADDED_WITHIN = 86_400_000
GIVEN_UP_AFTER = ADDED_WITHIN + 3_600_000
# Seconds that may pass between reading a record and retrying or moving its run. A slower writer begins again.
WRITTEN_WITHIN = 60.0
# Milliseconds that may pass, by the store's own clock, between the beginning of a look at a record and adding
# its run. The run was missing and had not ended at the look; if another process adds it afterwards, it ends
# later, and no retention rule deletes it within SHORTEST_KEEP of its end. So a run that is added within that
# time was not purged before. A quarter of it is left for clocks that differ.
ADD_WINDOW = SHORTEST_KEEP * 3 // 4
# Versions are the second of the write, and random bits: none is used twice, though records are deleted. 15
# bits keep the last second of the calendar below 2 ** 53.
_RANDOM_BITS = 15

Verdict: TypeAlias = Literal["answer", "add", "take", "renew", "expire", "requeue", "move"]

# Stands before the attempt in the record of a run that is moved to another task.
_MOVED = "to:"
# Stands before the time at which a run with a chosen id was made.
_MADE = "at:"


class Holder(NamedTuple):
    """The run that a record names."""

    run: str
    retried: int | None = None
    """The attempt after which it is retried by hand; None if the record was written to add the run."""
    moved: int | None = None
    """The attempt at which a queued run is moved to the task of the record."""
    made: Instant | None = None
    """When a run with a chosen id was made: see ``unique_ends.made_at``. Only in a record that was written to
    add the run."""


def check_unique(unique: object) -> str:
    """Refuse a value that can't be a unique key."""
    check_text("unique", unique, LONGEST_KEY)
    assert isinstance(unique, str)
    if not unique or not unique.isprintable():
        raise InvalidValue(
            f"unique {shown(unique)} is not 1 to {LONGEST_KEY} printable characters",
            field="unique",
            value=unique,
            hint='give "payload", or a key such as "order-42"',
        )
    return unique


def unique_key(unique: str, payload: str) -> str:
    """Return the key that is stored with a run: the given one, or ``payload`` with a digest of it."""
    if check_unique(unique) != PAYLOAD:
        return unique
    text = msgspec.json.encode(from_json(payload), order="deterministic")
    return f"{PAYLOAD} {blake2b(text, digest_size=16).hexdigest()}"


def record_key(run: RunRecord) -> str:
    """Return the key of the record of a run: a digest of its task and unique key."""
    assert run.unique_key is not None
    text = f"{run.task}\0{run.unique_key}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).hexdigest()


def holder_of(record: Record) -> Holder | None:
    """Return the run that a record names; None if the record can't be read."""
    run, _, rest = record.body.partition(" ")
    if run and rest.startswith(_MADE):
        made = rest.removeprefix(_MADE)
        return Holder(run, made=int(made)) if made.removeprefix("-").isdecimal() else None
    number = rest.removeprefix(_MOVED)
    if not run or (rest and not number.isdecimal()):
        return None
    if rest.startswith(_MOVED):
        return Holder(run, moved=int(number))
    return Holder(run, int(number) if number else None)


def held_by(run: RunRecord, holder: Holder, before: Record | None, now: Instant) -> Record:
    """Return the record that names a holder of the run's key. ``before`` is the one that it replaces."""
    version = max(now, 0) // 1000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return Record(
        kind=KIND,
        tenant=run.tenant,
        key=record_key(run),
        body=_body(holder),
        version=version if before is None else max(version, before.version + 1),
    )


def taken_by(run: RunRecord) -> Holder:
    """Return the holder that a record names which is written to add a run."""
    return Holder(run.id, made=made_at(run))


def made_anew(run: RunRecord, record: Record | None) -> RunRecord:
    """Return a run that is to take the key from an earlier run. If both have the same chosen id, they differ
    in the time of their making, though the clock may show the same."""
    holder = None if record is None else holder_of(record)
    if holder is None or holder.made is None or holder.run != run.id or holder.made < run.created_at:
        return run
    return replace(run, created_at=holder.made + 1)


def _body(holder: Holder) -> str:
    if holder.made is not None:
        return f"{holder.run} {_MADE}{holder.made}"
    if holder.moved is not None:
        return f"{holder.run} {_MOVED}{holder.moved}"
    return holder.run if holder.retried is None else f"{holder.run} {holder.retried}"


def decide(
    record: Record | None, found: RunRecord | None, now: Instant, *, has_ended: bool = False
) -> Verdict:
    """Return what to do to enqueue a unique run. ``found`` is the run that the record names, if it exists;
    ``has_ended`` says that there is a mark of its end (``unique_ends``), which must be read after it.

    ``answer``: that run is active. ``add``: add it, with the id of the record. ``take``: nobody holds the
    key; write the record with an id of your own, then add that run. ``renew``: write the record again, as it
    is. ``expire``: end that run, which waits and has expired. ``requeue``: apply its pending retry. ``move``:
    move that run, of another task, to the task of this key. After the last four, read the record again.
    """
    holder = None if record is None else holder_of(record)
    if record is None or holder is None:
        return "take"
    if found is not None and _is_of_another_task(record, found):
        return "move" if _is_move_pending(holder, found) else "take"
    if found is None:
        if has_ended or holder.retried is not None or holder.moved is not None:
            return "take"  # purged: its id is not given again
        age = _age(record, now)
        return "add" if age < ADDED_WITHIN else "renew" if age < GIVEN_UP_AFTER else "take"
    if found.state in ACTIVE_STATES:
        return "expire" if found.state == "queued" and is_expired(found, now) else "answer"
    return "requeue" if _is_retry_pending(holder, found) else "take"


def is_stale(record: Record, found: RunRecord | None, now: Instant) -> bool:
    """Return whether the record can be deleted: its run has ended, or its writer has died long ago."""
    holder = holder_of(record)
    if holder is None:
        return True
    if found is not None and _is_of_another_task(record, found):
        return not _is_move_pending(holder, found) or _age(record, now) >= GIVEN_UP_AFTER
    if found is None or _is_retry_pending(holder, found):
        return _age(record, now) >= GIVEN_UP_AFTER
    return found.state not in ACTIVE_STATES


def _is_retry_pending(holder: Holder, found: RunRecord) -> bool:
    """Return whether a record was written to retry a run, and the run is as it was before."""
    return found.state in ("failed", "cancelled") and holder.retried == found.attempt


def _is_of_another_task(record: Record, found: RunRecord) -> bool:
    """Return whether the run has another key than the record: it was moved, or is to be moved."""
    return found.unique_key is not None and record_key(found) != record.key


def _is_move_pending(holder: Holder, found: RunRecord) -> bool:
    """Return whether a record was written to move a run, and the run is as it was before."""
    return found.state == "queued" and holder.moved == found.attempt


def _age(record: Record, now: Instant) -> int:
    """Return how many ms ago a record was written, to the second."""
    return now - (record.version >> _RANDOM_BITS) * 1000
