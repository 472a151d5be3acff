"""The collections and their indexes, as numbered migrations. Users may read them with mongosh: instants are
milliseconds UTC, so ``new Date(Number(run_at))`` is a readable time.

Firing and claiming use partial indexes, which contain only the documents that they need: a long history
makes them neither larger nor slower. With seven indexes, a change of a run takes 100 us of the server's time;
without indexes it takes 20 us. It does not matter which indexes the change concerns (MongoDB 6.0.5). A
partial index whose filter the run never matches (``COHORTS`` without limits) added nothing measurable.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from evenbeat.errors import SchemaTooNew, StoreUnavailable
from evenbeat.stores.mongo.damaged_ids import among
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import LOWEST, NO_COHORT
from evenbeat.stores.mongo.session import Session

KNOWN = 2
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

# Queued runs without a cohort. One range per queue: the highest priority first, then tenant by tenant, then
# by time. Inside the index, a claim skips runs of tasks that its node does not have, and finds the next
# tenant without reading the runs of the one before. With state and cohort in the index, a query counts queued
# runs without reading them.
CLAIMABLE = Index(
    RUNS,
    "claimable_in_turn",
    {
        "queue": 1,
        "priority": -1,
        "tenant": 1,
        "run_at": 1,
        "_id": 1,
        "task": 1,
        "format": 1,
        "cohort": 1,
        "state": 1,
    },
    {"state": "queued", "cohort": NO_COHORT},
)

# The same, for claims of few tasks. Without it, each claim would take 20 ms if 10,000 runs of other tasks
# were at the head of a queue.
CLAIMABLE_BY_TASK = Index(
    RUNS,
    "claimable_of_task_in_turn",
    {
        "task": 1,
        "queue": 1,
        "priority": -1,
        "tenant": 1,
        "run_at": 1,
        "_id": 1,
        "format": 1,
        "cohort": 1,
        "state": 1,
    },
    {"state": "queued", "cohort": NO_COHORT},
)

# Queued runs with a cohort, which are in no other index of queued runs. A claim reads the first run of each
# cohort, however many wait behind it.
COHORTS = Index(
    RUNS,
    "cohorts",
    {"cohort": 1, "run_at": 1, "_id": 1, "format": 1, "tenant": 1, "state": 1},
    {"state": "queued", "cohort": {"$gt": NO_COHORT}},
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
# For retention rules: the ended runs of one tenant and state, in the order of their ends.
ENDED = Index(
    RUNS,
    "ended",
    {"tenant": 1, "state": 1, "finished_at": 1},
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
        LEASED,
        ACTIVE,
        NEWEST,
        OF_SCHEDULE,
        OVER,
        SKIPPED_NEWEST,
        SKIPPED_RECORDED,
        EXPIRING,
    ),
    2: (CLAIMABLE, CLAIMABLE_BY_TASK, COHORTS, ENDED),
}
"""The indexes that each version adds to the previous one, without those that a later version drops."""
DROPPED: dict[int, tuple[tuple[str, str], ...]] = {2: ((RUNS, "claimable"), (RUNS, "claimable_by_task"))}
"""The indexes of earlier versions that each version drops, as (collection, name)."""

VERSION = {"_id": "schema"}
"""The document with the version of the schema: every open database has it."""
# The error code if another node has just created the collection.
_EXISTS = 48
# The error codes if there is no such index: another node has just dropped it.
_NOT_FOUND = (26, 27)
# How many documents one command of an upgrade changes: some 0.1 s.
_DOCUMENTS_AT_ONCE = 1_000
# A transaction cannot create a collection while another transaction does. So ``upgrade`` creates them all.
_PLAIN = (STATISTICS, LOGS, META)


def found_version(session: Session) -> int:
    """Read the version of the collections with one command; 0 if there are none."""
    documents = session.find("find schema version", META, VERSION)
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
    if version == 1:
        _fill_cohorts(session)
    for number in sorted(DROPPED):
        if version and number > version:
            for collection, name in DROPPED[number]:
                _drop_index(session, collection, name)
    # The last step: if a node finds the version, everything else exists. $max keeps an older node that is
    # late from lowering the version.
    change = {"q": VERSION, "u": {"$max": {"version": KNOWN}}, "upsert": True}
    session.write("set schema version", {"update": META, "updates": [change]}, 5.0)


def _create(session: Session, command: Document) -> None:
    try:
        session.run("create collection", command)
    except StoreUnavailable as error:
        if getattr(error.__cause__, "code", None) != _EXISTS:
            raise


def _fill_cohorts(session: Session) -> None:
    """Give active runs of version 1 the field ``cohort``."""
    # The conditions on the first fields, which are always true, select the indexes of version 1.
    for where in (
        {"state": "queued", "queue": {"$gte": LOWEST}},
        {"state": "running", "worker": {"$gte": LOWEST}},
    ):
        missing = {**where, "cohort": {"$exists": False}}
        while found := session.find(
            "find runs without cohort", RUNS, missing, fields={"_id": 1}, limit=_DOCUMENTS_AT_ONCE
        ):
            change = {
                "q": {"_id": among(document["_id"] for document in found), "cohort": {"$exists": False}},
                "u": {"$set": {"cohort": NO_COHORT}},
                "multi": True,
            }
            session.write("fill cohorts", {"update": RUNS, "updates": [change]}, 5.0)


def _drop_index(session: Session, collection: str, name: str) -> None:
    try:
        session.run("drop index", {"dropIndexes": collection, "index": name})
    except StoreUnavailable as error:
        if getattr(error.__cause__, "code", None) not in _NOT_FOUND:
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
    if since == 1:
        active = {"state": {"$in": ["queued", "running"]}, "cohort": {"$exists": False}}
        lines.append(f"db.{RUNS}.updateMany({_shell(active)}, {_shell({'$set': {'cohort': NO_COHORT}})})")
    for number in sorted(DROPPED):
        if since and number > since:
            lines += [f'db.{collection}.dropIndex("{name}")' for collection, name in DROPPED[number]]
    lines.append(
        f'db.{META}.updateOne({_shell(VERSION)}, {{"$max": {{"version": {KNOWN}}}}}, {{"upsert": true}})'
    )
    return "\n".join(lines) + "\n"


def _shell(value: object) -> str:
    return json.dumps(value)
