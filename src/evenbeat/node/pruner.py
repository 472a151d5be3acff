"""The pruner: deletes history that is older than the retention."""

from __future__ import annotations

from evenbeat.core.instants import Instant
from evenbeat.stores.base import Store

PURGE_EVERY = 60_000
PURGE_BATCH = 500


class Pruner:
    """History older than ``retention`` is deleted, a little at a time."""

    def __init__(self, store: Store, retention: int) -> None:
        self._store = store
        self._retention = retention

    def step(self, now: Instant) -> Instant:
        gone = self._store.purge(now - self._retention, PURGE_BATCH)
        # A second between two batches of a long backlog: firing goes before tidying. A store may stop before
        # the batch is full where runs have long logs; less than a tenth of it is what a minute leaves behind.
        return now + (1_000 if 10 * gone >= PURGE_BATCH else PURGE_EVERY)
