"""The collections and their indexes, as numbered migrations. mongosh reads them: instants are milliseconds
UTC, so ``new Date(Number(run_at))`` is a time for people.

What firing and claiming ask for stands in partial indexes, which hold the documents that are asked for and
no others: history makes them neither larger nor slower. Seven indexes make a
change of a run cost 100 us of the server's time, not 20, whichever of them it concerns (MongoDB 6.0.5).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.session import Session

KNOWN = 1
"""The schema that this version works with."""

SCHEDULES, RUNS, SKIPPED, STATISTICS = "schedules", "runs", "skipped", "statistics"
RECORDS, LOGS, META, HINTS = "records", "logs", "meta", "hints"

# What waits on the hints reads the newest; the others are there for nobody.
_HINTS_KEPT = 1000
_HINTS_SIZE = 1 << 20


class Index(NamedTuple):
    collection: str
    name: str
    keys: dict[str, int]
    only: dict[str, Any] | None = None
    """Which documents it holds; None: all."""

    def document(self) -> Document:
        more = {} if self.only is None else {"partialFilterExpression": self.only}
        return {"name": self.name, "key": self.keys, **more}


# "format" stands in the index so that documents of a newer one are passed over without reading them.
DUE = Index(SCHEDULES, "due", {"wake_at": 1, "_id": 1, "format": 1}, {"wake_at": {"$exists": True}})
SCHEDULES_BY_NAME = Index(SCHEDULES, "by_name", {"tenant": 1, "name": 1})

# One range per queue: the highest priority first, then by time. Tasks that a node doesn't have are passed
# over inside the index. Tenant and state are there so that what waits is counted without reading it.
CLAIMABLE = Index(
    RUNS,
    "claimable",
    {"queue": 1, "priority": -1, "run_at": 1, "_id": 1, "task": 1, "format": 1, "tenant": 1, "state": 1},
    {"state": "queued"},
)

# The same for few tasks: runs of others that wait before theirs, 10,000 say, would cost each look 20 ms.
CLAIMABLE_BY_TASK = Index(
    RUNS,
    "claimable_by_task",
    {"task": 1, "queue": 1, "priority": -1, "run_at": 1, "_id": 1, "format": 1, "state": 1},
    {"state": "queued"},
)

# What a claim, a worker or a supervisor holds. Whoever looks for leases that ended walks through all of it.
LEASED = Index(
    RUNS,
    "leased",
    {"worker": 1, "claim": 1, "lease_until": 1, "cancel_requested": 1, "_id": 1, "tenant": 1, "state": 1},
    {"state": "running"},
)

ACTIVE = Index(
    RUNS,
    "active",
    {"tenant": 1, "schedule": 1},
    {"schedule": {"$exists": True}, "state": {"$in": ["queued", "running"]}},
)
NEWEST = Index(RUNS, "newest", {"created_at": -1, "_id": 1})

# The history of one schedule among millions of runs of others; runs enqueued by hand are not in it.
OF_SCHEDULE = Index(
    RUNS,
    "of_schedule",
    {"tenant": 1, "schedule": 1, "created_at": -1, "_id": 1},
    {"schedule": {"$exists": True}},
)
OVER = Index(
    RUNS,
    "over",
    {"finished_at": 1, "state": 1, "tenant": 1},
    {"state": {"$in": ["succeeded", "failed", "cancelled"]}},
)
SKIPPED_NEWEST = Index(SKIPPED, "newest", {"tenant": 1, "schedule": 1, "last": -1, "first": -1})
SKIPPED_RECORDED = Index(SKIPPED, "recorded", {"recorded_at": 1})
EXPIRING = Index(RECORDS, "expiring", {"expires": 1}, {"expires": {"$exists": True}})

INDEXES: dict[int, tuple[Index, ...]] = {
    1: (
        DUE,
        SCHEDULES_BY_NAME,
        CLAIMABLE,
        CLAIMABLE_BY_TASK,
        LEASED,
        ACTIVE,
        NEWEST,
        OF_SCHEDULE,
        OVER,
        SKIPPED_NEWEST,
        SKIPPED_RECORDED,
        EXPIRING,
    )
}
"""What leads to each version from the one before. One that was released never changes again."""

_VERSION = {"_id": "schema"}
# Two that make the same collection at once: one of them made it.
_EXISTS = 48
# Transactions can't make a collection at the moment in which another one does: all are made beforehand.
_PLAIN = (STATISTICS, LOGS, META)


def found_version(session: Session) -> int:
    """The version of the collections; 0 if there are none. One read."""
    documents = session.find("find schema version", META, _VERSION)
    if not documents:
        return 0
    version = documents[0].get("version")
    if not isinstance(version, int):
        raise StoreUnavailable(f"{session.where}: schema version {version!r} is not a number")
    return int(version)


def upgrade(session: Session) -> None:
    """Bring the database up to date. Every step may be repeated, and taken by many at once."""
    version = found_version(session)
    if version > KNOWN:
        raise SchemaTooNew(version, KNOWN)
    if version == KNOWN:
        return
    if version == 0:
        existing = {
            entry["name"]
            for entry in session.run("list collections", {"listCollections": 1, "nameOnly": True})["cursor"][
                "firstBatch"
            ]
        }
        for name in _PLAIN:
            if name not in existing:
                _create(session, {"create": name})
        if HINTS not in existing:
            _create(session, {"create": HINTS, "capped": True, "size": _HINTS_SIZE, "max": _HINTS_KEPT})
    for number in sorted(INDEXES):
        if number > version:
            _create_indexes(session, INDEXES[number])
    # Last: who finds the version finds everything else. Never back, should an older node come late.
    change = {"q": _VERSION, "u": {"$max": {"version": KNOWN}}, "upsert": True}
    session.write("set schema version", {"update": META, "updates": [change]}, 5.0)


def _create(session: Session, command: Document) -> None:
    try:
        session.run("create collection", command)
    except StoreUnavailable as error:
        if getattr(error.__cause__, "code", None) != _EXISTS:
            raise


def _create_indexes(session: Session, indexes: tuple[Index, ...]) -> None:
    """One command per collection, which makes the collection, too."""
    by_collection: dict[str, list[Document]] = {}
    for index in indexes:
        by_collection.setdefault(index.collection, []).append(index.document())
    for collection, documents in by_collection.items():
        session.run("create indexes", {"createIndexes": collection, "indexes": documents})


def schema_script(database: str, since: int = 0) -> str:
    """What ``open`` would do on a database of schema ``since``, for mongosh."""
    lines = [f"use {database}"]
    if since == 0:
        lines += [f'db.createCollection("{name}")' for name in _PLAIN]
        capped = _shell({"capped": True, "size": _HINTS_SIZE, "max": _HINTS_KEPT})
        lines.append(f'db.createCollection("{HINTS}", {capped})')
    for number in sorted(INDEXES):
        if number > since:
            for index in INDEXES[number]:
                more = {key: value for key, value in index.document().items() if key != "key"}
                lines.append(f"db.{index.collection}.createIndex({_shell(index.keys)}, {_shell(more)})")
    lines.append(
        f'db.{META}.updateOne({_shell(_VERSION)}, {{"$max": {{"version": {KNOWN}}}}}, {{"upsert": true}})'
    )
    return "\n".join(lines) + "\n"


def _shell(value: object) -> str:
    return json.dumps(value)
