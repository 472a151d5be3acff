"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymongo.operations import ReplaceOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.stores.damage import Unreadable
from evenbeat.stores.mongo.damaged_ids import DamagedId, after
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import (
    HIGHEST,
    read_record,
    readable,
    record_document,
    record_id,
    records_between,
    records_of,
)
from evenbeat.stores.mongo.schema import RECORDS
from evenbeat.stores.mongo.session import Duplicate, Session


def _live(now: Instant) -> Document:
    """Return the condition of a record that has not expired."""
    return {"expires": {"$not": {"$lte": now}}}


def get(session: Session, kind: str, tenant: str, key: str, now: Instant) -> Record | None:
    found = session.find("find record", RECORDS, {"_id": record_id(kind, tenant, key), **_live(now)}, limit=1)
    try:
        return read_record(found[0]) if found else None
    except Unreadable:
        return None


def find_bodies(session: Session, ids: Sequence[Document], now: Instant) -> dict[str, str]:
    """Read the bodies of records that have not expired, by key."""
    found = session.find(
        "find bodies", RECORDS, {"_id": {"$in": list(ids)}, **_live(now)}, fields={"body": 1}
    )
    return {
        document["_id"]["key"]: document["body"]
        for document in found
        if isinstance(document.get("body"), str)
    }


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


def change(session: Session, record: Record, expect: int | None, now: Instant) -> bool:
    """Write a record by compare-and-set in a transaction, which conflicts with another one that writes it."""
    identity = record_id(record.kind, record.tenant, record.key)
    found = session.find("find record", RECORDS, {"_id": identity}, fields={"version": 1, "expires": 1})
    present = found[0] if found and not _has_expired(found[0], now) else None
    if expect != (None if present is None else present.get("version")):
        return False
    if found:
        session.bulk("replace records", RECORDS, [ReplaceOne({"_id": identity}, record_document(record))])
    else:
        session.insert("insert records", RECORDS, [record_document(record)])
    return True


def add(session: Session, records: Sequence[Record], now: Instant, careful: bool) -> None:
    """Add records in a transaction. A record that exists and has not expired stays as it is.

    As with new runs, existing records are rare: unless ``careful``, they are not read first, and after
    Duplicate the caller repeats the transaction with ``careful``.
    """
    if not records:
        return
    wanted: dict[Any, Record] = {}
    for record in records:
        wanted.setdefault((record.kind, record.tenant, record.key), record)
    present: dict[Any, Document] = {}
    if careful:
        where = {"_id": {"$in": [record_id(*identity) for identity in wanted]}}
        found = session.find("find present records", RECORDS, where, fields={"expires": 1})
        present = {tuple(document["_id"].values()): document for document in found}
    new = [record_document(record) for identity, record in wanted.items() if identity not in present]
    session.insert("insert records", RECORDS, new)
    expired = [identity for identity, document in present.items() if _has_expired(document, now)]
    session.bulk(
        "replace records",
        RECORDS,
        [
            ReplaceOne({"_id": record_id(*identity)}, record_document(wanted[identity]))
            for identity in expired
        ],
    )


def _has_expired(document: Document, now: Instant) -> bool:
    expires = document.get("expires")
    return isinstance(expires, int) and expires <= now


def find(
    session: Session,
    of: tuple[str, str | None],
    keys: tuple[str, str | None],
    limit: int | None,
    now: Instant,
) -> list[Record]:
    """Find the records of a (kind, tenant) with keys from one to before another."""
    kind, tenant = of
    if limit == 0:
        return []
    if tenant is not None:
        return _in_range(session, records_between(kind, tenant, *keys), limit, now)
    if keys == ("", None):
        return _in_range(session, records_of(kind), limit, now)
    # The range of each tenant: one range for all would contain the keys between.
    found: list[Record] = []
    for owner in _tenants(session, kind):
        left = None if limit is None else limit - len(found)
        found += _in_range(session, records_between(kind, owner, *keys), left, now)
        if limit is not None and len(found) >= limit:
            break
    return found


def _in_range(session: Session, ids: Mapping[str, Any], limit: int | None, now: Instant) -> list[Record]:
    """Find records in a range of ``_id``s. Continue after unreadable documents until there are enough."""
    found: list[Record] = []
    while True:
        missing = 0 if limit is None else limit - len(found)
        where = {"_id": ids, **_live(now)}
        documents = session.find("find records", RECORDS, where, sort=[("_id", 1)], limit=missing)
        found += readable(documents, read_record)
        if limit is None or len(documents) < missing or len(found) == limit:
            return found
        ids = after(documents[-1]["_id"], lt=ids["$lt"])


def _tenants(session: Session, kind: str) -> Iterator[str]:
    """Yield the tenants that have records of a kind. Reads one record of each."""
    ids: Mapping[str, Any] = records_of(kind)
    while True:
        following = session.find(
            "find tenant", RECORDS, {"_id": ids}, fields={"_id": 1}, sort=[("_id", 1)], limit=1
        )
        if not following:
            return
        identity = following[0]["_id"]
        if not isinstance(identity, DamagedId) and isinstance(identity.get("tenant"), str):
            yield identity["tenant"]
            identity = {"kind": kind, "tenant": identity["tenant"], "key": HIGHEST}
        ids = after(identity, lt=ids["$lt"])


def delete(session: Session, identity: tuple[str, str, str], version: int, patience: float) -> bool:
    where = {"_id": record_id(*identity), "version": version}
    answer = session.write(
        "delete record", {"delete": RECORDS, "deletes": [{"q": where, "limit": 1}]}, patience
    )
    return bool(answer["n"])
