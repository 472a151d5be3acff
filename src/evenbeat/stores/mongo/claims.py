"""Claims: who takes which runs, and what a claim already holds; and the runs whose leases ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace
from pymongo import UpdateOne

from evenbeat.instants import Instant
from evenbeat.model import FORMAT, Run
from evenbeat.stores.base import Claim, Lost
from evenbeat.stores.mongo.clients import Document
from evenbeat.stores.mongo.commands import Commands
from evenbeat.stores.mongo.rows import Unreadable, read_run, readable
from evenbeat.stores.mongo.schedules import note, quarantine
from evenbeat.stores.mongo.schema import CLAIMABLE, LEASED, RUNS

_PRIORITIES = list(range(10))
# The planner merges up to 200 ranges: ten for each queue.
_QUEUES_AT_ONCE = 20
_BY_PRIORITY = [("priority", -1), ("run_at", 1), ("_id", 1)]


class Outlook(NamedTuple):
    next_due: Instant | None
    """When the claim could next take a run."""
    holds: bool
    """It was made before, and still holds runs."""


def outlook(commands: Commands, wanted: Claim, quiet: bool = False) -> Outlook:
    """One command: the first entry of each range that a claim walks through, ten per queue, and whether it
    holds runs already. Index entries alone are read."""
    pipeline: list[Document] = [
        {"$match": _held(wanted)},
        {"$limit": 1},
        {"$project": {"_id": 0, "claim": 1}},
    ]
    for queues in _in_parts(list(dict.fromkeys(wanted.queues))):
        waiting = {**_claimable(wanted, queues), "priority": {"$in": _PRIORITIES}}
        first: list[Document] = [
            {"$match": waiting},
            {"$sort": {"run_at": 1}},
            {"$limit": 1},
            {"$project": {"_id": 0, "run_at": 1}},
        ]
        pipeline.append({"$unionWith": {"coll": RUNS, "pipeline": first}})
    found = commands.aggregate("find next due", RUNS, pipeline, quiet=quiet)
    moments = [int(document["run_at"]) for document in found if isinstance(document.get("run_at"), int)]
    return Outlook(min(moments, default=None), any("claim" in document for document in found))


def _in_parts(queues: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(queues), _QUEUES_AT_ONCE):
        yield queues[at : at + _QUEUES_AT_ONCE]


def _held(wanted: Claim) -> Document:
    return {"state": "running", "worker": wanted.worker, "claim": wanted.token}


def _claimable(wanted: Claim, queues: Sequence[str]) -> Document:
    where: Document = {"state": "queued", "queue": {"$in": list(queues)}, "format": {"$lte": FORMAT}}
    if wanted.tasks is not None:
        where["task"] = {"$in": sorted(wanted.tasks)}
    return where


def held(commands: Commands, wanted: Claim) -> list[Run]:
    """What a claim took whose reply was lost, as far as it still has it."""
    documents = commands.find("find claimed", RUNS, _held(wanted), hint=LEASED.name)
    runs = readable(documents, read_run)
    return sorted(runs, key=lambda run: (-run.priority, run.run_at, run.id))


def take(commands: Commands, wanted: Claim, due: Instant, now: Instant, skip: int) -> list[Run]:
    """Claim runs, in an open transaction: it fails if anybody else has changed one of them.

    ``due`` is the time by which runs are due, ``now`` the store's own, from which leases count. ``skip``
    passes over runs that another worker is taking.
    """
    documents = _choose(commands, wanted, due, skip)
    if not documents:
        return []
    ids = [document["_id"] for document in documents]
    taken: list[Run] = []
    troubled: list[tuple[Document, Unreadable]] = []
    for document in documents:
        try:
            run = read_run(document)
        except Unreadable as error:
            troubled.append((document, error))
            continue
        taken.append(
            replace(
                run,
                state="running",
                attempt=run.attempt + 1,
                worker=wanted.worker,
                claim=wanted.token,
                lease_until=now + wanted.lease,
                started_at=now,
            )
        )
    if troubled:
        _quarantine(commands, troubled, now)
        ids = [run.id for run in taken]
    if ids:
        # 100 us of the server's time for each run, 80 of them for its six indexes, whatever these hold.
        commands.update("claim runs", RUNS, {"_id": {"$in": ids}}, {
            "$set": {
                "state": "running", "worker": wanted.worker, "claim": wanted.token,
                "lease_until": now + wanted.lease, "started_at": now,
            },
            "$inc": {"attempt": 1},
        })  # fmt: skip
    return taken


def _choose(commands: Commands, wanted: Claim, due: Instant, skip: int) -> list[Document]:
    """The runs to take, in order. The index gives them so: runs of the future are passed over by a seek per
    priority, not read."""
    queues = list(dict.fromkeys(wanted.queues))
    if not queues or wanted.limit <= 0:
        return []
    where = {**_claimable(wanted, queues), "run_at": {"$lte": due}}
    return commands.find(
        "find claimable", RUNS, where, sort=_BY_PRIORITY, limit=wanted.limit, skip=skip, hint=CLAIMABLE.name
    )


def _quarantine(commands: Commands, troubled: list[tuple[Document, Unreadable]], now: Instant) -> None:
    """Over and done with: waiting at the head of its queue, such a run would starve the others."""
    ends = [
        UpdateOne(
            {"_id": document["_id"]},
            {
                "$set": {"state": "failed", "error": note(error), "finished_at": now},
                "$unset": {"lease_until": "", "claim": ""},
            },
        )
        for document, error in troubled
    ]
    commands.bulk("quarantine", RUNS, ends)
    notes = [
        (str(document.get("tenant", "default")), str(document["_id"]), error) for document, error in troubled
    ]
    quarantine(commands, notes)


def lost(commands: Commands, ended_by: Instant, limit: int) -> Lost:
    """Walks through the index of what is running, never through history."""
    ended: Document = {"state": "running", "lease_until": {"$lte": ended_by}}
    order = [("lease_until", 1), ("_id", 1)]
    # A lease that is not there has ended: such a run was written by hand.
    documents = commands.find(
        "find lost", RUNS, {"state": "running", "lease_until": None}, limit=limit + 1, hint=LEASED.name
    )
    documents += commands.find("find lost", RUNS, ended, sort=order, limit=limit + 1, hint=LEASED.name)
    runs = tuple(readable(documents[:limit], read_run))
    if len(documents) > limit:
        return Lost(runs, int(documents[limit].get("lease_until") or 0))
    later = commands.find(
        "find next lease end", RUNS, {"state": "running", "lease_until": {"$gt": ended_by}},
        fields={"_id": 0, "lease_until": 1}, sort=[("lease_until", 1)], limit=1, hint=LEASED.name,
    )  # fmt: skip
    return Lost(runs, int(later[0]["lease_until"]) if later else None)
