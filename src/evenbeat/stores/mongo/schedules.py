"""Schedules: written by compare-and-set, and found. Functions of an open transaction, but for finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo import UpdateOne
from pymongo.operations import ReplaceOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Version
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Page, ScheduleQuery, Write, Written
from evenbeat.stores.damage import quarantine_note, salvaged_version
from evenbeat.stores.decisions import may_be_repetition
from evenbeat.stores.mongo import new_runs, records
from evenbeat.stores.mongo.damaged_ids import after_name, among
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import (
    Key,
    found_schedule,
    key_text,
    record_id,
    schedule_document,
    skipped_document,
)
from evenbeat.stores.mongo.schema import CHANGED, DUE, RECORDS, RUNS, SCHEDULES, SCHEDULES_BY_NAME, SKIPPED
from evenbeat.stores.mongo.session import Session
from evenbeat.stores.pages import keys_after, read_schedule_cursor, schedule_page, write_position

# A counter for writes that must only cause a conflict: a transaction that has read a document without
# writing it does not notice that another one changes it.
TOUCH: Document = {"$inc": {"touched": 1}}
ACTIVE_STATES = ["queued", "running"]
# How many schedules one command finds by their keys.
_KEYS_AT_ONCE = 1_000


class AllRefused(Exception):
    """Every write was refused, so there is nothing to write. Never leaves the store."""

    def __init__(self, answers: list[Written]) -> None:
        super().__init__()
        self.answers = answers


def put(session: Session, writes: Sequence[Write], now: Instant, careful: bool) -> list[Written]:
    """Decide the writes one after the other, each on the result of those before it; then write all
    documents at once.

    Raises AllRefused if there is nothing to write.
    """
    ids = list(dict.fromkeys(key_text(write.planned.schedule.key) for write in writes))
    found = {
        document["_id"]: document
        for document in session.find("find schedules", SCHEDULES, {"_id": {"$in": ids}})
    }
    # The version is compared also if the rest of a document cannot be read, so that it can be replaced.
    versions: dict[str, Any] = {key: _version(document) for key, document in found.items()}
    present = {key: found_schedule(document) for key, document in found.items()}
    accepted: list[Planned] = []
    refused: dict[str, None] = {}
    repetitions = False
    answers: list[Written] = []
    for write in writes:
        wanted = write.planned.schedule
        key = key_text(wanted.key)
        current = present.get(key)
        if write.expect != versions.get(key):
            repeated = may_be_repetition(current, wanted)
            repetitions |= repeated
            repeated = repeated and _are_there(session, write.planned.runs)
            answers.append(Written(repeated, current))
            refused[key] = None
            continue
        if write.record is not None and not records.change(session, *write.record, now):
            answers.append(Written(False, current))
            refused[key] = None
            continue
        versions[key], present[key] = wanted.version, wanted
        accepted.append(write.planned)
        answers.append(Written(True, wanted))
    if refused and not accepted and not repetitions:
        # The answers are of the moment of reading: writing the documents would abort nodes that fire them.
        # The documents may be newer than those of a majority, which the caller reads before another try.
        session.await_majority()
        session.announce("committed")
        raise AllRefused(answers)
    _write(session, accepted, found.keys())
    # The document of a refused write is written, too, so that the refusal is true at the time of the commit.
    touched = [UpdateOne({"_id": key}, TOUCH) for key in refused if key in found]
    session.bulk("touch schedules", SCHEDULES, touched)
    add_what_follows(session, accepted, now, careful)
    return answers


def _write(session: Session, accepted: list[Planned], existing: Iterable[str]) -> None:
    last = {key_text(planned.schedule.key): planned.schedule for planned in accepted}
    known = set(existing)
    new = [schedule_document(schedule) for key, schedule in last.items() if key not in known]
    changed: list[Any] = [
        ReplaceOne({"_id": key}, schedule_document(schedule))
        for key, schedule in last.items()
        if key in known
    ]
    session.insert("insert schedules", SCHEDULES, new)
    session.bulk("replace schedules", SCHEDULES, changed)


def _are_there(session: Session, runs: tuple[RunRecord, ...]) -> bool:
    return len(new_runs.present(session, [run.id for run in runs])) == len(runs) if runs else True


def _version(document: Document) -> Version:
    return salvaged_version(*(document.get(name) for name in ("generation", "revision", "fire_seq")))


def add_what_follows(session: Session, accepted: Iterable[Planned], now: Instant, careful: bool) -> None:
    """Write the runs, ledger rows, cancel requests and records of written schedules. Sends no command for a
    kind of which there is none."""
    runs: list[RunRecord] = []
    skipped: list[Document] = []
    cancels: list[str] = []
    new_records: list[Record] = []
    spent: list[Document] = []
    for planned in accepted:
        runs += planned.runs
        skipped += [skipped_document(row) for row in planned.skipped]
        cancels += planned.cancels
        new_records += planned.records
        spent += [record_id(*identity) for identity in planned.spent]
    new_runs.insert(session, runs, careful)
    session.insert("insert skipped", SKIPPED, skipped)
    if cancels:
        active = {"_id": among(cancels), "state": {"$in": ACTIVE_STATES}}
        session.update("request cancels", RUNS, active, {"$set": {"cancel_requested": True}})
    records.add(session, new_records, now, careful)
    if spent:
        session.delete("delete records", RECORDS, {"_id": {"$in": spent}})


def put_notes(session: Session, to_quarantine: Sequence[tuple[str, str, Exception]]) -> None:
    """Write a note of kind ``quarantine`` for each (tenant, key)."""
    session.bulk(
        "quarantine",
        RECORDS,
        [
            UpdateOne(
                {"_id": {"kind": "quarantine", "tenant": tenant, "key": key}},
                {"$inc": {"version": 1}, "$set": {"body": quarantine_note(error)}, "$unset": {"expires": ""}},
                upsert=True,
            )
            for tenant, key, error in to_quarantine
        ],
    )


def find(session: Session, query: ScheduleQuery) -> Page[ScheduleRecord]:
    after = read_schedule_cursor(query.cursor)
    if query.keys is not None:
        return schedule_page(_among(session, query, keys_after(query, query.keys, after)), query.limit)
    # One more than the page holds says whether there is more.
    documents = session.find(
        "find schedules",
        SCHEDULES,
        search_filter(query, after),
        sort=[("tenant", 1), ("name", 1)],
        limit=query.limit + 1,
        hint=_index(query),
    )
    page = schedule_page([found_schedule(document) for document in documents], query.limit)
    if page.cursor is None:
        return page
    # The position of the document: a damaged schedule has the name of its _id.
    last = documents[query.limit - 1]
    return page._replace(cursor=write_position((last["tenant"], last["name"])))


def _among(session: Session, query: ScheduleQuery, keys: Sequence[Key]) -> list[ScheduleRecord]:
    """Find schedules among those with these keys, until there are enough for a page. Also finds documents
    that have no position in the order, by their ``_id``."""
    found: list[ScheduleRecord] = []
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        ids = [key_text(key) for key in keys[start : start + _KEYS_AT_ONCE]]
        documents = session.find("find schedules", SCHEDULES, {"_id": {"$in": ids}, **_conditions(query)})
        found += sorted(map(found_schedule, documents), key=lambda schedule: schedule.key)
        if len(found) > query.limit:
            break
    return found


def _index(query: ScheduleQuery) -> str | None:
    if query.tenant is not None and query.name is not None:
        return None
    if query.wakes_before is not None:
        return DUE.name
    # Only for the first page: further pages may be most of the schedules, and each would sort them.
    is_first = query.changed_since is not None and query.cursor is None
    return CHANGED.name if is_first else SCHEDULES_BY_NAME.name


def _conditions(query: ScheduleQuery) -> Document:
    where: Document = {"state": {"$nin": query.unwanted}}
    if query.task is not None:
        where["task"] = query.task
    if query.changed_since is not None:
        where["updated_at"] = {"$gte": query.changed_since}
    if query.wakes_before is not None:
        where["wake_at"] = {"$lt": query.wakes_before}
    return where


def search_filter(query: ScheduleQuery, after: Key | None) -> Document:
    where = _conditions(query)
    if query.tenant is not None and query.name is not None:
        where["_id"] = key_text((query.tenant, query.name))
    else:
        # A document without a tenant or a name has no position in the order.
        text = {"$type": "string"}
        where |= {"tenant": query.tenant or text, "name": query.name or text}
    if after is not None:
        tenant, name = after
        behind = [{"tenant": after_name(tenant)}, {"tenant": tenant, "name": after_name(name)}]
        where = {"$and": [where, {"tenant": {"$gte": tenant}}, {"$or": behind}]}
    return where
