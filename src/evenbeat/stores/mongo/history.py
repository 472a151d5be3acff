"""Finds and counts runs; reads the ledger, statistics and logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FINAL_STATES, LogChunk, RunRecord, RunState, Skipped, Statistics
from evenbeat.stores.base import LEFT_OUT, ActiveCounts, Page, QueueCounts, RunQuery
from evenbeat.stores.damage import Unreadable
from evenbeat.stores.mongo.damaged_ids import after as after_id
from evenbeat.stores.mongo.damaged_ids import in_order
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import (
    LOWEST,
    NO_COHORT,
    SHARDS,
    log_key,
    log_of,
    read_log,
    read_run,
    read_skipped,
    read_statistics,
    readable,
    statistics_id,
)
from evenbeat.stores.mongo.schema import (
    ACTIVE,
    CLAIMABLE,
    COHORTS,
    LEASED,
    LOGS,
    NEWEST,
    OF_SCHEDULE,
    OVER,
    RUNS,
    SKIPPED,
    SKIPPED_NEWEST,
    STATISTICS,
    Index,
)
from evenbeat.stores.mongo.session import Session, Sort
from evenbeat.stores.pages import Position, fetch_run_page
from evenbeat.stores.queue_counts import added_up

_RUNNING = ("running",)
_NEWEST_FIRST: Sort = [("created_at", -1), ("_id", 1)]
_FINAL = sorted(FINAL_STATES)
# The two indexes of queued runs, each with the condition of its runs.
_QUEUED: tuple[tuple[Document, Index], ...] = (
    ({"cohort": NO_COHORT}, CLAIMABLE),
    ({"cohort": {"$gt": NO_COHORT}}, COHORTS),
)
_BY_ID = Index(RUNS, "_id_", {"_id": 1})
_Source: TypeAlias = tuple[list[Document], Index]


def find(session: Session, query: RunQuery) -> Page[RunRecord]:
    def fetch(after: Position | None, limit: int) -> tuple[Iterable[RunRecord], Position | None]:
        documents: list[Document] = []
        fields: Document = dict.fromkeys(map(str, query.without), False)
        for where, index in search_filters(query, after):
            documents += session.find(
                "find runs", RUNS, where, fields=fields or None, sort=_NEWEST_FIRST, limit=limit, hint=index
            )
        documents = sorted(documents, key=_order)[:limit]
        position = None
        if len(documents) == limit and isinstance(documents[-1].get("created_at"), int):
            position = (documents[-1]["created_at"], documents[-1]["_id"])
        if "payload" in query.without:
            documents = [{**document, "payload": LEFT_OUT["payload"]} for document in documents]
        return readable(documents, read_run), position

    return fetch_run_page(query, fetch)


def _order(document: Document) -> tuple[int, bytes]:
    created_at = document.get("created_at")
    return (-created_at if isinstance(created_at, int) else 0, in_order(document["_id"]))


def search_filters(query: RunQuery, after: Position | None = None) -> list[tuple[Document, str]]:
    """Return the filters of a search, each with its index.

    This function chooses the indexes, not the planner: the planner tries its plans on the first documents,
    and would read the whole history to find the few runs that are running.
    """
    conditions = _conditions(query, after)
    return [
        ({"$and": [*source, *conditions]} if source or conditions else {}, index.name)
        for source, index in _sources(query)
    ]


def _sources(query: RunQuery) -> list[_Source]:
    """Return conditions, each with an index that contains all documents that match it. Every run that the
    query asks for matches one of the conditions."""
    if query.ids is not None:
        return [([{"_id": {"$in": list(dict.fromkeys(query.ids))}}], _BY_ID)]
    if query.finished_since is not None:
        return [_ended_since(query.finished_since)] if query.asks_for(FINAL_STATES) else []
    if query.is_about_active_runs_of_a_schedule:
        return [([], ACTIVE)]
    if query.states == _RUNNING:
        return [([], LEASED)]
    queued: list[_Source] = [([{"state": "queued"}, where], index) for where, index in _QUEUED]
    if query.retrying or query.is_about_queued_runs_of_a_queue:
        return queued
    if query.since is not None:
        ended = _ended_since(query.since)
        running: _Source = ([{"state": "running"}], LEASED)
        parts = ((FINAL_STATES, [ended]), (("running",), [running]), (("queued",), queued))
        return [source for states, sources in parts if query.asks_for(states) for source in sources]
    return [([], NEWEST if query.tenant is None or query.schedule is None else OF_SCHEDULE)]


def _ended_since(instant: Instant) -> _Source:
    return [{"state": {"$in": _FINAL}}, {"finished_at": {"$gte": instant}}], OVER


def _conditions(query: RunQuery, after: Position | None) -> list[Document]:
    equal = {
        "tenant": query.tenant,
        "schedule": query.schedule,
        "task": query.task,
        "queue": query.queue,
        "worker": query.worker,
        "cancel_requested": query.cancel_requested,
    }
    where: list[Document] = [{name: value} for name, value in equal.items() if value is not None]
    if query.states is not None:
        where.append({"state": query.states[0] if len(query.states) == 1 else {"$in": list(query.states)}})
    if query.retrying:
        where += [{"state": "queued"}, {"failures": {"$gt": 0}}]
    if query.since is not None:
        where.append({"$or": [{"started_at": {"$exists": True}}, {"finished_at": {"$exists": True}}]})
        where.append({"$or": [{"finished_at": {"$exists": False}}, {"finished_at": {"$gte": query.since}}]})
    if query.created_since is not None:
        where.append({"created_at": {"$gte": query.created_since}})
    if query.until is not None:
        began = {"started_at": {"$lt": query.until}}
        ended = {"started_at": {"$exists": False}, "finished_at": {"$lt": query.until}}
        # An earlier attempt may have begun in time.
        where.append({"$or": [began, ended, {"attempt": {"$gt": 1}}]})
        where.append({"created_at": {"$lte": query.created_by}})
    if after is not None:
        created_at, run_id = after
        where.append({"created_at": {"$lte": created_at}})
        where.append({"$or": [{"created_at": {"$lt": created_at}}, {"_id": after_id(run_id)}]})
    return where


def _queued() -> list[tuple[Document, Index]]:
    """Return conditions that all queued runs match, each with the index that contains them."""
    always = {"queue": {"$gte": LOWEST}}
    return [
        ({"state": "queued", **where, **(always if index is CLAIMABLE else {})}, index)
        for where, index in _QUEUED
    ]


def count(session: Session, tenant: str | None) -> dict[RunState, int]:
    """Count the runs in each state. Reads one index for each part, and no documents."""
    # A condition on the first field, which is always true, makes the server read nothing but the index.
    parts = (
        *_queued(),
        ({"state": "running", "worker": {"$gte": LOWEST}}, LEASED),
        ({"state": {"$in": _FINAL}, "finished_at": {"$gte": LOWEST}}, OVER),
    )
    counts: dict[RunState, int] = {}
    for where, index in parts:
        matching = where if tenant is None else {**where, "tenant": tenant}
        grouped = {"$group": {"_id": "$state", "count": {"$sum": 1}}}
        for document in session.aggregate(
            "count runs", RUNS, [{"$match": matching}, grouped], hint=index.name
        ):
            state = document["_id"]
            counts[state] = counts.get(state, 0) + int(document["count"])
    return counts


def count_active(session: Session, now: Instant) -> list[ActiveCounts]:
    """Count queued and running runs. Reads one index for each part, as ``count`` does, and their
    documents."""
    is_due = {"$lte": ["$run_at", now]}
    waiting = {
        "due": {"$sum": {"$cond": [is_due, 1, 0]}},
        "later": {"$sum": {"$cond": [is_due, 0, 1]}},
        "oldest_due": {"$min": {"$cond": [is_due, "$run_at", None]}},
    }
    parts: tuple[tuple[Document, Index, Document], ...] = (
        *((where, index, waiting) for where, index in _queued()),
        ({"state": "running", "worker": {"$gte": LOWEST}}, LEASED, {"running": {"$sum": 1}}),
    )
    group = {name: f"${name}" for name in ("tenant", "queue", "priority", "task", "cohort")}
    found: dict[str, Document] = {}
    for where, index, figures in parts:
        pipeline: list[Document] = [
            {"$match": where},
            {"$group": {"_id": group, **figures}},
            {"$project": {"_id": 0, "of": "$_id", **dict.fromkeys(figures, 1)}},
        ]
        for document in session.aggregate("count active", RUNS, pipeline, hint=index.name):
            identity = document.pop("of", {})
            identity["cohort"] = identity.get("cohort") or None
            counts = found.setdefault(repr(identity), identity)
            # The server sends large numbers as Int64, which nothing outside the driver can encode.
            counts |= {name: None if value is None else int(value) for name, value in document.items()}
    return readable(found.values(), _active_counts)


def _active_counts(document: Document) -> ActiveCounts:
    try:
        return msgspec.convert(document, ActiveCounts)
    except msgspec.MsgspecError as error:
        raise Unreadable(str(error)) from error


def count_queues(session: Session, now: Instant, since: Instant) -> list[QueueCounts]:
    """Count the runs of queues. Reads one index for each part, as ``count`` does."""

    def number(condition: Document) -> Document:
        return {"$sum": {"$cond": [condition, 1, 0]}}

    is_due = {"$lte": ["$run_at", now]}
    came_due = number({"$and": [{"$gte": ["$run_at", since]}, is_due]})
    waiting = {
        "due": number(is_due),
        "later": number({"$gt": ["$run_at", now]}),
        "retrying": number({"$gt": ["$failures", 0]}),
        "oldest_due": {"$min": {"$cond": [is_due, "$run_at", None]}},
        "came_due": came_due,
    }
    every = {"$sum": 1}
    parts: tuple[tuple[Document, Index, Document], ...] = (
        *((where, index, waiting) for where, index in _queued()),
        ({"state": "running", "worker": {"$gte": LOWEST}}, LEASED, {"running": every, "came_due": came_due}),
        (
            {"state": {"$in": _FINAL}, "finished_at": {"$gte": since}},
            OVER,
            {"ended": every, "came_due": came_due},
        ),
    )
    found: list[QueueCounts] = []
    for where, index, figures in parts:
        grouped = {"$group": {"_id": "$queue", **figures}}
        for document in session.aggregate(
            "count queues", RUNS, [{"$match": where}, grouped], hint=index.name
        ):
            # The server sends large numbers as Int64, which nothing outside the driver can encode.
            counts: dict[str, Any] = {
                name: None if value is None else int(value)
                for name, value in document.items()
                if name != "_id"
            }
            found.append(QueueCounts(queue=str(document["_id"]), **counts))
    return added_up(found)


def skipped(
    session: Session, tenant: str, schedule: str, limit: int, since: Instant | None, until: Instant | None
) -> list[Skipped]:
    if limit <= 0:
        return []
    wanted: Document = {"tenant": tenant, "schedule": schedule}
    if since is not None:
        wanted["last"] = {"$gte": since}
    if until is not None:
        wanted["first"] = {"$lt": until}
    documents = session.find(
        "find skipped",
        SKIPPED,
        wanted,
        sort=[("last", -1), ("first", -1)],
        limit=limit,
        hint=SKIPPED_NEWEST.name,
    )
    return readable(documents, read_skipped)


def statistics(session: Session, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
    ids = [statistics_id(key, shard) for key in keys for shard in range(SHARDS)]
    documents = session.find("find statistics", STATISTICS, {"_id": {"$in": ids}}) if ids else []
    found: dict[tuple[str, str], list[Statistics]] = {}
    for part in readable(documents, read_statistics):
        found.setdefault((part.tenant, part.schedule), []).append(part)
    return [_together(key, found.get(key, [])) for key in keys]


def _together(key: tuple[str, str], parts: Sequence[Statistics]) -> Statistics:
    """Add up the statistics documents of a schedule."""

    def newest(name: str) -> Instant | None:
        return max((moment for part in parts if (moment := getattr(part, name)) is not None), default=None)

    errors = [part for part in parts if part.last_error is not None]
    last = max(errors, key=lambda part: part.last_failure or 0, default=None)
    return Statistics(
        tenant=key[0],
        schedule=key[1],
        run_count=sum(part.run_count for part in parts),
        success_count=sum(part.success_count for part in parts),
        failure_count=sum(part.failure_count for part in parts),
        last_run=newest("last_run"),
        last_success=newest("last_success"),
        last_failure=newest("last_failure"),
        last_error=None if last is None else last.last_error,
    )


def log(session: Session, run: str) -> list[LogChunk]:
    # An id with a slash is never given twice.
    found = [] if "/" in run else session.find("find run", RUNS, {"_id": run}, fields={"created_at": 1})
    keys = {run, *(log_key(run, one.get("created_at")) for one in found)}
    where = {"$or": [{"_id": log_of(key)} for key in sorted(keys)]}
    chunks = readable(session.find("find log", LOGS, where), read_log)
    chunks.sort(key=lambda chunk: (chunk.attempt, chunk.seq))
    return [replace(chunk, run=run) for chunk in chunks]
