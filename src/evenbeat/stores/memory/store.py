"""``MemoryStore``: decides and writes under one lock."""

from __future__ import annotations

from evenbeat.core.records import Record
from evenbeat.stores.base import Schema, Setting, check_limit
from evenbeat.stores.memory.claims import MemoryClaims
from evenbeat.stores.memory.history import MemoryHistory
from evenbeat.stores.memory.runs import MemoryRuns
from evenbeat.stores.memory.schedules import MemorySchedules
from evenbeat.stores.memory.tenants import MemoryTenants


class MemoryStore(MemorySchedules, MemoryRuns, MemoryClaims, MemoryHistory, MemoryTenants):
    """A store of dictionaries and a lock. Its data ends with the process."""

    def open(self) -> None:
        pass

    def open_to_join(self) -> bool:
        self.open()
        return True

    def close(self) -> None:
        self._waker.close()

    def schema(self) -> Schema:
        return Schema(0, 0)

    def server(self) -> list[Setting]:
        return []

    def check_indexes(self, limit: int, *, mend: bool) -> list[str]:
        return []

    def get_record(self, kind: str, tenant: str, key: str) -> Record | None:
        with self._lock:
            return self._records.get(kind, tenant, key)

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        with self._lock:
            return self._records.put(record, expect)

    def find_records(
        self,
        kind: str,
        tenant: str | None = None,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        if limit is not None:
            check_limit(limit)
        with self._lock:
            return self._records.find(kind, tenant, start, end, limit)

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        with self._lock:
            return self._records.delete(kind, tenant, key, version)
