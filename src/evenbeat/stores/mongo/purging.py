"""The end of the past: old runs with their logs, ledger rows, expired records, lines of logs without a run.

No transaction: 500 runs with 1,000 lines each are more than a server with a small cache takes in one. Every
step may be the last one of its process, and the next purge goes on where it stopped: lines are deleted before
their run, and lines whose run does not exist are found by their age.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from evenbeat.instants import Instant
from evenbeat.model import FINAL_STATES
from evenbeat.stores.mongo.clients import Document
from evenbeat.stores.mongo.commands import Commands
from evenbeat.stores.mongo.rows import log_of
from evenbeat.stores.mongo.schema import LOGS, OVER, RECORDS, RUNS, SKIPPED

_FINAL = sorted(FINAL_STATES)
# Runs whose lines are deleted by one command.
_RUNS_AT_ONCE = 50
# Seconds for one command that deletes lines, and for all of them in one call: 500,000 lines take longer.
_FOR_LINES = 2.0
_FOR_ALL_LINES = 5.0
# Old lines that one look checks for a run.
_LINES_LOOKED_AT = 1_000


class _Old:
    """What a purge is about to delete."""

    def __init__(self, found: list[Document], limit: int) -> None:
        def of(collection: str) -> list[Document]:
            return [document for document in found if document["of"] == collection]

        room = limit
        self.runs = of(RUNS)[:room]
        room -= len(self.runs)
        self.skipped = of(SKIPPED)[:room]
        room -= len(self.skipped)
        self.records = of(RECORDS)[:room]
        self.room = room - len(self.records)
        """How many lines may be deleted besides."""
        logs = of(LOGS)
        self.runless = [document["_id"] for document in logs if not document["run"]]
        self.saw_all_lines = sum(document["lines"] for document in logs) < _LINES_LOOKED_AT


def purge(commands: Commands, finished_before: Instant, limit: int, now: Instant, patience: float) -> int:
    if limit <= 0:
        return 0
    # What has not expired yet is no past, whatever the caller's clock says.
    expired = {"expires": {"$lt": min(finished_before, now)}}
    over = {"state": {"$in": _FINAL}, "finished_at": {"$not": {"$gte": finished_before}}}
    old = _Old(_look(commands, over, expired, finished_before, limit), limit)
    gone = 0
    for some in _groups(commands, old.runs):
        # The condition again: a run that was queued again since then stays.
        where = {"_id": {"$in": some}, **over}
        gone += _delete(commands, RUNS, where, patience)
    if old.skipped:
        gone += _delete(commands, SKIPPED, {"_id": {"$in": _ids(old.skipped)}}, patience)
    if old.records:
        gone += _delete(commands, RECORDS, {"_id": {"$in": _ids(old.records)}, **expired}, patience)
    runless = old.runless
    if not gone and not runless and not old.saw_all_lines:
        # The oldest lines belong to runs that go on: look behind them.
        runless = [
            document["_id"]
            for document in commands.aggregate("find lines without runs", LOGS, _runless(finished_before))
            if not document["run"]
        ]
    if runless and old.room:
        gone += _delete_lines(commands, runless, finished_before, old.room, patience)
    return gone


def _look(
    commands: Commands, over: Document, expired: Document, finished_before: Instant, limit: int
) -> list[Document]:
    """One command, which finds nothing for a node at rest."""
    recorded = {"recorded_at": {"$lt": finished_before}}

    def oldest(collection: str, where: Document, by: str, *fields: str) -> list[Document]:
        shown = {"_id": 1, "of": {"$literal": collection}, **dict.fromkeys(fields, 1)}
        return [{"$match": where}, {"$sort": {by: 1}}, {"$limit": limit}, {"$project": shown}]

    def union(collection: str, pipeline: list[Document]) -> Document:
        return {"$unionWith": {"coll": collection, "pipeline": pipeline}}

    pipeline = [
        *oldest(RUNS, over, "finished_at", "attempt"),
        union(SKIPPED, oldest(SKIPPED, recorded, "recorded_at")),
        union(RECORDS, oldest(RECORDS, expired, "expires")),
        union(LOGS, [*_runless(finished_before, _LINES_LOOKED_AT), {"$set": {"of": LOGS}}]),
    ]
    return commands.aggregate("find old", RUNS, pipeline, hint=OVER.name)


def _runless(finished_before: Instant, most: int | None = None) -> list[Document]:
    """The runs of old lines: ``run`` is empty where there is none.

    Old runs are purged with their lines: the others are those of runs that go on or ended lately, which are
    few.
    """
    return [
        {"$match": {"at": {"$lt": finished_before}}},
        {"$sort": {"at": 1}},
        *([] if most is None else [{"$limit": most}]),
        {"$group": {"_id": "$_id.run", "lines": {"$sum": 1}}},
        {"$lookup": {
            "from": RUNS, "localField": "_id", "foreignField": "_id", "as": "run",
            "pipeline": [{"$project": {"_id": 1}}],
        }},
    ]  # fmt: skip


def _groups(commands: Commands, runs: list[Document]) -> Iterator[list[str]]:
    """Ids of runs whose lines are gone. It stops early if that takes long: their runs are still there."""
    deadline = time.monotonic() + _FOR_ALL_LINES
    for at in range(0, len(runs), _RUNS_AT_ONCE):
        some = runs[at : at + _RUNS_AT_ONCE]
        # Not those of an attempt that begins meanwhile: a run that is retried by hand counts it up.
        lines = [{"q": {"_id": log_of(run["_id"], run.get("attempt"))}, "limit": 0} for run in some]
        while commands.write_each("delete logs", {"delete": LOGS, "deletes": lines}, _FOR_LINES) is None:
            if time.monotonic() >= deadline:
                return
        yield _ids(some)
        if time.monotonic() >= deadline:
            return


def _delete_lines(
    commands: Commands, runless: list[str], finished_before: Instant, most: int, patience: float
) -> int:
    old = {"at": {"$lt": finished_before}}
    ids: list[Document] = []
    for run in runless:
        if len(ids) >= most:
            break
        where = {"_id": log_of(run), **old}
        found = commands.find(
            "find lines without runs", LOGS, where, fields={"_id": 1}, limit=most - len(ids)
        )
        ids += [document["_id"] for document in found]
    return _delete(commands, LOGS, {"_id": {"$in": ids}, **old}, patience) if ids else 0


def _delete(commands: Commands, collection: str, where: Document, patience: float) -> int:
    command = {"delete": collection, "deletes": [{"q": where, "limit": 0}]}
    return int(commands.write(f"delete {collection}", command, patience)["n"])


def _ids(documents: list[Document]) -> list[str]:
    return [document["_id"] for document in documents]
