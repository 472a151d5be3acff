"""Claims of runs, and the search for runs whose leases have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.stores.base import Claim
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import LOWEST, read_run
from evenbeat.stores.mongo.schedules import put_notes
from evenbeat.stores.mongo.schema import CLAIMABLE, CLAIMABLE_BY_TASK, LEASED, RUNS
from evenbeat.stores.mongo.session import SHORT_WAIT, Session

_PRIORITIES = list(range(10))
# The planner merges up to 200 ranges: ten for each queue.
_QUEUES_AT_ONCE = 20
# Up to this many pairs of a queue and a task are searched separately, in ten ranges each.
_PAIRS = 20
_BY_PRIORITY = {"priority": -1, "run_at": 1, "_id": 1}
# Additional seconds that a claim may take for each run.
_FOR_EACH = 0.002


class ClaimCandidates(NamedTuple):
    """What a claim reads before it claims anything."""

    ids: list[str]
    """Runs that are due, in order."""
    next_due: Instant | None
    """When the claim could next take a run."""
    holds: bool
    """Whether the claim was made before, and still holds runs."""


class ClaimedRuns(NamedTuple):
    """The runs that a claim holds, and the next due one."""

    runs: tuple[RunRecord, ...]
    to_quarantine: list[tuple[Document, Unreadable]]
    next_due: Instant | None


def read_candidates(session: Session, wanted: Claim, due: Instant, window: int) -> ClaimCandidates:
    """Read, in one command and from indexes alone, the runs that are due, the first entry of each range of
    a claim (ten per queue), and whether the claim holds runs already.

    The claim's token chooses consecutive runs among ``window`` times as many as are wanted: workers that
    all claim the first runs would wait for each other.
    """
    queues = list(dict.fromkeys(wanted.queues))
    if not queues:
        return ClaimCandidates([], None, bool(held(session, wanted).runs))
    pipeline: list[Document] = [
        {"$match": _claimable(wanted, queues, due)},
        {"$sort": _BY_PRIORITY},
        {"$limit": max(1, wanted.limit * window)},
        {"$project": {"_id": 1}},
        {
            "$unionWith": {
                "coll": RUNS,
                "pipeline": [
                    {"$match": held_by(wanted)},
                    {"$limit": 1},
                    {"$project": {"_id": 0, "claim": 1}},
                ],
            }
        },
        *_next_due(wanted, queues),
    ]
    are_few = wanted.tasks is not None and len(queues) * len(wanted.tasks) <= _PAIRS
    index = CLAIMABLE_BY_TASK if are_few else CLAIMABLE
    found = session.aggregate("find next due", RUNS, pipeline, hint=index.name)
    ids = [document["_id"] for document in found if "_id" in document] if wanted.limit > 0 else []
    if len(ids) > wanted.limit:
        first = Random(wanted.token).randrange(len(ids) - wanted.limit + 1)  # noqa: S311 - no secret
        ids = ids[first : first + wanted.limit]
    return ClaimCandidates(ids, _earliest(found), any("claim" in document for document in found))


def _next_due(wanted: Claim, queues: Sequence[str]) -> Iterator[Document]:
    for some in _batches_of_queues(queues):
        first: list[Document] = [
            {"$match": {**_claimable(wanted, some), "priority": {"$in": _PRIORITIES}}},
            {"$sort": {"run_at": 1}},
            {"$limit": 1},
            {"$project": {"_id": 0, "run_at": 1}},
        ]
        yield {"$unionWith": {"coll": RUNS, "pipeline": first}}


def _earliest(found: Iterable[Document]) -> Instant | None:
    moments = [document["run_at"] for document in found if "_id" not in document and "run_at" in document]
    return min((int(moment) for moment in moments if isinstance(moment, int)), default=None)


def _batches_of_queues(queues: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(queues), _QUEUES_AT_ONCE):
        yield queues[at : at + _QUEUES_AT_ONCE]


def held_by(wanted: Claim) -> Document:
    return {"state": "running", "worker": wanted.worker, "claim": wanted.token}


def _claimable(wanted: Claim, queues: Sequence[str], due: Instant | None = None) -> Document:
    where: Document = {"state": "queued", "queue": {"$in": list(queues)}, "format": {"$lte": FORMAT}}
    if wanted.tasks is not None:
        where["task"] = {"$in": sorted(wanted.tasks)}
    if due is not None:
        where["run_at"] = {"$lte": due}
    return where


def take(session: Session, wanted: Claim, ids: list[str], due: Instant, now: Instant) -> int | None:
    """Claim those of the runs that no other worker has claimed meanwhile. Return how many; None if that is
    unknown.

    No transaction: five workers at the head of a queue would abort each other's, and documents are claimed
    one by one anyway. If a worker dies in between, the rest of the runs stays queued; a repeated claim
    finds the runs that it holds. Runs must be due at ``due``. Leases begin at ``now``, the time of the
    store's own clock.
    """
    change = {
        "$set": {
            "state": "running",
            "worker": wanted.worker,
            "claim": wanted.token,
            "lease_until": now + wanted.lease,
            "started_at": now,
        },
        "$inc": {"attempt": 1},
    }
    # 100 us of the server's time for each run, 80 us of it for its six indexes, whatever they contain.
    where = {"_id": {"$in": ids}, **_claimable(wanted, wanted.queues, due)}
    update = {"q": where, "u": change, "multi": True, "hint": "_id_"}
    # Does not wait for a run that is in a transaction (a cancel request).
    patience = SHORT_WAIT + _FOR_EACH * len(ids)
    return session.write_each("claim runs", {"update": RUNS, "updates": [update]}, patience)


def held(session: Session, wanted: Claim) -> ClaimedRuns:
    """Read the runs that a claim holds, and when it could claim more, both at one moment after the claim. Not
    announced: part of the command before."""
    queues = list(dict.fromkeys(wanted.queues))
    pipeline = [{"$match": held_by(wanted)}, *_next_due(wanted, queues)]
    found = session.aggregate("find claimed", RUNS, pipeline, hint=LEASED.name, quiet=True)
    runs: list[RunRecord] = []
    to_quarantine: list[tuple[Document, Unreadable]] = []
    for document in found:
        if "_id" not in document:
            continue
        try:
            runs.append(read_run(document))
        except Unreadable as error:
            to_quarantine.append((document, error))
    runs.sort(key=lambda run: (-run.priority, run.run_at, run.id))
    return ClaimedRuns(tuple(runs), to_quarantine, _earliest(found))


def quarantine(
    session: Session, held: Document, to_quarantine: list[tuple[Document, Unreadable]], now: Instant
) -> None:
    """Set unreadable runs to failed: at the head of its queue such a run would block the others, and no
    worker could end it. ``held`` is the condition that the run must still fulfil."""
    ends = [
        UpdateOne(
            {**held, "_id": document["_id"]},
            {
                "$set": {"state": "failed", "error": quarantine_note(error), "finished_at": now},
                "$unset": {"lease_until": "", "claim": ""},
            },
        )
        for document, error in to_quarantine
    ]
    session.bulk("quarantine", RUNS, ends)
    notes = [
        (str(document.get("tenant", "default")), str(document["_id"]), error)
        for document, error in to_quarantine
    ]
    put_notes(session, notes)


class ExpiredRuns(NamedTuple):
    """Running runs whose lease has ended."""

    runs: tuple[RunRecord, ...]
    to_quarantine: list[tuple[Document, Unreadable]]
    next_end: Instant | None
    """The earliest end of any other lease."""


def lease_ended(by: Instant) -> Document:
    """Return the condition of an ended lease. A missing lease, or one that is not a number, has ended: a
    person has written such a run."""
    return {"state": "running", "lease_until": {"$not": {"$gt": by}}}


def lost(session: Session, ended_by: Instant, limit: int) -> ExpiredRuns:
    """Find runs whose lease has ended, with one command, which reads the index of running runs and no
    history."""
    # A stage of a pipeline takes no index hint: a condition on the first field, which is always true,
    # selects it.
    later = {"state": "running", "lease_until": {"$gt": ended_by}, "worker": {"$gte": LOWEST}}
    found = session.aggregate(
        "find lost",
        RUNS,
        [
            {"$match": lease_ended(ended_by)},
            {"$sort": {"lease_until": 1, "_id": 1}},
            {"$limit": limit + 1},
            {
                "$unionWith": {
                    "coll": RUNS,
                    "pipeline": [
                        {"$match": later},
                        {"$sort": {"lease_until": 1}},
                        {"$limit": 1},
                        {"$project": {"_id": 0, "lease_until": 1}},
                    ],
                }
            },
        ],
        hint=LEASED.name,
    )
    ended = [document for document in found if "_id" in document]
    others = ended[limit:] or [document for document in found if "_id" not in document]
    runs: list[RunRecord] = []
    to_quarantine: list[tuple[Document, Unreadable]] = []
    for document in ended[:limit]:
        try:
            runs.append(read_run(document))
        except Unreadable as error:
            if not _is_newer(document):
                to_quarantine.append((document, error))
    return ExpiredRuns(tuple(runs), to_quarantine, _lease_end(others[0]) if others else None)


def _lease_end(document: Document) -> Instant:
    """Return the end of a lease; 0, as if it had ended long ago, if it is not a number."""
    until = document.get("lease_until")
    return int(until) if isinstance(until, int | float) else 0


def _is_newer(document: Document) -> bool:
    """Whether a document has a newer format, which another version of Evenbeat can read."""
    written = document.get("format")
    return isinstance(written, int) and written > FORMAT
