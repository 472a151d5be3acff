"""The collections and their indexes, as numbered migrations. Users may read them with mongosh: instants are
milliseconds UTC, so ``new Date(Number(run_at))`` is a readable time.

Firing and claiming use partial indexes, which contain only the documents that they need: a long history
makes them neither larger nor slower. With seven indexes, a change of a run takes 100 us of the server's time;
without indexes it takes 20 us. It does not matter which indexes the change concerns (MongoDB 6.0.5).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.session import Session

KNOWN = 1
"""The version of the schema that this version of Evenbeat uses."""

SCHEDULES, RUNS, SKIPPED, STATISTICS = "schedules", "runs", "skipped", "statistics"
RECORDS, LOGS, META, HINTS = "records", "logs", "meta", "hints"

# Receivers read only the newest hints.
_HINTS_KEPT = 1000
_HINTS_SIZE = 1 << 20


class Index(NamedTuple):
    collection: str
    name: str
    keys: dict[str, int]
    only: dict[str, Any] | None = None
    """A filter of the documents that the index contains; None for all documents."""

    def document(self) -> Document:
        more = {} if self.only is None else {"partialFilterExpression": self.only}
        return {"name": self.name, "key": self.keys, **more}


# With "format" in the index, a query skips documents of a newer format without reading them.
DUE = Index(SCHEDULES, "due", {"wake_at": 1, "_id": 1, "format": 1}, {"wake_at": {"$exists": True}})
# For the web process, which asks each second for changed schedules. Firing does not write "updated_at".
CHANGED = Index(SCHEDULES, "changed", {"updated_at": 1})
SCHEDULES_BY_NAME = Index(SCHEDULES, "by_name", {"tenant": 1, "name": 1})

# One range per queue: the highest priority first, then by time. Inside the index, a claim skips runs of
# tasks that its node does not have. With tenant and state in the index, a query counts queued runs without
# reading them.
CLAIMABLE = Index(
    RUNS,
    "claimable",
    {"queue": 1, "priority": -1, "run_at": 1, "_id": 1, "task": 1, "format": 1, "tenant": 1, "state": 1},
    {"state": "queued"},
)

# The same, for claims of few tasks. Without it, each claim would take 20 ms if 10,000 runs of other tasks
# were at the head of a queue.
CLAIMABLE_BY_TASK = Index(
    RUNS,
    "claimable_by_task",
    {"task": 1, "queue": 1, "priority": -1, "run_at": 1, "_id": 1, "format": 1, "state": 1},
    {"state": "queued"},
)

# Running runs by worker: for claims, workers and supervisors. A search for ended leases reads the whole
# index.
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

# Finds the history of one schedule among millions of runs. Runs without a schedule are not in the index.
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
        CHANGED,
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
"""The indexes that each version adds to the previous one. A released migration never changes."""

_VERSION = {"_id": "schema"}
# The error code if another node has just created the collection.
_EXISTS = 48
# A transaction cannot create a collection while another transaction does. So ``upgrade`` creates them all.
_PLAIN = (STATISTICS, LOGS, META)


def found_version(session: Session) -> int:
    """Read the version of the collections with one command; 0 if there are none."""
    documents = session.find("find schema version", META, _VERSION)
    if not documents:
        return 0
    version = documents[0].get("version")
    if not isinstance(version, int):
        raise StoreUnavailable(f"{session.where}: schema version {version!r} is not a number")
    return int(version)


def upgrade(session: Session) -> None:
    """Upgrade the database. Every step is safe to repeat, and many nodes may upgrade at once."""
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
    # The last step: if a node finds the version, everything else exists. $max keeps an older node that is
    # late from lowering the version.
    change = {"q": _VERSION, "u": {"$max": {"version": KNOWN}}, "upsert": True}
    session.write("set schema version", {"update": META, "updates": [change]}, 5.0)


def _create(session: Session, command: Document) -> None:
    try:
        session.run("create collection", command)
    except StoreUnavailable as error:
        if getattr(error.__cause__, "code", None) != _EXISTS:
            raise


def _create_indexes(session: Session, indexes: tuple[Index, ...]) -> None:
    """Create indexes with one command per collection, which also creates the collection."""
    by_collection: dict[str, list[Document]] = {}
    for index in indexes:
        by_collection.setdefault(index.collection, []).append(index.document())
    for collection, documents in by_collection.items():
        session.run("create indexes", {"createIndexes": collection, "indexes": documents})


def schema_script(database: str, since: int = 0) -> str:
    """Return the mongosh script that does the same as ``open`` on a schema of version ``since``."""
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
