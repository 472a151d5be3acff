"""Claims of runs that limits concern: the cohorts of runs, and the transaction that starts some of them.

All such claims write one document first, so that two of them at the same time conflict: one of them ends
without effect. A claimer that dies or freezes in the middle holds that document until another one ends its
transaction (``abandoned.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pymongo import UpdateMany, UpdateOne
from pymongo.operations import ReplaceOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import (
    BUCKET,
    LIMIT,
    OWNER,
    Candidate,
    Limits,
    Usage,
    choose,
    cohort_range,
    next_start,
    read_cohort,
    read_limits,
)
from evenbeat.stores.base import Claim
from evenbeat.stores.mongo import claims
from evenbeat.stores.mongo.claims import PRIORITIES, ClaimedRuns
from evenbeat.stores.mongo.damaged_ids import REPLACED, among, is_doubtful
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.records import find_bodies
from evenbeat.stores.mongo.rows import LOWEST, NO_COHORT, record_document, record_id, records_between
from evenbeat.stores.mongo.schema import LEASED, META, RECORDS, RUNS, VERSION
from evenbeat.stores.mongo.session import SHORT_WAIT, Contended, Session
from evenbeat.stores.mongo.turns import Search, Waiting, find_in_turn, limited
from evenbeat.stores.refusals import ClaimRefused

GIVEN_AT_ONCE = 200
"""How many runs one claim gives a cohort: each takes 100 us."""

_LOCK = {"_id": "limits"}
_COLUMNS = ("queue", "priority", "tenant", "task", "kind")
# A pipeline may have 1,000 stages.
_COHORTS_AT_ONCE = 500
# Additional seconds that giving a cohort may take for each run.
_FOR_EACH = 0.002


class First(NamedTuple):
    """The first queued run of a cohort."""

    cohort: str
    run_at: Instant
    id: str


class Survey(NamedTuple):
    """What a claim needs to know about limits and tenants, all of one moment."""

    holds: bool
    """Whether the claim was made before, and still holds runs."""
    limits: Limits
    running: list[tuple[Document, int]]
    """How many runs with the same columns and cohort are running."""
    cohorts: list[First]
    """The cohorts of the claim's queues that have queued runs."""
    waiting: list[Waiting]
    """The tenants that have queued runs without a cohort, by priority."""
    is_complete: bool
    """Whether there are no such runs of other priorities than those asked for."""

    @property
    def is_plain(self) -> bool:
        """Whether a claim need not consider more than one tenant."""
        return not self.limits and not self.cohorts and len(self.tenants) < 2

    @property
    def tenants(self) -> list[Any]:
        found: list[Any] = []
        for one in self.waiting:
            if one.tenant not in found[-1:] and one.tenant not in found:
                found.append(one.tenant)
        return found


def survey(session: Session, wanted: Claim, priorities: Sequence[int] = PRIORITIES) -> Survey:
    """Read with one command how many runs of each kind are running, and the first run of each cohort and of
    each tenant. Reads no other queued runs.

    ``priorities``: the ones of which to find tenants. Each is a search of its own, and few are in use.
    """
    queues = list(dict.fromkeys(wanted.queues))
    questions: list[tuple[str, list[Document]]] = [
        (
            RUNS,
            [
                {"$match": claims.held_by(wanted)},
                {"$limit": 1},
                {"$project": {"_id": 0, "holds": {"$literal": True}}},
            ],
        ),
        (
            RECORDS,
            [
                {"$match": {"_id": records_between(LIMIT, OWNER, "", None)}},
                {"$sort": {"_id": 1}},
                {"$project": {"_id": 0, "limit": "$body"}},
            ],
        ),
        (
            RUNS,
            [
                # The condition on the worker, which is always true, selects the index of running runs.
                {"$match": {"state": "running", "worker": {"$gte": LOWEST}}},
                {"$group": {"_id": _columns(("cohort", *_COLUMNS)), "running": {"$sum": 1}}},
                {"$project": {"_id": 0, "running": 1, "of": "$_id"}},
            ],
        ),
        *((RUNS, pipeline) for pipeline in first_of_cohorts(queues)),
    ]
    for queue in queues:
        for priority in priorities:
            shown = {"_id": 1, "run_at": 1, "priority": {"$literal": priority}}
            questions.append((RUNS, [*claims.first_of_tenants(queue, priority), {"$project": shown}]))
    if 0 < len(priorities) < len(PRIORITIES):
        others = {**claims.queued(queues), "priority": {"$nin": list(priorities)}}
        is_there = {"$project": {"_id": 0, "others": {"$literal": True}}}
        questions.append((RUNS, [{"$match": others}, {"$limit": 1}, is_there]))
    found = _gather(session, "find limits", questions)
    bodies = [document["limit"] for document in found if isinstance(document.get("limit"), str)]
    waiting = [
        Waiting(document.get("_id"), document["priority"], document.get("run_at"))
        for document in found
        if "priority" in document
    ]
    return Survey(
        holds=any("holds" in document for document in found),
        limits=read_limits(bodies),
        running=[(one.get("of", {}), int(one["running"])) for one in found if "running" in one],
        cohorts=_firsts(found),
        waiting=waiting,
        is_complete=not any("others" in document for document in found),
    )


def _columns(names: Iterable[str]) -> Document:
    return {name: f"${name}" for name in names}


def _gather(session: Session, name: str, questions: Sequence[tuple[str, list[Document]]]) -> list[Document]:
    """Execute several pipelines, each on a collection, with one command, and return all their documents.

    A transaction refuses $unionWith. So each pipeline is a $lookup of one document that always exists.
    """
    stages: list[Document] = [{"$match": VERSION}, {"$project": {"_id": 1}}]
    for at, (collection, pipeline) in enumerate(questions):
        stages.append({"$lookup": {"from": collection, "pipeline": pipeline, "as": f"found{at}"}})
    return session.aggregate(name, META, stages, are_inside=True)


def first_of_cohorts(queues: Sequence[str]) -> list[list[Document]]:
    """Return pipelines that find the first run of each cohort. The server reads one entry of the index for
    each (DISTINCT_SCAN)."""
    pipelines: list[list[Document]] = []
    for queue in queues:
        first, end = cohort_range(queue)
        where = {"state": "queued", "cohort": {"$gte": first, "$lt": end}, "format": {"$lte": FORMAT}}
        grouped = {"_id": "$cohort", "run_at": {"$first": "$run_at"}, "id": {"$first": "$_id"}}
        pipelines.append(
            [
                {"$match": where},
                {"$sort": {"cohort": 1, "run_at": 1, "_id": 1}},
                {"$group": grouped},
                {"$project": {"_id": 0, "cohort": "$_id", "first": "$run_at", "id": 1}},
            ]
        )
    return pipelines


def _firsts(found: Iterable[Document]) -> list[First]:
    return [
        # An id that can't be read is missing: the claim reads it again.
        First(document["cohort"], int(document["first"]), document.get("id", REPLACED))
        for document in found
        if "cohort" in document and isinstance(document.get("first"), int)
    ]


# Cohorts of runs.


def give_cohorts(session: Session, wanted: Claim, seen: Survey, due: Instant) -> bool:
    """Give due runs the cohorts that the limits ask for, and return whether any run was changed.

    No transaction: a run with an outdated cohort gets another one from the next claim.
    """
    limits = seen.limits
    runs: list[Document] = []
    misfits = [first.cohort for first in seen.cohorts if not _fits(limits, first.cohort)]
    fields = ("cohort", *_COLUMNS, "payload")
    if misfits:
        where = {"state": "queued", "cohort": {"$in": misfits[:_COHORTS_AT_ONCE]}}
        shown = dict.fromkeys(fields, 1)
        runs += session.find("find outdated", RUNS, where, fields=shown, limit=GIVEN_AT_ONCE)
        # A text that is not UTF-8 is not found: its first run is.
        if firsts := [one.id for one in seen.cohorts if one.cohort in misfits and is_doubtful(one.cohort)]:
            where = {"_id": among(firsts[:_COHORTS_AT_ONCE]), "state": "queued"}
            runs += session.find("find outdated", RUNS, where, fields=shown)
    if limits and len(runs) < GIVEN_AT_ONCE:
        search = Search(due, wanted.turn, limited(wanted, limits), fields)
        room = GIVEN_AT_ONCE - len(runs)
        runs += find_in_turn(session, seen.waiting, search, room)[:room]
    changes: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        before, after = run.get("cohort", NO_COHORT), _cohort_of(limits, run) or NO_COHORT
        if before != after:
            changes.setdefault((before, after), []).append(run["_id"])
    if not changes:
        return False
    updates = [
        {
            # A cohort names a task: a run that was moved to another one since is left alone.
            "q": {
                "_id": among(ids),
                "state": "queued",
                "cohort": _stored(before),
                **({"task": read_cohort(after).task} if after else {}),
            },
            "u": {"$set": {"cohort": after}},
            "multi": True,
            "hint": "_id_",
        }
        for (before, after), ids in changes.items()
    ]
    command = {"update": RUNS, "updates": updates, "ordered": False}
    try:
        session.write_each("give cohorts", command, SHORT_WAIT + _FOR_EACH * len(runs))
    except RowRefused as error:
        session.await_majority()
        raise ClaimRefused(
            [run_id for ids in changes.values() for run_id in ids], error, are_chosen=False
        ) from error
    session.announce("committed")
    return True


def _stored(cohort: str) -> Any:
    """Return the condition of a cohort. One that is not UTF-8 may be any."""
    return {"$gt": NO_COHORT} if is_doubtful(cohort) else cohort


def _fits(limits: Limits, cohort: str) -> bool:
    try:
        return limits.fits(cohort)
    except ValueError:
        return False  # edited by hand


def _cohort_of(limits: Limits, run: Mapping[str, Any]) -> str | None:
    queue, priority, tenant, task, kind = (run.get(name) for name in _COLUMNS)
    is_whole = isinstance(queue, str) and isinstance(tenant, str) and isinstance(task, str)
    if not is_whole or not isinstance(priority, int):
        return None  # damaged: the claim that takes it sets it to failed
    payload = run.get("payload")
    text = payload if isinstance(payload, str) else ""
    return limits.cohort_of(str(queue), priority, str(tenant), str(task), text, str(kind))


def running_cohorts(session: Session, seen: Survey) -> Counter[str]:
    """Count the running runs by the cohorts that the present limits give them.

    A run may have started before the limit was set: its columns tell its cohort, and its payload, which is
    read then, if the limit has a key.
    """
    counts: Counter[str] = Counter()
    for of, count in seen.running:
        cohort = of.get("cohort") or NO_COHORT
        if cohort and _fits(seen.limits, cohort):
            counts[cohort] += count
            continue
        by_columns = _cohort_of(seen.limits, of)
        if by_columns is None:
            continue
        if not read_cohort(by_columns).values:
            counts[by_columns] += count
            continue
        where = {"state": "running", "worker": {"$gte": LOWEST}, **of}
        shown = dict.fromkeys((*_COLUMNS, "payload"), 1)
        for run in session.find("find running", RUNS, where, fields=shown, hint=LEASED.name):
            counts[_cohort_of(seen.limits, run) or by_columns] += 1
    return counts


def usage(session: Session, wanted: Claim, seen: Survey, now: Instant) -> Usage:
    """Read what is used of each limit that concerns the claim's cohorts."""
    names = seen.limits.buckets(first.cohort for first in _of_tasks(wanted, seen))
    levels = find_bodies(session, [record_id(BUCKET, OWNER, name) for name in names], now) if names else {}
    return Usage(seen.limits, running_cohorts(session, seen), levels, now)


def _of_tasks(wanted: Claim, seen: Survey) -> list[First]:
    """Return the cohorts of the claim's tasks, without those that do not fit the limits."""
    return [
        first
        for first in seen.cohorts
        if _fits(seen.limits, first.cohort)
        and (wanted.tasks is None or read_cohort(first.cohort).task in wanted.tasks)
    ]


def may_start(wanted: Claim, seen: Survey, used: Usage, due: Instant) -> bool:
    """Return whether the limits admit a due run."""
    return any(first.run_at <= due and used.room(first.cohort) != 0 for first in _of_tasks(wanted, seen))


def next_admitted(wanted: Claim, seen: Survey, used: Usage, due: Instant) -> Instant | None:
    """Return when a run with a cohort may start next. Runs with outdated cohorts count as due."""
    if any(not _fits(seen.limits, first.cohort) for first in seen.cohorts):
        return due
    return next_start(((first.cohort, first.run_at) for first in _of_tasks(wanted, seen)), used)


# The transaction.


class LimitedClaim(NamedTuple):
    """A claim of limited runs, and of others along with them."""

    wanted: Claim
    due: Instant
    now: Instant
    """The time of the store's own clock."""
    seen: Survey
    unlimited: list[Candidate]
    """Due runs that no limit concerns."""


def claim_limited(session: Session, claim: LimitedClaim) -> ClaimedRuns:
    """Choose and start runs, in a transaction."""
    wanted, due, now = claim.wanted, claim.due, claim.now
    session.bulk("lock limits", META, [UpdateOne(_LOCK, {"$inc": {"claims": 1}}, upsert=True)])
    seen = survey(session, wanted, priorities=())
    if seen.limits is not claim.seen.limits:
        raise Contended  # the limits have changed: other runs may be limited now
    if seen.holds:
        raise Contended  # the first try was committed meanwhile
    used = usage(session, wanted, seen, now)
    found = [*claim.unlimited, *_limited_candidates(session, claim, seen, used)]
    chosen = choose(found, wanted.limit, wanted.turn, used)
    _start(session, claim, chosen)
    spent = [record_document(record) for record in used.spent()]
    session.bulk(
        "put buckets", RECORDS, [ReplaceOne({"_id": record["_id"]}, record, upsert=True) for record in spent]
    )
    held = session.find("find claimed", RUNS, claims.held_by(wanted), hint=LEASED.name, quiet=True)
    claimed = claims.read_claimed(held, [run.id for run in chosen])
    if len(chosen) == wanted.limit:
        return claimed._replace(next_due=due)
    return claimed._replace(next_due=_next_due(session, claim, seen, used))


def _next_due(session: Session, claim: LimitedClaim, seen: Survey, used: Usage) -> Instant | None:
    """Return when the claim could take another run, after those that it has taken."""
    wanted = claim.wanted
    pipelines = claims.next_due(wanted, claim.seen.tenants)
    pipelines += first_of_cohorts(list(dict.fromkeys(wanted.queues)))
    found = _gather(session, "find next due", [(RUNS, pipeline) for pipeline in pipelines])
    admitted = next_admitted(wanted, seen._replace(cohorts=_firsts(found)), used, claim.due)
    moments = (claims.earliest(found), admitted)
    return min((moment for moment in moments if moment is not None), default=None)


def _limited_candidates(session: Session, claim: LimitedClaim, seen: Survey, used: Usage) -> list[Candidate]:
    """Return the first due runs of the cohorts that the limits admit, as many as the claim could take.

    A claim takes no run of a cohort before the cohort's first run. So only the cohorts with the earliest
    first runs matter, of each priority and tenant as many as the claim may take runs.
    """
    found: list[Candidate] = []
    to_read: list[tuple[str, int]] = []
    cohorts: Counter[tuple[int, str]] = Counter()
    for first in sorted(_of_tasks(claim.wanted, seen), key=lambda one: (one.run_at, one.id)):
        room = used.room(first.cohort)
        parts = read_cohort(first.cohort)
        if (
            first.run_at > claim.due
            or room == 0
            or cohorts[parts.priority, parts.tenant] >= claim.wanted.limit
        ):
            continue
        cohorts[parts.priority, parts.tenant] += 1
        most = claim.wanted.limit if room is None else min(room, claim.wanted.limit)
        if most == 1 and not is_doubtful(first.id):
            found.append(Candidate(first.id, parts.tenant, parts.priority, first.run_at, first.cohort))
        else:
            to_read.append((first.cohort, most))
    for at in range(0, len(to_read), _COHORTS_AT_ONCE):
        some = to_read[at : at + _COHORTS_AT_ONCE]
        questions = [(RUNS, _due_of_cohort(cohort, claim.due, most)) for cohort, most in some]
        for document in _gather(session, "find due of cohorts", questions):
            cohort, run_at = document["cohort"], document["run_at"]
            parts = read_cohort(cohort)
            found.append(Candidate(document["_id"], parts.tenant, parts.priority, run_at, cohort))
    return found


def _due_of_cohort(cohort: str, due: Instant, most: int) -> list[Document]:
    where = {"state": "queued", "cohort": cohort, "run_at": {"$lte": due}, "format": {"$lte": FORMAT}}
    return [
        {"$match": where},
        {"$sort": {"run_at": 1, "_id": 1}},
        {"$limit": most},
        {"$project": {"_id": 1, "run_at": 1, "cohort": {"$literal": cohort}}},
    ]


def _start(session: Session, claim: LimitedClaim, chosen: Sequence[Candidate]) -> None:
    change = claims.start(claim.wanted, claim.now)
    free = [run.id for run in chosen if run.cohort is None]
    operations = []
    if free:
        where = {"_id": among(free), **claims.claimable(claim.wanted, claim.wanted.queues, claim.due)}
        operations.append(UpdateMany(where, change, hint="_id_"))
    if ids := [run.id for run in chosen if run.cohort is not None]:
        where = {"_id": among(ids), "state": "queued", "cohort": {"$gt": NO_COHORT}}
        operations.append(UpdateMany(where, change, hint="_id_"))
    try:
        session.bulk("claim limited runs", RUNS, operations)
    except RowRefused as error:
        raise ClaimRefused([run.id for run in chosen], error) from error
