"""Conversion between documents and records. They have the same fields; a field that is None is missing.

Reading checks every field: a document that was changed by hand may contain anything. Reading raises
``Unreadable``; the caller decides what to do with such a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from bson import MaxKey, MinKey

from evenbeat.core.ids import lasting_key
from evenbeat.core.records import LogChunk, Record, RunRecord, ScheduleRecord, Skipped, Statistics
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.damage import Unreadable, check_counts, check_fired_fields, salvaged
from evenbeat.stores.mongo.damaged_ids import REPLACED, DamagedId
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.rows import UNFIRED

Key = tuple[str, str]
T = TypeVar("T")

LOWEST, HIGHEST = MinKey(), MaxKey()
NO_COHORT = ""
"""The cohort of a document whose run has none. Not a missing field: indexes can't select documents without a
field."""
SHARDS = 8
"""The most documents that the statistics of a schedule may have."""


def _required(kind: type[msgspec.Struct], *besides: str) -> frozenset[str]:
    """Return the fields that every document must have: those that cannot be None."""
    fields = msgspec.structs.fields(kind)
    return frozenset(
        field.encode_name for field in fields if field.default is not None and field.name not in besides
    )


# Firing does not read the texts in UNFIRED. Documents of earlier versions have no "after" and "calendars".
_SCHEDULE = _required(ScheduleRecord, "damage", "after", "calendars", *UNFIRED)
_RUN = _required(RunRecord, "id")


def key_text(key: Key) -> str:
    """Return the ``_id`` of a schedule. Names contain no slash."""
    return f"{key[0]}/{key[1]}"


def key_of(document: Document) -> Key:
    """Return (tenant, name) of a schedule from its ``_id``, also of a damaged one."""
    tenant, slash, name = str(document["_id"]).partition("/")
    return (tenant, name) if slash else ("default", tenant)


def statistics_id(key: Key, shard: int) -> str:
    """Return the ``_id`` of one of the documents with a schedule's statistics."""
    return f"{key_text(key)}/{shard}" if shard else key_text(key)


def _fields(record: msgspec.Struct) -> Document:
    document: Document = msgspec.to_builtins(record)
    return {name: value for name, value in document.items() if value is not None}


def schedule_document(schedule: ScheduleRecord) -> Document:
    _check_priority(schedule.priority)
    document = _fields(schedule)
    del document["damage"]
    return {"_id": key_text(schedule.key), **document}


def read_schedule(document: Document) -> ScheduleRecord:
    _check_id(document)
    schedule = _read(document, ScheduleRecord, _SCHEDULE)
    check_counts(schedule.generation, schedule.revision, schedule.fire_seq)
    if key_text(schedule.key) != document["_id"]:
        raise Unreadable(f"it calls itself {schedule.name} of tenant {schedule.tenant}")
    return check_fired_fields(schedule)


def run_document(run: RunRecord) -> Document:
    _check_priority(run.priority)
    document = _fields(run)
    return {"_id": document.pop("id"), **document, "cohort": run.cohort or NO_COHORT}


def read_run(document: Document) -> RunRecord:
    _check_id(document)
    # A copy: the caller's document keeps its _id.
    run = _read(
        {**document, "id": document["_id"], "cohort": document.get("cohort") or None}, RunRecord, _RUN
    )
    check_counts(run.attempt, run.failures, run.crashes)
    if REPLACED in run.tenant:
        raise Unreadable("its tenant is not UTF-8")
    return run


def _check_id(document: Document) -> None:
    """Refuse a document that a record could not address."""
    if isinstance(document["_id"], DamagedId):
        raise Unreadable(f"its _id {shown(document['_id'])} is not a text in UTF-8")


def _read(document: Document, kind: type[T], required: frozenset[str]) -> T:
    if not document.keys() >= required:
        raise Unreadable(f"without {', '.join(sorted(required - document.keys()))}")
    try:
        return msgspec.convert(document, kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unreadable(str(error)) from error


def found_schedule(document: Document) -> ScheduleRecord:
    """Read a schedule; a damaged one with the fields that can be read."""
    try:
        return read_schedule(document)
    except Unreadable as error:
        return salvaged(key_of(document), document, error)


def readable(documents: Iterable[Document], read: Callable[[Document], T]) -> list[T]:
    """Yield the records of readable documents."""
    found = []
    for document in documents:
        try:
            found.append(read(document))
        except Unreadable:
            continue
    return found


def skipped_document(skipped: Skipped) -> Document:
    return _fields(skipped)


def read_skipped(document: Document) -> Skipped:
    return _read(document, Skipped, frozenset())


def read_statistics(document: Document) -> Statistics:
    return _read(document, Statistics, frozenset())


def record_id(kind: str, tenant: str, key: str) -> Document:
    """Return the ``_id`` of a record. The order of its fields is the order of searches."""
    return {"kind": kind, "tenant": tenant, "key": key}


def records_of(kind: str) -> Document:
    """Return the range of the ``_id``s of a kind."""
    return {
        "$gt": {"kind": kind, "tenant": LOWEST, "key": LOWEST},
        "$lt": {"kind": kind, "tenant": HIGHEST, "key": HIGHEST},
    }


def records_between(kind: str, tenant: str, start: str, end: str | None) -> Document:
    """Return the range of the ``_id``s of a tenant's records of a kind, from one key to before another."""
    before: Any = HIGHEST if end is None else end
    return {"$gte": record_id(kind, tenant, start), "$lt": record_id(kind, tenant, before)}


def record_document(record: Record) -> Document:
    document: Document = {
        "_id": record_id(record.kind, record.tenant, record.key),
        "version": record.version,
        "body": record.body,
    }
    if record.expires is not None:
        document["expires"] = record.expires
    return document


def read_record(document: Document) -> Record:
    identity = document["_id"] if isinstance(document["_id"], dict) else {}
    return _read({**document, **identity}, Record, frozenset())


def log_document(chunk: LogChunk) -> Document:
    identity = {"run": log_key(chunk.run, chunk.run_created_at), "attempt": chunk.attempt, "seq": chunk.seq}
    return {"_id": identity, "text": chunk.text, "at": chunk.at}


def read_log(document: Document) -> LogChunk:
    identity = document["_id"] if isinstance(document["_id"], dict) else {}
    return _read({**document, **identity}, LogChunk, frozenset())


def log_key(run: str, created_at: Any) -> str:
    """Return the key of a run's log. Lines and runs are written apart, so lines may stay behind: under an id
    that is given again, they would be lines of the next run."""
    # A damaged row may have anything as its time.
    return lasting_key(run, created_at) if isinstance(created_at, int) else run


def log_of(run: str, last_attempt: Any = None) -> Document:
    """Return the range of the ``_id``s of the log with that key, or of its attempts up to a given one."""
    last = last_attempt if isinstance(last_attempt, int) else HIGHEST
    return {
        "$gt": {"run": run, "attempt": LOWEST, "seq": LOWEST},
        "$lt": {"run": run, "attempt": last, "seq": HIGHEST},
    }


def set_and_unset(fields: dict[str, Any]) -> Document:
    """Return an update that sets these fields, and removes those that are None."""
    change: Document = {}
    values = {name: value for name, value in fields.items() if value is not None}
    if values:
        change["$set"] = values
    if len(values) < len(fields):
        change["$unset"] = {name: "" for name, value in fields.items() if value is None}
    return change


def _check_priority(priority: int) -> None:
    if not 0 <= priority <= 9:
        raise InvalidValue(f"priority {priority} is not one of 0 to 9", field="priority", value=priority)
