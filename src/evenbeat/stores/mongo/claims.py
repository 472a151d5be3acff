"""Claims of runs, and the search for runs whose leases have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord
from evenbeat.rules.limits import LIMIT, OWNER
from evenbeat.stores.base import Claim
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.mongo.damaged_ids import among, exactly
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import LOWEST, NO_COHORT, read_run, records_between
from evenbeat.stores.mongo.schedules import put_notes
from evenbeat.stores.mongo.schema import CLAIMABLE, CLAIMABLE_BY_TASK, LEASED, RECORDS, RUNS
from evenbeat.stores.mongo.session import SHORT_WAIT, Session

T = TypeVar("T")

PRIORITIES = list(range(10))
# The planner merges up to 200 ranges: ten for each queue, tenant and, if they are few, task.
_QUEUES_AT_ONCE = 20
# Up to this many pairs of a queue and a task are searched separately, in ten ranges each.
_PAIRS = 20
# More pipelines than this to find the next due run, each for some tenants, are replaced by ten per queue.
_MOST_PIPELINES = 40
_IN_TURN = {"priority": -1, "tenant": 1, "run_at": 1, "_id": 1}
# Additional seconds that a claim may take for each run.
_FOR_EACH = 0.002


class ClaimCandidates(NamedTuple):
    """What a claim reads before it claims anything."""

    ids: list[str]
    """Runs that are due, in order."""
    next_due: Instant | None
    """When the claim could next take a run."""
    is_plain: bool
    """Whether the claim needs to know no more: it holds no runs yet, there are neither limits nor cohorts,
    and no other tenant has queued runs."""


class ClaimedRuns(NamedTuple):
    """The runs that a claim holds, and the next due one."""

    runs: tuple[RunRecord, ...]
    to_quarantine: list[tuple[Document, Unreadable]]
    next_due: Instant | None
    """When the claim could next take a run."""


def read_candidates(
    session: Session, wanted: Claim, due: Instant, window: int, tenant: str
) -> ClaimCandidates:
    """Read, in one command and from indexes alone, the runs that are due, the first entry of each range of
    a claim (ten per queue), and whether anything else is to be considered. ``tenant`` is the one that the
    store expects.

    The claim's token chooses consecutive runs among ``window`` times as many as are wanted: workers that
    all claim the first runs would wait for each other.
    """
    queues = list(dict.fromkeys(wanted.queues))
    if not queues:
        return ClaimCandidates([], None, not held(session, wanted, [tenant]).runs)
    # One stage for all three: each $unionWith takes 90 us of the server's time, however little it reads.
    # Asking for cohorts (35 us), other tenants (60 us) and limits (90 us) makes the command take 0.66 ms
    # instead of 0.47 ms.
    others = [
        held_by(wanted),
        {"state": "queued", "cohort": {"$gt": NO_COHORT}},
        {**queued(queues), "tenant": {"$ne": tenant}},
    ]
    seen: list[Document] = [{"$limit": 1}, {"$project": {"_id": 0, "else": {"$literal": True}}}]
    pipeline: list[Document] = [
        {"$match": claimable(wanted, queues, due)},
        {"$sort": _IN_TURN},
        {"$limit": max(1, wanted.limit * window)},
        {"$project": {"_id": 1}},
        union(RUNS, [{"$match": {"$or": others}}, *seen]),
        union(RECORDS, [{"$match": {"_id": records_between(LIMIT, OWNER, "", None)}}, *seen]),
        *(union(RUNS, first) for first in next_due(wanted, [tenant])),
    ]
    index = CLAIMABLE_BY_TASK if _are_few(wanted, queues) else CLAIMABLE
    found = session.aggregate("find next due", RUNS, pipeline, hint=index.name)
    ids = [document["_id"] for document in found if "_id" in document] if wanted.limit > 0 else []
    ids = part_of(ids, wanted)
    return ClaimCandidates(ids, earliest(found), not any("else" in document for document in found))


def part_of(ids: list[str], wanted: Claim) -> list[str]:
    """Choose as many consecutive ids as the claim wants, by its token."""
    if len(ids) <= wanted.limit:
        return ids
    first = Random(wanted.token).randrange(len(ids) - wanted.limit + 1)  # noqa: S311 - no secret
    return ids[first : first + wanted.limit]


def _are_few(wanted: Claim, queues: Sequence[str]) -> bool:
    return wanted.tasks is not None and len(queues) * len(wanted.tasks) <= _PAIRS


def union(collection: str, pipeline: list[Document]) -> Document:
    return {"$unionWith": {"coll": collection, "pipeline": pipeline}}


def next_due(wanted: Claim, tenants: Sequence[Any]) -> list[list[Document]]:
    """Return pipelines that find the earliest run without a cohort that a claim may take, now or later."""
    queues = list(dict.fromkeys(wanted.queues))
    last: list[Document] = [{"$sort": {"run_at": 1}}, {"$limit": 1}, {"$project": {"_id": 0, "run_at": 1}}]
    pipelines = []
    for some in _parts(queues, _QUEUES_AT_ONCE):
        ranges = len(some) * (len(wanted.tasks or ()) if _are_few(wanted, queues) else 1)
        for owners in _parts(tenants, max(1, _QUEUES_AT_ONCE // max(1, ranges))):
            where = {**claimable(wanted, some), "priority": {"$in": PRIORITIES}}
            where["tenant"] = exactly(owners[0]) if len(owners) == 1 else among(owners)
            pipelines.append([{"$match": where}, *last])
    if len(pipelines) <= _MOST_PIPELINES:
        return pipelines
    # Too early if the first run of a tenant is one of another task: the claim is repeated in vain.
    shown = {"$project": {"_id": 0, "run_at": 1}}
    return [[*first_of_tenants(queue, level), shown] for queue in queues for level in PRIORITIES]


def first_of_tenants(queue: str, priority: int) -> list[Document]:
    """Return a pipeline that finds the first run of each tenant in a queue and priority. The server reads one
    entry of the index for each tenant (DISTINCT_SCAN): this needs equal values of all fields before it."""
    where = {**queued([queue]), "queue": queue, "priority": priority, "format": {"$lte": FORMAT}}
    return [
        {"$match": where},
        {"$sort": {"queue": 1, "priority": -1, "tenant": 1, "run_at": 1}},
        {"$group": {"_id": "$tenant", "run_at": {"$first": "$run_at"}}},
    ]


def earliest(found: Iterable[Document]) -> Instant | None:
    moments = [document["run_at"] for document in found if "_id" not in document and "run_at" in document]
    return min((int(moment) for moment in moments if isinstance(moment, int)), default=None)


def _parts(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), size):
        yield values[at : at + size]


def held_by(wanted: Claim) -> Document:
    return {"state": "running", "worker": wanted.worker, "claim": wanted.token}


def queued(queues: Sequence[str]) -> Document:
    """Return the condition of queued runs without a cohort."""
    return {"state": "queued", "cohort": NO_COHORT, "queue": {"$in": list(queues)}}


def claimable(wanted: Claim, queues: Sequence[str], due: Instant | None = None) -> Document:
    """Return the condition of the runs without a cohort that a claim may take."""
    where: Document = {**queued(queues), "format": {"$lte": FORMAT}}
    if wanted.tasks is not None:
        where["task"] = {"$in": sorted(wanted.tasks)}
    if due is not None:
        where["run_at"] = {"$lte": due}
    return where


def start(wanted: Claim, now: Instant) -> Document:
    """Return the change of a run that a claim takes. Leases begin at ``now``, the time of the store's own
    clock."""
    return {
        "$set": {
            "state": "running",
            "worker": wanted.worker,
            "claim": wanted.token,
            "lease_until": now + wanted.lease,
            "started_at": now,
        },
        "$inc": {"attempt": 1},
    }


def take(session: Session, wanted: Claim, ids: list[str], due: Instant, now: Instant) -> int | None:
    """Claim those of the runs that no other worker has claimed meanwhile. Return how many; None if that is
    unknown.

    No transaction: five workers at the head of a queue would abort each other's, and documents are claimed
    one by one anyway. If a worker dies in between, the rest of the runs stays queued; a repeated claim
    finds the runs that it holds. Runs must be due at ``due`` and have no cohort.
    """
    # 100 us of the server's time for each run, 80 us of it for its six indexes, whatever they contain.
    where = {"_id": among(ids), **claimable(wanted, wanted.queues, due)}
    update = {"q": where, "u": start(wanted, now), "multi": True, "hint": "_id_"}
    # Does not wait for a run that is in a transaction (a cancel request).
    patience = SHORT_WAIT + _FOR_EACH * len(ids)
    return session.write_each("claim runs", {"update": RUNS, "updates": [update]}, patience)


def held(session: Session, wanted: Claim, tenants: Sequence[Any], order: Sequence[str] = ()) -> ClaimedRuns:
    """Read the runs that a claim holds, and when it could claim more, both at one moment after the claim. Not
    announced: part of the command before.

    ``tenants`` have queued runs. ``order``: ids in the order in which the claim chose them.
    """
    pipeline = [{"$match": held_by(wanted)}, *(union(RUNS, first) for first in next_due(wanted, tenants))]
    found = session.aggregate("find claimed", RUNS, pipeline, hint=LEASED.name, quiet=True)
    runs = [document for document in found if "_id" in document]
    return read_claimed(runs, order)._replace(next_due=earliest(found))


def read_claimed(documents: Iterable[Document], order: Sequence[str]) -> ClaimedRuns:
    """Read the runs of a claim, in the given order of ids, and by priority and time."""
    runs: list[RunRecord] = []
    to_quarantine: list[tuple[Document, Unreadable]] = []
    for document in documents:
        try:
            runs.append(read_run(document))
        except Unreadable as error:
            to_quarantine.append((document, error))
    place = {run_id: at for at, run_id in enumerate(order)}
    runs.sort(key=lambda run: (-run.priority, place.get(run.id, 0), run.run_at, run.id))
    return ClaimedRuns(tuple(runs), to_quarantine, None)


def quarantine(
    session: Session, held: Document, to_quarantine: list[tuple[Document, Unreadable]], now: Instant
) -> None:
    """Set unreadable runs to failed: at the head of its queue such a run would block the others, and no
    worker could end it. ``held`` is the condition that the run must still fulfil."""
    ends = [
        UpdateOne(
            {**held, "_id": exactly(document["_id"])},
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
