"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from evenbeat.core.records import Record
from evenbeat.stores.postgres import past_statements as sql
from evenbeat.stores.postgres.encoding import is_kept, marked, unmarked_at
from evenbeat.stores.postgres.session import Session, Transaction
from evenbeat.stores.rows import RECORD, Row, read_record, record_row

_BODY = (RECORD.index("body"),)


def get(session: Session, kind: str, tenant: str, key: str, clock: int | None) -> Record | None:
    if not is_kept(kind, tenant, key):
        return None
    values = {"kind": kind, "tenant": tenant, "key": key, "clock": clock}
    rows = _read(session.rows("select record", sql.SELECT_RECORD, values))
    return rows[0] if rows else None


def put(transaction: Transaction, record: Record, expect: int | None, clock: int | None) -> bool:
    values = {**dict(zip(RECORD, record_row(record), strict=True)), "expect": expect, "clock": clock}
    values["body"] = marked(record.body)
    write = sql.ADD_RECORD if expect is None else sql.CHANGE_RECORD
    written, present = transaction.commit("put record", [(write, values), (sql.SELECT_RECORD, values)])
    # A repeated write finds the record that it has written.
    return bool(written) or _read(present) == [record]


def find(session: Session, kind: str, tenant: str | None, clock: int | None) -> list[Record]:
    if not is_kept(kind, tenant):
        return []
    values = {"kind": kind, "tenant": tenant, "clock": clock}
    return _read(session.rows("select records", sql.SELECT_RECORDS, values))


def delete(transaction: Transaction, kind: str, tenant: str, key: str, version: int) -> bool:
    if not is_kept(kind, tenant, key):
        return False
    values = {"kind": kind, "tenant": tenant, "key": key, "version": version}
    (deleted,) = transaction.commit("delete record", [(sql.DELETE_RECORD, values)])
    return bool(deleted)


def _read(rows: list[Row]) -> list[Record]:
    return [read_record(row) for row in unmarked_at(rows, _BODY)]
