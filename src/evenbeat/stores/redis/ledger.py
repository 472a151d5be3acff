"""The ledger: ticks that did not become runs of their own, as JSON in sorted sets."""

from __future__ import annotations

import msgspec

from evenbeat.core.instants import FIRST, LAST, Instant, from_ms
from evenbeat.core.records import Reason, ScheduleRecord, Skipped
from evenbeat.stores.redis.encoding import instant_text, optional_instant, path_of
from evenbeat.stores.redis.session import Session


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the ledger as readable JSON. ``first`` is the first field: rows with equal ends sort by it."""

    first: str
    last: str
    count: int
    reason: Reason
    generation: int
    recorded_at: str
    run: str | None = None
    written: str
    """The version of the schedule that wrote the row, and its position: makes every row unique."""


# Rows of one command, where the rows that begin after the range have to be left out.
_BATCH = 1_000

_decoder = msgspec.json.Decoder(LedgerEntry)


def skipped_row(schedule: ScheduleRecord, position: int, row: Skipped) -> list[object]:
    """Return a row as the scripts add it: (last, recorded_at, text)."""
    version = schedule.version
    entry = LedgerEntry(
        first=_padded(row.first),
        last=instant_text(row.last),
        count=row.count,
        reason=row.reason,
        generation=row.generation,
        recorded_at=instant_text(row.recorded_at),
        run=row.run,
        written=f"{version.generation}.{version.revision}.{version.fire_seq}.{position}",
    )
    return [row.last, row.recorded_at, msgspec.json.encode(entry).decode()]


def find(
    session: Session, tenant: str, schedule: str, limit: int, since: Instant | None, until: Instant | None
) -> list[Skipped]:
    if limit == 0:
        return []
    key = f"{session.location.base}skipped:{path_of(tenant, schedule)}"
    # The score is the last tick of a row.
    lowest = "-inf" if since is None else since
    found: list[Skipped] = []
    at, batch = 0, limit if until is None else max(limit, _BATCH)
    while True:
        rows: list[str] = session.execute(
            "find skipped", "ZREVRANGEBYSCORE", key, "+inf", lowest, "LIMIT", at, batch
        )
        read = (_read(text, tenant, schedule) for text in rows)
        found += [row for row in read if row is not None and (until is None or row.first < until)]
        at += batch
        # Without an end, unreadable rows count towards the limit.
        if until is None or len(found) >= limit or len(rows) < batch:
            return found[:limit]


def _read(text: str, tenant: str, schedule: str) -> Skipped | None:
    """Return a row of the ledger; None if it can't be read. Firing does not read it."""
    try:
        entry = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return Skipped(
        tenant=tenant,
        schedule=schedule,
        generation=entry.generation,
        first=_instant(entry.first),
        last=_instant(entry.last),
        count=entry.count,
        reason=entry.reason,
        recorded_at=_instant(entry.recorded_at),
        run=entry.run,
    )


def _padded(instant: Instant) -> str:
    """Write an instant always with milliseconds, so that texts sort like their instants."""
    if not FIRST <= instant <= LAST:
        return instant_text(instant)
    return from_ms(instant).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _instant(text: str) -> Instant:
    return optional_instant(text) or 0
