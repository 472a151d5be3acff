"""Records: small pieces of anything else, changed by compare-and-set."""

from __future__ import annotations

from evenbeat.instants import Instant
from evenbeat.model import Record
from evenbeat.stores.rows import read_record, record_row
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.commands import Commands


def get(commands: Commands, kind: str, tenant: str, key: str, now: Instant) -> Record | None:
    rows = commands.rows("select record", sql.SELECT_RECORD, (kind, tenant, key))
    record = read_record(rows[0]) if rows else None
    expired = record is not None and record.expires is not None and record.expires <= now
    return None if expired else record


def put(commands: Commands, record: Record, expect: int | None, now: Instant) -> bool:
    present = get(commands, record.kind, record.tenant, record.key, now)
    if present == record:
        return True  # a repetition finds its own work
    if expect != (None if present is None else present.version):
        return False
    commands.run("put record", sql.PUT_RECORD, record_row(record))
    return True


def find(commands: Commands, kind: str, tenant: str | None, now: Instant) -> list[Record]:
    if tenant is None:
        rows = commands.rows("select records", sql.SELECT_RECORDS, (kind, now))
    else:
        rows = commands.rows("select records", sql.SELECT_RECORDS_OF_TENANT, (kind, tenant, now))
    return [read_record(row) for row in rows]


def delete(commands: Commands, kind: str, tenant: str, key: str, version: int) -> bool:
    return commands.run("delete record", sql.DELETE_RECORD, (kind, tenant, key, version)) == 1
