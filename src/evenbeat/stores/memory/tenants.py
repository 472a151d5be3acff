"""Tenants of the store in memory: counted and purged."""

from __future__ import annotations

from collections.abc import Sequence

from evenbeat.core.records import FINAL_STATES
from evenbeat.stores.base import TenantCounts, check_limit
from evenbeat.stores.memory.state import MemoryState
from evenbeat.stores.queue_counts import tenant_counts


class MemoryTenants(MemoryState):
    """Counts and purges what belongs to a tenant."""

    def count_tenants(self, tenant: str | None = None) -> list[TenantCounts]:
        with self._lock:
            states = [(row.tenant, row.state) for row in self._schedules.values() if row.state != "deleted"]
            ended = [(run.tenant, None) for run in self._runs.values() if run.state in FINAL_STATES]
        return tenant_counts(each for each in (*states, *ended) if tenant in (None, each[0]))

    def purge_tenant(self, tenant: str, kinds: Sequence[str], limit: int) -> int:
        check_limit(limit)
        gone = 0
        with self._lock:
            for key in [key for key in self._skipped if key[0] == tenant]:
                rows = self._skipped[key]
                over = min(len(rows), limit - gone)
                del rows[:over]
                gone += over
                if not rows:
                    del self._skipped[key]
            for key in [key for key in self._statistics if key[0] == tenant][: limit - gone]:
                del self._statistics[key]
                gone += 1
            return gone + self._records.purge_tenant(tenant, kinds, limit - gone)
