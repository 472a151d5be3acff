"""Purging of old runs with their logs, of ledger rows, and of expired records.

A purge uses no transaction: 500 runs with 1,000 lines each are too many for a transaction on a server with a
small cache. If the process dies after any step, the next purge continues there: a purge deletes the log lines
before their run. It deletes lines again after the run, because a worker may have written some in between.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evenbeat.core.instants import FIRST, Instant
from evenbeat.core.records import RunState
from evenbeat.stores.base import EndedRuns, Purged
from evenbeat.stores.mongo.damaged_ids import DamagedId, among
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import log_key, log_of
from evenbeat.stores.mongo.schema import ENDED, LOGS, OVER, RECORDS, RUNS, SKIPPED, Index
from evenbeat.stores.mongo.session import Session

# How many runs one command deletes the log lines of.
_RUNS_AT_ONCE = 50
# Time limits, in seconds, of one command that deletes lines, and of all such commands in one call. 500,000
# lines take longer.
_FOR_LINES = 2.0
_FOR_ALL_LINES = 5.0


def purge(
    session: Session, finished_before: Instant, limit: int, runs: EndedRuns, now: Instant, patience: float
) -> Purged:
    if limit <= 0:
        return Purged(0, FIRST)
    ends: Document = {"$not": {"$gte": finished_before}}
    if runs.since is not None:
        ends["$gte"] = runs.since
    over: Document = {"state": {"$in": list(runs.states)}, "finished_at": ends}
    if runs.tenant is not None:
        over["tenant"] = runs.tenant
    elif runs.spared:
        over["tenant"] = {"$nin": list(runs.spared)}
    if runs.held:
        over["$nor"] = [
            {"finished_at": {"$gte": each.before}, "fired_by": {"$regex": f"{re.escape(each.mark)}$"}}
            for each in runs.held
        ]
    recorded = {"recorded_at": {"$lt": finished_before}}
    expired = {"expires": {"$lte": now}}
    others = {SKIPPED: recorded, RECORDS: expired} if runs.others else {}
    index = OVER if runs.tenant is None else ENDED
    found = _find_old(session, over, index, others, limit)[:limit]
    old, skipped, records = (
        [document for document in found if document["of"] == collection]
        for collection in (RUNS, SKIPPED, RECORDS)
    )
    gone = handled = 0
    for some in _without_lines(session, old):
        # The condition is checked again: a run that was retried since it was found stays.
        where = {"_id": among(_ids(some)), **over}
        gone += _delete(session, RUNS, where, patience)
        handled += len(some)
        drop_lines_without_runs(session, [_made(run) for run in some])
    if skipped:
        gone += _delete(session, SKIPPED, {"_id": among(_ids(skipped)), **recorded}, patience)
    if records:
        gone += _delete(session, RECORDS, {"_id": among(_ids(records)), **expired}, patience)
    if handled < len(old):
        return Purged(gone, FIRST)
    if len(found) < limit:
        return Purged(gone, finished_before)
    return Purged(gone, old[-1].get("finished_at") or 0 if len(old) == limit else FIRST)


def ended_at(
    session: Session, position: int, tenant: str | None, states: Sequence[RunState]
) -> Instant | None:
    """Return when the run at a position ended. Reads the index alone."""
    if position < 1 or not states:
        return None
    # The bound lets the server answer from the index "over" alone.
    where: Document = {"finished_at": {"$gte": FIRST}, "state": {"$in": list(states)}}
    if tenant is not None:
        where["tenant"] = tenant
    pipeline: list[Document] = [
        {"$match": where},
        {"$sort": {"finished_at": -1}},
        {"$skip": position - 1},
        {"$limit": 1},
        {"$project": {"_id": 0, "finished_at": 1}},
    ]
    index = OVER if tenant is None else ENDED
    found = session.aggregate("find ends", RUNS, pipeline, hint=index.name)
    return None if not found else int(found[0].get("finished_at") or 0)


def _find_old(
    session: Session, over: Document, index: Index, others: dict[str, Document], limit: int
) -> list[Document]:
    """Find old rows, with one command. ``others`` are the conditions of other collections."""

    def oldest(collection: str, where: Document, by: str, *fields: str) -> list[Document]:
        shown = {"_id": 1, "of": {"$literal": collection}, **dict.fromkeys(fields, 1)}
        return [{"$match": where}, {"$sort": {by: 1}}, {"$limit": limit}, {"$project": shown}]

    pipeline = oldest(RUNS, over, "finished_at", "attempt", "created_at", "finished_at")
    for collection, where in others.items():
        (by,) = where
        pipeline.append({"$unionWith": {"coll": collection, "pipeline": oldest(collection, where, by)}})
    return session.aggregate("find old", RUNS, pipeline, hint=index.name)


def _without_lines(session: Session, runs: list[Document]) -> Iterator[list[Document]]:
    """Delete the log lines of runs, and yield these runs. Stop early if this takes too long: the
    next purge finds the other runs again."""
    deadline = time.monotonic() + _FOR_ALL_LINES
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[at : at + _RUNS_AT_ONCE]
        # Keeps the lines of an attempt that begins meanwhile: a retry increments the attempt.
        # Keeps those of a later run of the id, too: another purge may be faster than this one.
        # A damaged id has no lines: no worker could run it.
        lines = [
            {"q": {"_id": log_of(key, run.get("attempt"))}, "limit": 0}
            for run in some
            if not isinstance(run["_id"], DamagedId)
            for key in _log_keys(*_made(run))
        ]
        command = {"delete": LOGS, "deletes": lines}
        while lines and session.write_each("delete logs", command, _FOR_LINES) is None:
            if time.monotonic() >= deadline:
                return
        yield some
        if time.monotonic() >= deadline:
            return


def drop_lines_without_runs(session: Session, runs: Iterable[tuple[str, Instant | None]]) -> None:
    """Delete the log lines of those of the runs, given as (id, created_at), that do not exist: no purge would
    ever find these lines.

    Call it after writing lines and after deleting runs: the later of the two calls sees the effect of the
    earlier one.
    """
    wanted = [(run_id, made) for run_id, made in runs if not isinstance(run_id, DamagedId)]
    there = _present(session, wanted) if wanted else {}
    keys: list[str] = []
    for run_id, made in wanted:
        if run_id not in there:
            keys += _log_keys(run_id, made)
        elif made is not None and made != there[run_id]:  # a later run of that id, which keeps its own lines
            keys.append(log_key(run_id, made))
    lines = [{"q": {"_id": log_of(key)}, "limit": 0} for key in keys]
    if lines:
        session.write_each("delete logs", {"delete": LOGS, "deletes": lines}, _FOR_LINES)
        session.announce("committed")


def _delete(session: Session, collection: str, where: Document, patience: float) -> int:
    command = {"delete": collection, "deletes": [{"q": where, "limit": 0}]}
    return int(session.write(f"delete {collection}", command, patience)["n"])


def _present(session: Session, runs: Sequence[tuple[str, Instant | None]]) -> dict[str, Any]:
    """Return those of the ids that exist, each with the time of its making where one of ``runs`` needs it."""
    ids = list(dict.fromkeys(run_id for run_id, _ in runs))
    fields = {"_id": 1} if all(made is None for _, made in runs) else {"created_at": 1}
    found = session.find("find present", RUNS, {"_id": {"$in": ids}}, fields=fields)
    return {document["_id"]: document.get("created_at") for document in found}


def _made(run: Document) -> tuple[str, Instant | None]:
    """Return the id of a run, and when it was made if the id may be given again."""
    run_id, created_at = run["_id"], run.get("created_at")
    return run_id, None if log_key(run_id, created_at) == run_id else created_at


def _log_keys(run_id: str, made: Instant | None) -> tuple[str, ...]:
    return (run_id,) if made is None else (run_id, log_key(run_id, made))


def _ids(documents: list[Document]) -> list[str]:
    return [document["_id"] for document in documents]
