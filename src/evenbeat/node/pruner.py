"""The pruner: deletes history that is older than the retention."""

from __future__ import annotations

from evenbeat.core.instants import Instant
from evenbeat.stores.base import Store

PURGE_EVERY = 60_000
PURGE_BATCH = 500


class Pruner:
    """Deletes runs and skipped ticks that are older than ``retention`` ms, in small batches."""

    def __init__(self, store: Store, retention: int) -> None:
        self._store = store
        self._retention = retention

    def step(self, now: Instant) -> Instant:
        deleted = self._store.purge(now - self._retention, PURGE_BATCH)
        # A second between two batches of a long backlog: firing is more urgent. Where runs have long logs, a
        # store may return before the batch is full. Less than a tenth of a batch is what one minute leaves.
        return now + (1_000 if 10 * deleted >= PURGE_BATCH else PURGE_EVERY)
