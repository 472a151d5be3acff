"""What is kept about the past: runs found and counted, the ledger, statistics, logs."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.instants import Instant
from evenbeat.model import ACTIVE_STATES, FINAL_STATES, LogChunk, Run, RunState, Skipped, Statistics
from evenbeat.stores.base import Page, RunQuery
from evenbeat.stores.mongo.clients import Document
from evenbeat.stores.mongo.commands import Commands, Sort
from evenbeat.stores.mongo.rows import (
    LOWEST,
    SHARDS,
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
    LEASED,
    LOGS,
    NEWEST,
    OF_SCHEDULE,
    OVER,
    RUNS,
    SKIPPED,
    SKIPPED_NEWEST,
    STATISTICS,
)
from evenbeat.stores.pages import read_run_cursor, run_cursor

_RUNNING = ("running",)
_NEWEST_FIRST: Sort = [("created_at", -1), ("_id", 1)]
_FINAL = sorted(FINAL_STATES)


def find(commands: Commands, query: RunQuery) -> Page[Run]:
    after = read_run_cursor(query.cursor)
    found: list[Run] = []
    while True:
        # One more than asked for says whether there is more.
        missing = query.limit + 1 - len(found)
        where, index = question(query, after)
        documents = commands.find("find runs", RUNS, where, sort=_NEWEST_FIRST, limit=missing, hint=index)
        found += readable(documents, read_run)
        if len(found) > query.limit or len(documents) < missing:
            break
        # Documents that can't be read were left out: others may stand behind them.
        last = documents[-1]
        if not isinstance(last.get("created_at"), int):
            break
        after = (last["created_at"], last["_id"])
    items = tuple(found[: query.limit])
    return Page(items, run_cursor(items[-1]) if items and len(found) > query.limit else None)


def question(query: RunQuery, after: tuple[Instant, str] | None = None) -> tuple[Document, str]:
    """The filter of a search and its index. That is chosen here: the planner tries plans on what happens to
    stand first, and would walk through all of history for the few runs that are running."""
    where: Document = {}
    index = NEWEST.name
    if query.ids is not None:
        where["_id"] = {"$in": list(dict.fromkeys(query.ids))}
        index = "_id_"
    elif _is_about_active_runs(query):
        index = ACTIVE.name
    elif query.states == _RUNNING:
        index = LEASED.name
    elif query.tenant is not None and query.schedule is not None:
        index = OF_SCHEDULE.name
    equal = {
        "tenant": query.tenant, "schedule": query.schedule, "task": query.task, "queue": query.queue,
        "worker": query.worker, "cancel_requested": query.cancel_requested,
    }  # fmt: skip
    where |= {name: value for name, value in equal.items() if value is not None}
    if query.states is not None:
        where["state"] = query.states[0] if len(query.states) == 1 else {"$in": list(query.states)}
    if after is not None:
        created_at, run_id = after
        behind = [{"created_at": {"$lt": created_at}}, {"_id": {"$gt": run_id}}]
        where = {"$and": [where, {"created_at": {"$lte": created_at}}, {"$or": behind}]}
    return where, index


def _is_about_active_runs(query: RunQuery) -> bool:
    """Of one schedule: there are few, however long its history is."""
    named = query.tenant is not None and query.schedule is not None
    return named and bool(query.states) and ACTIVE_STATES.issuperset(query.states or ())


def count(commands: Commands, tenant: str | None) -> dict[RunState, int]:
    """Each part from the index that holds it, without reading a document."""
    # With a condition on its first field, which all fulfil, an index is known to answer alone.
    parts = (
        ({"state": "queued", "queue": {"$gte": LOWEST}}, CLAIMABLE),
        ({"state": "running", "worker": {"$gte": LOWEST}}, LEASED),
        ({"state": {"$in": _FINAL}, "finished_at": {"$gte": LOWEST}}, OVER),
    )
    counts: dict[RunState, int] = {}
    for where, index in parts:
        matching = where if tenant is None else {**where, "tenant": tenant}
        grouped = {"$group": {"_id": "$state", "count": {"$sum": 1}}}
        for document in commands.aggregate(
            "count runs", RUNS, [{"$match": matching}, grouped], hint=index.name
        ):
            counts[document["_id"]] = int(document["count"])
    return counts


def skipped(commands: Commands, tenant: str, schedule: str, limit: int) -> list[Skipped]:
    if limit <= 0:
        return []
    documents = commands.find(
        "find skipped", SKIPPED, {"tenant": tenant, "schedule": schedule},
        sort=[("last", -1), ("first", -1)], limit=limit, hint=SKIPPED_NEWEST.name,
    )  # fmt: skip
    return readable(documents, read_skipped)


def statistics(commands: Commands, keys: Sequence[tuple[str, str]]) -> list[Statistics]:
    ids = [statistics_id(key, shard) for key in keys for shard in range(SHARDS)]
    documents = commands.find("find statistics", STATISTICS, {"_id": {"$in": ids}}) if ids else []
    found: dict[tuple[str, str], list[Statistics]] = {}
    for part in readable(documents, read_statistics):
        found.setdefault((part.tenant, part.schedule), []).append(part)
    return [_together(key, found.get(key, [])) for key in keys]


def _together(key: tuple[str, str], parts: Sequence[Statistics]) -> Statistics:
    """What workers have counted in documents of their own."""

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


def log(commands: Commands, run: str) -> list[LogChunk]:
    documents = commands.find("find log", LOGS, {"_id": log_of(run)}, sort=[("_id", 1)])
    return readable(documents, read_log)
