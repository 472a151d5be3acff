"""Firing: due schedules, planned and written in one transaction each batch.

Nodes that fire at once find the same documents first: all wake up at the same instant. The first document of
a batch stands for the batch: whoever reserves it has it, and the others, who learn that at the price of one
command and without a transaction that has to be aborted, go on behind it, or come back. A reservation is a
note in ``meta`` and ends by itself. That is a courtesy: what gates a fire is the transaction, which fails as
a whole if anybody has changed any of its documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, ScheduleRecord
from evenbeat.rules.firing import Active, Planned, needs_active
from evenbeat.stores.base import Fired, PlanFunction
from evenbeat.stores.decisions import Budget
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import LOWEST, Key, key_text, read_schedule, set_and_unset
from evenbeat.stores.mongo.schedules import ACTIVE_STATES, TOUCH, add_what_follows, put_notes
from evenbeat.stores.mongo.schema import ACTIVE, DUE, RUNS, SCHEDULES
from evenbeat.stores.mongo.session import Contended, Session
from evenbeat.stores.rows import FIRED_FIELDS, Unreadable

_EARLIEST = -(1 << 63)
_ORDER = [("wake_at", 1), ("_id", 1)]
_KEYS = {"wake_at": 1}
# Milliseconds for which a batch is one node's: 500 schedules take 70.
_RESERVED = 500
_LOOKS = 3
# Milliseconds after which what is due has been left behind.
_LATE = 250


class BatchReserved(Contended):
    """Another node has the batch that begins there."""


class BatchStart(NamedTuple):
    """Where a batch begins, in the order of firing."""

    wake_at: Any
    id: str


def earliest(session: Session, due_by: Instant | None = None, behind: int = 0) -> BatchStart | None:
    """The first that wakes up, or that many behind it. Read from the index alone."""
    bounds: Document = {"$gte": _EARLIEST}
    if due_by is not None:
        bounds["$lte"] = due_by
    found = session.find(
        "find next wake",
        SCHEDULES,
        {"wake_at": bounds, "format": {"$lte": FORMAT}},
        fields=_KEYS,
        sort=_ORDER,
        limit=1,
        skip=behind,
        hint=DUE.name,
    )
    return BatchStart(int(found[0]["wake_at"]), found[0]["_id"]) if found else None


class Contention:
    """What a node remembers of the others that fire, so as to ask for less than it could."""

    def __init__(self) -> None:
        self._taken: BatchStart | None = None
        self._looks = 0
        self._few = False

    def has(self, start: BatchStart) -> bool:
        """Whether others were just seen to have the batch that begins there: every third look asks again."""
        self._looks += 1
        return start == self._taken and self._looks < _LOOKS

    def met_at(self, start: BatchStart) -> None:
        self._taken, self._looks = start, 0

    def fired(self, done: Fired, limit: int) -> None:
        self._few = len(done.planned) < limit

    def may_leave_some(self, first: BatchStart, now: Instant) -> bool:
        """Whether there may be more due than they take: not if there never is, and it is not late."""
        return not self._few or now - first.wake_at > _LATE


@contextlib.contextmanager
def reserved(session: Session, start: BatchStart, now: Instant) -> Iterator[None]:
    """The batch that begins there, for one node. ``now`` is the store's own."""
    note = {"_id": f"firing {start.id}"}
    until = {"until": now + _RESERVED}
    # One that lies further ahead than any note can was given by a clock that was set back since.
    free = {"$or": [{"until": {"$lte": now}}, {"until": {"$gt": now + 2 * _RESERVED}}]}
    if not session.reserve("reserve batch", {**note, **free}, until):
        raise BatchReserved
    try:
        yield
    finally:
        session.release({**note, **until})


def fire(
    session: Session, start: BatchStart, now: Instant, limit: int, plan: PlanFunction, careful: bool
) -> Fired:
    """A batch that begins there, in an open transaction."""
    try:
        session.bulk("take batch", SCHEDULES, [UpdateOne({"_id": start.id}, TOUCH)])
    except Contended:
        raise BatchReserved from None
    documents = session.find(
        "find due",
        SCHEDULES,
        {"wake_at": {"$lte": now}, "format": {"$lte": FORMAT}},
        fields={"declared": 0},
        sort=_ORDER,
        limit=limit + 1,
        hint=DUE.name,
        start=[("wake_at", start.wake_at), ("_id", start.id), ("format", LOWEST)],
    )
    due: list[ScheduleRecord] = []
    to_quarantine: list[tuple[Document, Exception]] = []
    for document in documents[:limit]:
        try:
            due.append(read_schedule(document))
        except Unreadable as error:
            to_quarantine.append((document, error))
    active = _active(session, [schedule.key for schedule in due if needs_active(schedule)])
    planned: list[Planned] = []
    moves: list[UpdateOne] = []
    budget = Budget()
    left: ScheduleRecord | None = None
    for schedule in due:
        if budget.is_spent:
            left = schedule
            break
        try:
            outcome = plan(schedule, now, active.get(schedule.key, ()))
        except Exception as error:
            to_quarantine.append(({"_id": key_text(schedule.key)}, error))
            continue
        planned.append(outcome)
        budget.spend(outcome)
        moves.append(_advance(schedule, outcome.schedule))
    # Runs that were planned with are written: their ends, which wake only a schedule that waits by then, meet
    # this transaction.
    planned_with = [run.run for outcome in planned for run in active.get(outcome.schedule.key, ())]
    if planned_with:
        session.update("touch runs", RUNS, {"_id": {"$in": planned_with}}, TOUCH)
    # All of a tick: 90 us of the server's time, 50 us of ours (10,000 due, batches of 500).
    session.bulk("update schedules", SCHEDULES, moves)
    add_what_follows(session, planned, careful)
    names = _put_to_sleep(session, to_quarantine)
    next_wake: Instant | None
    if left is not None:
        next_wake = left.wake_at
    elif len(documents) > limit:
        next_wake = int(documents[limit]["wake_at"])
    else:
        following = earliest(session)
        next_wake = None if following is None else following.wake_at
    return Fired(tuple(planned), next_wake, names)


def _advance(before: ScheduleRecord, after: ScheduleRecord) -> UpdateOne:
    """Its own fields and no others: where the schedule stands, never what a user said.

    By _id and nothing else, which the server looks up without planning. The version that was read is compared
    by the transaction: a document that anybody has written since then is a conflict.
    """
    return UpdateOne(
        {"_id": key_text(before.key)}, set_and_unset({name: getattr(after, name) for name in FIRED_FIELDS})
    )


def _active(session: Session, keys: list[Key]) -> dict[Key, tuple[Active, ...]]:
    """The active runs of schedules, the oldest first."""
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
        # Texts: a document changed by hand may hold anything, and the order is for people.
        documents.sort(key=lambda document: (str(document.get("created_at")), str(document["_id"])))
        for document in documents:
            key = (tenant, document["schedule"])
            entry = Active(document["_id"], document["state"], document.get("cancel_requested") is True)
            found[key] = (*found.get(key, ()), entry)
    return found


def _put_to_sleep(session: Session, to_quarantine: list[tuple[Document, Exception]]) -> tuple[Key, ...]:
    """Rows that can't be understood wake up when they are written anew."""
    if not to_quarantine:
        return ()
    ids = [document["_id"] for document, _ in to_quarantine]
    session.update("quarantine", SCHEDULES, {"_id": {"$in": ids}}, {"$unset": {"wake_at": ""}})
    names = [_name_of(document) for document, _ in to_quarantine]
    put_notes(session, [(*name, error) for name, (_, error) in zip(names, to_quarantine, strict=True)])
    return tuple(names)


def _name_of(document: Document) -> Key:
    """Also of a document whose fields are gone: its _id tells."""
    tenant, _, name = str(document["_id"]).partition("/")
    return tenant, name
