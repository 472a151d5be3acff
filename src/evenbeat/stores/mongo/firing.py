"""Fires due schedules: plans and writes them in batches, one transaction each.

Nodes wake up at the same instant and find the same documents first. So a node reserves a batch by its first
document. Other nodes find the reservation with one command, without a transaction that has to be aborted,
and continue behind the batch or try again later. A reservation is a note in ``meta`` that expires. It only
saves work. The transaction is what keeps a tick from firing twice: it fails as a whole if another client has
changed one of its documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.firing import Active, Planned, needs_active
from evenbeat.stores.base import Fired, PlanFunction
from evenbeat.stores.damage import Unreadable
from evenbeat.stores.decisions import Budget
from evenbeat.stores.mongo import dependencies
from evenbeat.stores.mongo.damaged_ids import DamagedId, among, exactly
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import LOWEST, Key, key_of, key_text, read_schedule, set_and_unset
from evenbeat.stores.mongo.schedules import ACTIVE_STATES, TOUCH, add_what_follows, put_notes
from evenbeat.stores.mongo.schema import ACTIVE, DUE, RUNS, SCHEDULES
from evenbeat.stores.mongo.session import Contended, Session
from evenbeat.stores.refusals import NOTHING, REFUSALS, FireRefused, Selection
from evenbeat.stores.rows import FIRED_FIELDS, UNFIRED

_EARLIEST = -(1 << 63)
_ORDER = [("wake_at", 1), ("_id", 1)]
_KEYS = {"wake_at": 1}
# How many milliseconds a batch is reserved for a node: 500 schedules take 70 ms.
_RESERVED = 500
_CHECKS = 3
# After how many milliseconds a due schedule counts as late.
_LATE = 250


class BatchReserved(Contended):
    """Another node has reserved the batch."""


class BatchStart(NamedTuple):
    """The first schedule of a batch, in the order of firing."""

    wake_at: Any
    id: str


def earliest(
    session: Session, due_by: Instant | None = None, behind: int = 0, without: frozenset[Key] = NOTHING
) -> BatchStart | None:
    """Return the first schedule to wake up, or the one ``behind`` places after it. Reads only the index."""
    bounds: Document = {"$gte": _EARLIEST}
    if due_by is not None:
        bounds["$lte"] = due_by
    found = session.find(
        "find next wake",
        SCHEDULES,
        {"wake_at": bounds, "format": {"$lte": FORMAT}},
        fields=_KEYS,
        sort=_ORDER,
        limit=1 + len(without),
        skip=behind,
        hint=DUE.name,
    )
    if without:
        found = [document for document in found if key_of(document) not in without]
    return BatchStart(int(found[0]["wake_at"]), found[0]["_id"]) if found else None


class Contention:
    """Remembers the batches that other nodes fire, so that this node makes fewer useless tries."""

    def __init__(self) -> None:
        self._taken: BatchStart | None = None
        self._checks = 0
        self._few = False

    def has(self, start: BatchStart) -> bool:
        """Return whether this node has just found the batch reserved by another node. Every third call
        returns False, so that this node tries again."""
        self._checks += 1
        return start == self._taken and self._checks < _CHECKS

    def met_at(self, start: BatchStart) -> None:
        self._taken, self._checks = start, 0

    def fired(self, done: Fired, limit: int) -> None:
        self._few = len(done.planned) < limit

    def may_leave_some(self, first: BatchStart, now: Instant) -> bool:
        """Return whether the other nodes may leave due schedules to this one: False if the last batch was not
        full and no schedule is late."""
        return not self._few or now - first.wake_at > _LATE


@contextlib.contextmanager
def reserved(session: Session, start: BatchStart, now: Instant) -> Iterator[None]:
    """Reserve the batch for this node. ``now`` is the time of the store's own clock."""
    note = {"_id": f"firing {start.id}"}
    until = {"until": now + _RESERVED}
    # If a reservation ends later than a new one could, the clock was set back since it was made: ignore it.
    free = {"$or": [{"until": {"$lte": now}}, {"until": {"$gt": now + 2 * _RESERVED}}]}
    if not session.reserve("reserve batch", {**note, **free}, until):
        raise BatchReserved
    try:
        yield
    finally:
        session.release({**note, **until})


class Batch(NamedTuple):
    """Due schedules to fire in one transaction."""

    start: BatchStart
    now: Instant
    selection: Selection
    clock: Instant
    """The time of the store's own clock, by which records expire."""


def fire(session: Session, batch: Batch, plan: PlanFunction, careful: bool) -> Fired:
    """Fire a batch in an open transaction."""
    start, now, selection, clock = batch
    limit, without = selection
    try:
        session.bulk("take batch", SCHEDULES, [UpdateOne({"_id": exactly(start.id)}, TOUCH)])
    except Contended:
        raise BatchReserved from None
    except RowRefused as error:
        raise FireRefused([], [key_of({"_id": start.id})], error) from error
    documents = session.find(
        "find due",
        SCHEDULES,
        {"wake_at": {"$lte": now}, "format": {"$lte": FORMAT}},
        fields=dict.fromkeys(UNFIRED, 0),
        sort=_ORDER,
        limit=selection.most_read + 1,
        hint=DUE.name,
        start=[("wake_at", start.wake_at), ("_id", _bound(start.id)), ("format", LOWEST)],
    )
    if without:
        documents = [document for document in documents if key_of(document) not in without]
    due: list[ScheduleRecord] = []
    to_quarantine: list[tuple[Document, Exception]] = []
    for document in documents[:limit]:
        try:
            due.append(read_schedule(document))
        except Unreadable as error:
            to_quarantine.append((document, error))
    active = _active(session, [schedule.key for schedule in due if needs_active(schedule)])
    facts = dependencies.facts(session, due, clock)
    planned: list[Planned] = []
    moves: list[UpdateOne] = []
    budget = Budget()
    left: ScheduleRecord | None = None
    for schedule in due:
        if budget.is_spent:
            left = schedule
            break
        try:
            outcome = plan(schedule, now, active.get(schedule.key, ()), *facts.get(schedule.key, ()))
        except Exception as error:
            to_quarantine.append(({"_id": key_text(schedule.key)}, error))
            continue
        planned.append(outcome)
        budget.spend(outcome)
        moves.append(_advance(schedule, outcome.schedule))
    # Write to the active runs that the plans depend on, too. The end of such a run wakes only schedules that
    # already wait. So a run that ends at the same time must conflict with this transaction.
    planned_with = [run.run for outcome in planned for run in active.get(outcome.schedule.key, ())]
    try:
        if planned_with:
            session.update("touch runs", RUNS, {"_id": among(planned_with)}, TOUCH)
        # A tick takes 90 us of the server's time and 50 us of the node's (10,000 due, batches of 500).
        session.bulk("update schedules", SCHEDULES, moves)
        add_what_follows(session, planned, clock, careful)
        names = _put_to_sleep(session, to_quarantine)
    except REFUSALS as error:
        raise FireRefused(due, [key_of(document) for document, _ in to_quarantine], error) from error
    next_wake: Instant | None
    if left is not None:
        next_wake = left.wake_at
    elif len(documents) > limit:
        next_wake = int(documents[limit].get("wake_at", now))
    else:
        following = earliest(session, without=without)
        next_wake = None if following is None else following.wake_at
    return Fired(tuple(planned), next_wake, names)


def _bound(found: str) -> Any:
    """Return the bound of an index for an ``_id``. Bounds have no operators, so that of a damaged ``_id`` is
    the first of its instant."""
    return LOWEST if isinstance(found, DamagedId) else found


def _advance(before: ScheduleRecord, after: ScheduleRecord) -> UpdateOne:
    """Return an update of the fields of firing, never of those that users set.

    The filter is the _id alone, which the server finds without planning. The transaction compares the
    version: a document that was written since it was read is a conflict.
    """
    return UpdateOne(
        {"_id": key_text(before.key)}, set_and_unset({name: getattr(after, name) for name in FIRED_FIELDS})
    )


def _active(session: Session, keys: list[Key]) -> dict[Key, tuple[Active, ...]]:
    """Read the active runs of schedules, the oldest first."""
    found: dict[Key, tuple[Active, ...]] = {}
    by_tenant: dict[str, list[str]] = {}
    for tenant, name in keys:
        by_tenant.setdefault(tenant, []).append(name)
    for tenant, names in by_tenant.items():
        documents = session.find(
            "find active",
            RUNS,
            {"tenant": tenant, "schedule": {"$in": names}, "state": {"$in": ACTIVE_STATES}},
            fields={"schedule": 1, "state": 1, "cancel_requested": 1, "created_at": 1},
            hint=ACTIVE.name,
        )
        # Sort by texts: a document that a user changed by hand may contain any type.
        documents.sort(key=lambda document: (str(document.get("created_at")), str(document["_id"])))
        for document in documents:
            key = (tenant, document["schedule"])
            entry = Active(document["_id"], document["state"], document.get("cancel_requested") is True)
            found[key] = (*found.get(key, ()), entry)
    return found


def _put_to_sleep(session: Session, to_quarantine: list[tuple[Document, Exception]]) -> tuple[Key, ...]:
    """Let unreadable schedules sleep until a client writes them again, and record the reasons."""
    if not to_quarantine:
        return ()
    ids = [document["_id"] for document, _ in to_quarantine]
    session.update("quarantine", SCHEDULES, {"_id": among(ids)}, {"$unset": {"wake_at": ""}})
    names = [key_of(document) for document, _ in to_quarantine]
    put_notes(session, [(*name, error) for name, (_, error) in zip(names, to_quarantine, strict=True)])
    return tuple(names)
