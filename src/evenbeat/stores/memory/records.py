"""The small records of the store in memory. The store holds its lock while it calls these methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record


class MemoryRecords:
    """Records by (kind, tenant, key). An expired record counts as absent before it is purged."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._records: dict[tuple[str, str, str], Record] = {}

    def get(self, kind: str, tenant: str, key: str) -> Record | None:
        record = self._records.get((kind, tenant, key))
        return record if record is not None and self._is_live(record) else None

    def put(self, record: Record, expect: int | None) -> bool:
        present = self.get(record.kind, record.tenant, record.key)
        if present == record:
            return True
        if expect != (None if present is None else present.version):
            return False
        self._records[record.kind, record.tenant, record.key] = record
        return True

    def add(self, records: Sequence[Record]) -> None:
        """Add the records whose keys are free."""
        for record in records:
            if self.get(record.kind, record.tenant, record.key) is None:
                self._records[record.kind, record.tenant, record.key] = record

    def overwrite(self, kind: str, tenant: str, key: str, body: str) -> None:
        """Write a record whatever is there, with the next version."""
        present = self._records.get((kind, tenant, key))
        version = 1 if present is None else present.version + 1
        self._records[kind, tenant, key] = Record(
            kind=kind, tenant=tenant, key=key, body=body, version=version
        )

    def find(
        self, kind: str, tenant: str | None, start: str, end: str | None, limit: int | None
    ) -> list[Record]:
        found = [
            record
            for (a_kind, a_tenant, key), record in self._records.items()
            if a_kind == kind
            and (tenant is None or a_tenant == tenant)
            and start <= key
            and (end is None or key < end)
            and self._is_live(record)
        ]
        return sorted(found, key=lambda record: (record.tenant, record.key))[:limit]

    def delete(self, kind: str, tenant: str, key: str, version: int) -> bool:
        record = self._records.get((kind, tenant, key))
        if record is None or record.version != version:
            return False
        del self._records[kind, tenant, key]
        return True

    def purge(self, expired_before: Instant, limit: int) -> int:
        """Delete records that expired before this instant, at most ``limit``; return how many."""
        expired = [
            key
            for key, record in self._records.items()
            if record.expires is not None and record.expires < min(expired_before, self._clock())
        ][:limit]
        for key in expired:
            del self._records[key]
        return len(expired)

    def _is_live(self, record: Record) -> bool:
        return record.expires is None or record.expires > self._clock()
