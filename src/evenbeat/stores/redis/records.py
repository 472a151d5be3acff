"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.redis.rows import instant_text, number_text, optional_instant
from evenbeat.stores.redis.session import Session


def get(session: Session, kind: str, tenant: str, key: str) -> Record | None:
    (rows,) = session.run("find_records", [kind, tenant, key])
    live = _live(rows, kind, session.now())
    return live[0] if live else None


def put(session: Session, record: Record, expect: int | None) -> bool:
    for field, value in (("kind", record.kind), ("tenant", record.tenant)):
        if " " in value or ":" in value:
            raise InvalidValue(f"{field} {shown(value)} has a space or a colon", field=field, value=value)
    (is_there,) = session.run(
        "put_record",
        [
            record.kind,
            record.tenant,
            record.key,
            number_text(record.version),
            record.body,
            "" if record.expires is None else instant_text(record.expires),
            False if record.expires is None else record.expires,
            False if expect is None else number_text(expect),
        ],
    )
    session.committed()
    return bool(is_there)


def find(session: Session, kind: str, tenant: str | None) -> list[Record]:
    (rows,) = session.run("find_records", [kind, False if tenant is None else tenant, False])
    return sorted(_live(rows, kind, session.now()), key=lambda record: (record.tenant, record.key))


def delete(session: Session, kind: str, tenant: str, key: str, version: int) -> bool:
    (is_gone,) = session.run("delete_record", [kind, tenant, key, number_text(version)])
    session.committed()
    return bool(is_gone)


def _live(rows: list[list[Any]], kind: str, now: Instant) -> list[Record]:
    found = []
    for tenant, key, version, body, expires in rows:
        try:
            ends = optional_instant(expires)
            record = Record(kind=kind, tenant=tenant, key=key, version=int(version), body=body, expires=ends)
        except ValueError:
            continue  # edited by hand: it exists for writes, and is not returned
        if ends is None or ends > now:
            found.append(record)
    return found
