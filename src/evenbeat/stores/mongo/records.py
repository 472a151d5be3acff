"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import read_record, readable, record_document, record_id, records_between
from evenbeat.stores.mongo.schema import RECORDS
from evenbeat.stores.mongo.session import Duplicate, Session
from evenbeat.stores.rows import Unreadable


def _live(now: Instant) -> Document:
    """Return the condition of a record that has not expired."""
    return {"expires": {"$not": {"$lte": now}}}


def get(session: Session, kind: str, tenant: str, key: str, now: Instant) -> Record | None:
    found = session.find("find record", RECORDS, {"_id": record_id(kind, tenant, key), **_live(now)}, limit=1)
    try:
        return read_record(found[0]) if found else None
    except Unreadable:
        return None


def put(session: Session, record: Record, expect: int | None, now: Instant, patience: float) -> bool:
    document = record_document(record)
    where: Document = {"_id": document["_id"]}
    if expect is None:
        # Matches no record, or an expired one. If another record exists, the upsert raises Duplicate.
        where["expires"] = {"$lte": now}
    else:
        where |= {"version": expect, **_live(now)}
    change = {"q": where, "u": document, "upsert": expect is None}
    try:
        answer = session.write("put record", {"update": RECORDS, "updates": [change]}, patience)
    except Duplicate:
        answer = {"n": 0}
    if answer["n"]:
        return True
    # A repeated write finds the record that it has written.
    return get(session, record.kind, record.tenant, record.key, now) == record


def find(session: Session, kind: str, tenant: str | None, now: Instant) -> list[Record]:
    where = {"_id": records_between(kind, tenant), **_live(now)}
    return readable(session.find("find records", RECORDS, where, sort=[("_id", 1)]), read_record)


def delete(session: Session, identity: tuple[str, str, str], version: int, patience: float) -> bool:
    where = {"_id": record_id(*identity), "version": version}
    answer = session.write(
        "delete record", {"delete": RECORDS, "deletes": [{"q": where, "limit": 1}]}, patience
    )
    return bool(answer["n"])
