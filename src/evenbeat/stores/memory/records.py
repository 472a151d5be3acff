"""The small records of the store in memory. The store holds its lock while it calls these methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record


class MemoryRecords:
    """Records by (kind, tenant, key). An expired record counts as absent before it is purged."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._records: dict[tuple[str, str, str], Record] = {}
        self._kinds: Counter[str] = Counter()

    def get(self, kind: str, tenant: str, key: str) -> Record | None:
        record = self._records.get((kind, tenant, key))
        return record if record is not None and self._is_live(record) else None

    def put(self, record: Record, expect: int | None) -> bool:
        present = self.get(record.kind, record.tenant, record.key)
        if present == record:
            return True
        if expect != (None if present is None else present.version):
            return False
        self._set(record)
        return True

    def add(self, records: Sequence[Record]) -> None:
        """Add the records whose keys are free."""
        for record in records:
            if self.get(record.kind, record.tenant, record.key) is None:
                self._set(record)

    def overwrite(self, kind: str, tenant: str, key: str, body: str) -> None:
        """Write a record whatever is there, with the next version."""
        present = self._records.get((kind, tenant, key))
        version = 1 if present is None else present.version + 1
        self._set(Record(kind=kind, tenant=tenant, key=key, body=body, version=version))

    def write(self, records: Sequence[Record]) -> None:
        """Write records whatever is there."""
        for record in records:
            self._set(record)

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

    def has(self, kind: str) -> bool:
        """Return whether there are records of a kind, perhaps expired ones."""
        return self._kinds[kind] > 0

    def all(self) -> list[Record]:
        """Return all records that have not expired."""
        return [record for record in self._records.values() if self._is_live(record)]

    def delete(self, kind: str, tenant: str, key: str, version: int) -> bool:
        record = self._records.get((kind, tenant, key))
        if record is None or record.version != version:
            return False
        self._drop((kind, tenant, key))
        return True

    def drop(self, kind: str, tenant: str, key: str) -> None:
        """Delete a record if it exists, whatever its version."""
        if (kind, tenant, key) in self._records:
            self._drop((kind, tenant, key))

    def purge(self, limit: int) -> int:
        """Delete expired records, at most ``limit``; return how many."""
        expired = [key for key, record in self._records.items() if not self._is_live(record)][:limit]
        for key in expired:
            self._drop(key)
        return len(expired)

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        """Delete records of these kinds, at most ``limit``; return how many."""
        chosen = [key for key in self._records if key[1] == tenant and key[0] in kinds][:limit]
        for key in chosen:
            self._drop(key)
        return len(chosen)

    def _set(self, record: Record) -> None:
        key = (record.kind, record.tenant, record.key)
        self._kinds[record.kind] += key not in self._records
        self._records[key] = record

    def _drop(self, key: tuple[str, str, str]) -> None:
        del self._records[key]
        self._kinds[key[0]] -= 1

    def _is_live(self, record: Record) -> bool:
        return record.expires is None or record.expires > self._clock()
