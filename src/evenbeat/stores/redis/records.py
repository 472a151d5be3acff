"""Records: small documents of any kind, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, shown
from evenbeat.stores.redis.encoding import instant_text, member_of, number_text, optional_instant
from evenbeat.stores.redis.session import Session

# How many records one script reads, which takes 1 ms.
READ_LIMIT = 500


def record_row(record: Record) -> list[object]:
    """Return a record as the scripts write it."""
    for field, value in (("kind", record.kind), ("tenant", record.tenant)):
        if " " in value or ":" in value:
            raise InvalidValue(f"{field} {shown(value)} has a space or a colon", field=field, value=value)
    return [
        record.kind,
        record.tenant,
        record.key,
        number_text(record.version),
        record.body,
        "" if record.expires is None else instant_text(record.expires),
        False if record.expires is None else record.expires,
    ]


def get(session: Session, kind: str, tenant: str, key: str) -> Record | None:
    (found,) = session.run("get_record", [kind, tenant, key])
    return None if found is None else _record(kind, [tenant, key, *found])


def get_many(session: Session, kind: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the bodies of records by key, of those that exist."""
    found: dict[str, str] = {}
    for start in range(0, len(keys), READ_LIMIT):
        part = keys[start : start + READ_LIMIT]
        (bodies,) = session.run("get_records", [kind, tenant, part])
        found |= {key: body for key, body in zip(part, bodies, strict=True) if body is not None}
    return found


def record_change(record: Record, expect: int | None) -> list[object]:
    """Return a record as the scripts write it, with the version that must be stored, or false."""
    return [*record_row(record), False if expect is None else number_text(expect)]


def put(session: Session, record: Record, expect: int | None) -> bool:
    (is_there,) = session.run("put_record", record_change(record, expect))
    session.committed()
    return bool(is_there)


def find(
    session: Session, kind: str, tenant: str | None, start: str, end: str | None, limit: int | None
) -> list[Record]:
    found: list[Record] = []
    position: Sequence[object] | None = (
        (None, "-") if tenant is None else (tenant, f"[{member_of(tenant, start)}")
    )
    while position is not None and (limit is None or len(found) < limit):
        missing = READ_LIMIT if limit is None else min(limit - len(found), READ_LIMIT)
        position, rows = session.run(
            "find_records",
            [
                kind,
                int(tenant is not None),
                start,
                False if end is None else end,
                READ_LIMIT,
                missing,
                *position,
            ],
        )
        found += [record for row in rows if (record := _record(kind, row)) is not None]
    return found


def delete(session: Session, kind: str, tenant: str, key: str, version: int) -> bool:
    (is_gone,) = session.run("delete_record", [kind, tenant, key, number_text(version)])
    session.committed()
    return bool(is_gone)


def _record(kind: str, row: list[str]) -> Record | None:
    """Return a record; None if it was edited by hand. Such a record exists for writes, and is not found."""
    tenant, key, version, body, expires = row
    try:
        ends = optional_instant(expires)
        return Record(kind=kind, tenant=tenant, key=key, version=int(version), body=body, expires=ends)
    except ValueError:
        return None
