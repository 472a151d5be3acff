"""The collections and their indexes, as numbered migrations. Users may read them with mongosh: instants are
milliseconds UTC, so ``new Date(Number(run_at))`` is a readable time.

Firing and claiming use partial indexes, which contain only the documents that they need: a long history
makes them neither larger nor slower. With seven indexes a change of a run costs 100 us of the server's
time, without them 20, whichever indexes it concerns (MongoDB 6.0.5).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.session import Session

KNOWN = 1
"""The version of the schema that this Evenbeat uses."""

SCHEDULES, RUNS, SKIPPED, STATISTICS = "schedules", "runs", "skipped", "statistics"
RECORDS, LOGS, META, HINTS = "records", "logs", "meta", "hints"

# Receivers read the newest hints alone.
_HINTS_KEPT = 1000
_HINTS_SIZE = 1 << 20


class Index(NamedTuple):
    collection: str
    name: str
    keys: dict[str, int]
    only: dict[str, Any] | None = None
    """The documents that it contains; None: all."""

    def document(self) -> Document:
        more = {} if self.only is None else {"partialFilterExpression": self.only}
        return {"name": self.name, "key": self.keys, **more}


# "format" is in the index so that documents of a newer format are skipped without reading them.
DUE = Index(SCHEDULES, "due", {"wake_at": 1, "_id": 1, "format": 1}, {"wake_at": {"$exists": True}})
SCHEDULES_BY_NAME = Index(SCHEDULES, "by_name", {"tenant": 1, "name": 1})

# One range per queue: the highest priority first, then by time. Tasks that a node does not have are skipped
# inside the index. Tenant and state are in it so that queued runs are counted without reading them.
CLAIMABLE = Index(
    RUNS,
    "claimable",
    {"queue": 1, "priority": -1, "run_at": 1, "_id": 1, "task": 1, "format": 1, "tenant": 1, "state": 1},
    {"state": "queued"},
)

# The same for few tasks: 10,000 runs of other tasks at the head of a queue would cost each claim 20 ms.
CLAIMABLE_BY_TASK = Index(
    RUNS,
    "claimable_by_task",
    {"task": 1, "queue": 1, "priority": -1, "run_at": 1, "_id": 1, "format": 1, "state": 1},
    {"state": "queued"},
)

# Running runs by worker: for claims, workers and supervisors. A search for ended leases reads all of it.
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
"""The indexes that each version adds to the one before. A released migration never changes."""

_VERSION = {"_id": "schema"}
# The error of creating a collection that another node creates at the same moment.
_EXISTS = 48
# Transactions cannot create a collection while another one does: all are created beforehand.
_PLAIN = (STATISTICS, LOGS, META)


def found_version(session: Session) -> int:
    """Read the version of the collections; 0 if there are none. One command."""
    documents = session.find("find schema version", META, _VERSION)
    if not documents:
        return 0
    version = documents[0].get("version")
    if not isinstance(version, int):
        raise StoreUnavailable(f"{session.where}: schema version {version!r} is not a number")
    return int(version)


def upgrade(session: Session) -> None:
    """Upgrade the database. Every step may be repeated, and many nodes may do it at once."""
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
    # The last step: a node that finds the version finds everything else. An older node that is late does
    # not lower it.
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
    """Return the mongosh script of what ``open`` would do on a schema of version ``since``."""
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
