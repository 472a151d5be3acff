"""Deletes the records of unique runs that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.rules.unique_runs import KIND, holder_of, is_stale
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store

_AT_ONCE = 500
_LONGEST_PERIOD = 3_600_000
_SOON, _LATER = 1_000, 60_000
_DIGITS = "0123456789abcdef"


class UniqueRecords:
    """Deletes stale records, once an hour, in small parts.

    A record has no expiry: one that expired while its run still waits would allow a second run. It is
    deleted by its version, so a record that was taken again meanwhile stays. Twice within the retention at
    least: a record whose run was purged would look like one whose run has not been added yet.
    """

    def __init__(self, store: Store, retention: int) -> None:
        self._store = store
        self._period = min(_LONGEST_PERIOD, retention // 2)
        self._parts: list[str] = []
        """The first digits of the keys that this round has still to look at."""
        self._began: Instant | None = None

    def step(self, now: Instant) -> Instant:
        if not self._parts:
            if self._began is not None and 0 <= now - self._began < self._period:
                return now + min(_LATER, self._period)
            self._parts, self._began = [""], now
        part = self._parts[-1]
        # Keys are digests: "g" comes after all that begin with these digits.
        found = self._store.find_records(KIND, start=part, end=f"{part}g", limit=_AT_ONCE)
        self._parts.pop()
        if len(found) == _AT_ONCE and len(part) < 8:
            self._parts += [part + digit for digit in _DIGITS]
        else:
            self._delete_stale(found, now)
        return now + (_SOON if self._parts else min(_LATER, max(self._period, _SOON)))

    def _delete_stale(self, records: Sequence[Record], now: Instant) -> None:
        holders = {record: holder_of(record) for record in records}
        ids = tuple({holder.run for holder in holders.values() if holder is not None})
        query = RunQuery(ids=ids, without=LARGE_FIELDS, limit=max(1, len(ids)))
        runs = {run.id: run for run in self._store.find_runs(query).items} if ids else {}
        for record, holder in holders.items():
            if is_stale(record, None if holder is None else runs.get(holder.run), now):
                self._store.delete_record(KIND, record.tenant, record.key, record.version)
