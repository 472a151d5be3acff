"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.stores.rows import Row, read_record, record_row
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.session import Session


def get(session: Session, kind: str, tenant: str, key: str, now: Instant) -> Record | None:
    rows = session.rows("select record", sql.SELECT_RECORD, (kind, tenant, key))
    record = read_record(rows[0]) if rows else None
    expired = record is not None and record.expires is not None and record.expires <= now
    return None if expired else record


def put(session: Session, record: Record, expect: int | None, now: Instant) -> bool:
    present = get(session, record.kind, record.tenant, record.key, now)
    if present == record:
        return True  # a repeated write finds the record that it has written
    if expect != (None if present is None else present.version):
        return False
    session.run("put record", sql.PUT_RECORD, record_row(record))
    return True


def add(session: Session, records: Sequence[Record], now: Instant) -> None:
    """Add the records of a change. One that exists stays as it is."""
    session.many("add records", sql.ADD_RECORD, [(*record_row(record), now) for record in records])


def find(
    session: Session,
    kind: str,
    tenant: str | None,
    now: Instant,
    *,
    start: str,
    end: str | None,
    limit: int | None,
) -> list[Record]:
    # A blob is greater than any text, and a negative limit is none.
    bounds = (start, b"" if end is None else end)
    rest = (now, -1 if limit is None else limit)
    values: Row
    if tenant is not None:
        text, values = sql.SELECT_RECORDS_OF_TENANT, (kind, tenant, *bounds, *rest)
    elif start or end is not None:
        text, values = sql.SELECT_RECORDS_OF_EACH_TENANT, (kind, kind, kind, *bounds, *rest)
    else:
        text, values = sql.SELECT_RECORDS, (kind, *rest)
    return [read_record(row) for row in session.rows("select records", text, values)]


def delete(session: Session, kind: str, tenant: str, key: str, version: int) -> bool:
    return session.run("delete record", sql.DELETE_RECORD, (kind, tenant, key, version)) == 1
