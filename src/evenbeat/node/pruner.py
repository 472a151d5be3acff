"""The pruner: deletes history that is older than the retention."""

from __future__ import annotations

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.stores.base import Store

PURGE_EVERY = 60_000
PURGE_BATCH = 500
# The record of the purge is written once in this part of the retention: every 43 minutes for 30 days.
_NOTED_PART = 1_000
_KIND, _TENANT, _KEY = "purged", "default", "before"


class Pruner:
    """Deletes runs and skipped ticks that are older than ``retention`` ms, in small batches.

    Before it deletes anything, it records the instant before which the history is incomplete.
    """

    def __init__(self, store: Store, retention: int) -> None:
        self._store = store
        self._retention = retention
        self._noted: Instant | None = None

    def step(self, now: Instant) -> Instant:
        before = now - self._retention
        if self._noted is None or before > self._noted:
            part = max(1, self._retention // _NOTED_PART)
            self._noted = _note_purge(self._store, -(-before // part) * part)
        deleted = self._store.purge(before, PURGE_BATCH)
        # A second between two batches of a long backlog: firing is more urgent. Where runs have long logs, a
        # store may return before the batch is full. Less than a tenth of a batch is what one minute leaves.
        return now + (1_000 if 10 * deleted >= PURGE_BATCH else PURGE_EVERY)


def purged_before(store: Store) -> Instant | None:
    """Return the instant before which nodes may have deleted history; None if they have deleted none."""
    record = store.get_record(_KIND, _TENANT, _KEY)
    return None if record is None else _read(record)


def _note_purge(store: Store, before: Instant) -> Instant:
    """Record that history before an instant is deleted, unless a later instant is recorded; return the
    recorded one."""
    while True:
        present = store.get_record(_KIND, _TENANT, _KEY)
        noted = None if present is None else _read(present)
        if noted is not None and noted >= before:
            return noted
        version = 1 if present is None else present.version + 1
        record = Record(kind=_KIND, tenant=_TENANT, key=_KEY, body=str(before), version=version)
        if store.put_record(record, None if present is None else present.version):
            return before


def _read(record: Record) -> Instant | None:
    try:
        return int(record.body)
    except ValueError:
        return None  # edited by hand: the next purge writes it again
