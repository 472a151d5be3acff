"""Quotas: whether a tenant may have more schedules or queued runs. Not for users.

A process reads all quotas at most once in five seconds, in one query. Only a tenant that has a quota is
counted. Queued runs are counted at most once a second; in between, the process adds what it has enqueued
itself. So processes that enqueue at the same time may together exceed the quota by what the others enqueue
within a second.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from evenbeat.app.session import AppSession, clock_of
from evenbeat.core.tenants import Quota
from evenbeat.record_errors import QuotaExceeded
from evenbeat.rules.tenants import QUOTA, read_quota
from evenbeat.stores.base import Store

READ_EVERY = 5.0
"""Seconds until a process reads the quotas again: so long may a new one take to hold."""
COUNT_EVERY = 1.0
"""Seconds until a process counts queued runs again."""
# A count that took long is kept for so many times as long.
_COUNT_SHARE = 10


class Quotas:
    """Admits or refuses new schedules and queued runs of tenants."""

    def __init__(self, session: AppSession) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._quotas: dict[str, Quota] = {}
        self._read_at: float | None = None
        self._queued: Counter[str] = Counter()
        self._counted_at: float | None = None
        self._counted_for = COUNT_EVERY
        session.forked.append(self._after_fork_in_child)

    def of(self, tenant: str) -> Quota | None:
        """Return the quota of a tenant, at most five seconds old; None if it has none."""
        with self._lock:
            return self._of(tenant)

    def forget(self) -> None:
        """Read and count again: this process has changed a quota, or deleted runs."""
        with self._lock:
            self._read_at = self._counted_at = None

    def bounds_runs(self, tenant: str) -> bool:
        """Return whether the tenant's queued runs are bounded."""
        quota = self.of(tenant)
        return quota is not None and quota.queued_runs is not None

    def admit_runs(self, tenant: str, number: int = 1) -> None:
        """Count so many new runs of a tenant; ``QuotaExceeded`` if they are too many, and count none."""
        with self._lock:
            if self._bounds_runs(tenant, number):
                self._queued[tenant] += number

    def check_runs(self, tenant: str, number: int) -> None:
        """Refuse so many new runs of a tenant by ``QuotaExceeded`` if they are too many; count none."""
        with self._lock:
            self._bounds_runs(tenant, number)

    def admit_schedule(self, tenant: str, number: int = 1) -> None:
        """Refuse another schedule of a tenant, or so many, by ``QuotaExceeded`` if they would be too many.

        Counts the tenant's schedules each time: they are seldom added.
        """
        quota = self.of(tenant)
        if quota is None or quota.schedules is None:
            return
        used = sum(counts.schedules for counts in self._session.store().count_tenants(tenant))
        if used + number > quota.schedules:
            raise QuotaExceeded(tenant, "schedules", quota.schedules, used, number)

    def _bounds_runs(self, tenant: str, number: int) -> bool:
        """Return whether the tenant's queued runs are bounded; refuse so many new ones if they are too
        many."""
        quota = self._of(tenant)
        if quota is None or quota.queued_runs is None:
            return False
        used = self._queued_runs(tenant)
        if used + number > quota.queued_runs:
            raise QuotaExceeded(tenant, "queued_runs", quota.queued_runs, used, number)
        return True

    def _of(self, tenant: str) -> Quota | None:
        # Within a caller's transaction the store may not be open yet: such a run is not counted.
        store = self._session.open_store()
        if store is None:
            return None
        clock = self._clock(store)
        if self._is_old(self._read_at, READ_EVERY, clock):
            found = ((record.tenant, read_quota(record)) for record in store.find_records(QUOTA))
            self._quotas = {owner: quota for owner, quota in found if quota is not None}
            self._read_at = clock()
        return self._quotas.get(tenant)

    def _queued_runs(self, tenant: str) -> int:
        store = self._session.store()
        clock = self._clock(store)
        if self._is_old(self._counted_at, self._counted_for, clock):
            begin = time.monotonic()
            self._queued = queued_runs(store)
            self._counted_for = max(COUNT_EVERY, _COUNT_SHARE * (time.monotonic() - begin))
            self._counted_at = clock()
        return self._queued[tenant]

    def _clock(self, store: Store) -> Callable[[], float]:
        if store is not self._store:  # virtual time replaces it
            self._store, self._read_at, self._counted_at = store, None, None
        return clock_of(store, time.monotonic)

    def _is_old(self, at: float | None, seconds: float, clock: Callable[[], float]) -> bool:
        return at is None or not 0 <= clock() - at < seconds

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


def queued_runs(store: Store) -> Counter[str]:
    """Count the queued runs of each tenant."""
    found: Counter[str] = Counter()
    for counts in store.count_active(store.now()):
        found[counts.tenant] += counts.due + counts.later
    return found
