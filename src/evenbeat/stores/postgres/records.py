"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.rules.limits import LIMIT
from evenbeat.stores.postgres import past_statements as sql
from evenbeat.stores.postgres.claim_statements import LOCK_LIMITS
from evenbeat.stores.postgres.encoding import is_kept, json_text, marked, unmarked_at
from evenbeat.stores.postgres.session import Session, Statement, Transaction
from evenbeat.stores.rows import RECORD, Row, read_record, record_row

_BODY = (RECORD.index("body"),)


def get(session: Session, kind: str, tenant: str, key: str, clock: int | None) -> Record | None:
    if not is_kept(kind, tenant, key):
        return None
    values = {"kind": kind, "tenant": tenant, "key": key, "clock": clock}
    rows = _read(session.rows("select record", sql.SELECT_RECORD, values))
    return rows[0] if rows else None


def put(transaction: Transaction, record: Record, expect: int | None, clock: int | None) -> bool:
    values = {**_fields(record), "expect": expect, "clock": clock}
    write = sql.ADD_RECORD if expect is None else sql.CHANGE_RECORD
    locks: list[Statement] = [(LOCK_LIMITS, ())] if record.kind == LIMIT else []
    *_, written, present = transaction.commit(
        "put record", [*locks, (write, values), (sql.SELECT_RECORD, values)]
    )
    # A repeated write finds the record that it has written.
    return bool(written) or _read(present) == [record]


def change(transaction: Transaction, record: Record, expect: int | None) -> bool:
    """Write a record by compare-and-set as a part of a transaction; wait for another one that writes it."""
    values = {**_fields(record), "expect": expect, "clock": transaction.now}
    write = sql.ADD_RECORD if expect is None else sql.CHANGE_RECORD
    return bool(transaction.rows("change record", write, values))


def overwriting(records: Sequence[Record]) -> list[Statement]:
    """Return the statement that writes records, whether they exist or not. Return an empty list if there are
    none."""
    rows = [_fields(record) for record in records]
    return [(sql.PUT_RECORDS, {"rows": json_text(rows)})] if rows else []


def addition(records: Sequence[Record], now: Instant) -> list[Statement]:
    """Return the statement that adds the records of a change; one that exists stays as it is. Return an
    empty list if there are none."""
    # One statement cannot write a row twice.
    kept: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = (record.kind, record.tenant, record.key)
        present = kept.get(key)
        if present is None or (present.expires is not None and present.expires <= now):
            kept[key] = record
    rows = [_fields(record) for record in kept.values()]
    return [(sql.ADD_RECORDS, {"rows": json_text(rows), "now": now})] if rows else []


def find(
    session: Session,
    kind: str,
    tenant: str | None,
    clock: int | None,
    *,
    start: str,
    end: str | None,
    limit: int | None,
) -> list[Record]:
    if not is_kept(kind, tenant):
        return []
    values = {
        "kind": kind,
        "tenant": tenant,
        "start": _bound(start),
        "end": None if end is None else _bound(end),
        "limit": limit,
        "clock": clock,
    }
    is_range_of_each = tenant is None and (start or end is not None)
    text = sql.SELECT_RECORDS_OF_EACH_TENANT if is_range_of_each else sql.SELECT_RECORDS
    return _read(session.rows("select records", text, values))


def _bound(key: str) -> str:
    """Return the first key, of those that can be stored, that is not less than this one."""
    before, nul, _ = key.partition("\0")
    return before + "\x01" if nul else before


def delete(transaction: Transaction, kind: str, tenant: str, key: str, version: int) -> bool:
    if not is_kept(kind, tenant, key):
        return False
    values = {"kind": kind, "tenant": tenant, "key": key, "version": version}
    (deleted,) = transaction.commit("delete record", [(sql.DELETE_RECORD, values)])
    return bool(deleted)


def _fields(record: Record) -> dict[str, object]:
    fields = dict(zip(RECORD, record_row(record), strict=True))
    return fields | {"body": marked(record.body)}


def _read(rows: list[Row]) -> list[Record]:
    return [read_record(row) for row in unmarked_at(rows, _BODY)]
