"""Rollups: writes the figures of a node to the store once a minute, and reads those of all nodes.

A record belongs to one node and one minute or hour, and holds everything that the node has counted in it. So
a write replaces the whole record: to repeat a write whose reply was lost counts nothing twice. A node that
dies loses the figures of its last minute.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.node.counters import CounterWriter
from evenbeat.node.counting import Counting, Period
from evenbeat.rules.rollups import (
    KEPT,
    LENGTH,
    MINUTE,
    By,
    Rollup,
    make_rollup,
    merged,
    read_key,
    read_rollup,
    rollup_key,
    start_of,
    write_rollup,
)
from evenbeat.stores.base import Store

KIND = "rollup"
_TENANT = "default"
# Records of minutes expire later than nodes delete them: a search does not find an expired record, and a
# purge deletes it only after the retention of runs.
_EXPIRES: dict[By, int] = {"minute": 2 * KEPT["minute"], "hour": KEPT["hour"]}
# How often a node looks for old records, in ms, and how many it deletes then; the periods one search reads.
# A node writes 10 records of minutes in this time.
_DELETE_EVERY = 10 * MINUTE
_MOST_DELETED = 200
_PERIODS_READ = 60

_log = logging.getLogger("evenbeat.node.rollups")


class Rollups:
    """Writes what a node has counted: each minute when it is over, with its hour so far."""

    def __init__(
        self, store: Store, counting: Counting, node: str, *, ticker: bool = True, worker: bool = True
    ) -> None:
        self._store = store
        self._counting = counting
        self._node = node
        self._ticker = ticker
        self._worker = worker
        self._counters = CounterWriter(store, counting, node)
        self._deleted_at: Instant | None = None
        """When it last looked for old records."""

    def step(self, now: Instant) -> Instant:
        """Write the minutes that are over, also those in which nothing happened: the records show that the
        node was alive."""
        self.write(now)
        self._delete_old(now)
        self._counters.fold(now)
        return start_of("minute", now) + MINUTE

    def write(self, now: Instant, *, is_last: bool = False) -> None:
        """Write all figures that are not written yet; if ``is_last``, also those of the present minute."""
        periods = self._counting.take(now, is_last=is_last)
        for period in periods:
            tallies = period.tallies
            try:
                is_written = self._is_needless(period) or self._put(period, now)
            except StoreUnavailable:
                raise
            except Exception:
                # Counted as written: the next periods must not wait for it.
                _log.exception("figures can't be written", extra={"component": "rollups", "node": self._node})
                is_written = True
            if is_written:
                self._counting.mark_written(period, tallies)
        if periods:
            self._write_counters(now, is_last)

    def _write_counters(self, now: Instant, is_last: bool) -> None:
        try:
            self._counters.write(now, is_last=is_last)
        except StoreUnavailable:
            raise
        except Exception:
            # The next minute writes them: each write holds all counts.
            _log.exception("counters can't be written", extra={"component": "rollups", "node": self._node})

    def _is_needless(self, period: Period) -> bool:
        """Return whether a record would say nothing: a supervisor is not a node, and it counted nothing."""
        return not period.tallies and not self._ticker and not self._worker

    def _put(self, period: Period, now: Instant) -> bool:
        """Write the record of a period; return False if another process with this name writes it, too."""
        own = make_rollup(period.tallies, written_at=now, ticker=self._ticker, worker=self._worker)
        if self._put_as(period, own):
            return True
        present = self._store.get_record(KIND, _TENANT, rollup_key(period.by, period.start, self._node))
        # If the reply to an earlier write was lost, the record is its result, and holds nothing else.
        if present is not None and not period.has_written(present.version):
            period.base = read_rollup(present.body)
        period.version = None if present is None else present.version
        return self._put_as(period, own)

    def _put_as(self, period: Period, own: Rollup) -> bool:
        whole = own if period.base is None else merged(period.base, own)
        version = period.new_version()
        record = Record(
            kind=KIND,
            tenant=_TENANT,
            key=rollup_key(period.by, period.start, self._node),
            body=write_rollup(whole),
            version=version,
            expires=period.start + LENGTH[period.by] + _EXPIRES[period.by],
        )
        if not self._store.put_record(record, period.version):
            return False
        period.version = version
        return True

    def _delete_old(self, now: Instant) -> None:
        """Delete some records of minutes whose retention is over. Any node deletes those of all nodes."""
        if self._deleted_at is not None and 0 <= now - self._deleted_at < _DELETE_EVERY:
            return
        self._deleted_at = now
        until = start_of("minute", now) - KEPT["minute"]
        old = self._store.find_records(
            KIND, _TENANT, start="minute/", end=rollup_key("minute", until), limit=_MOST_DELETED
        )
        for record in old:
            self._store.delete_record(KIND, _TENANT, record.key, record.version)


class NodeRollup(NamedTuple):
    """The figures of one node in one period."""

    start: Instant
    node: str
    rollup: Rollup


def read_rollups(store: Store, by: By, start: Instant, end: Instant) -> Iterator[NodeRollup]:
    """Yield the figures of all nodes for the periods that contain ``start``, or begin after it and before
    ``end``, in order of time.

    A record of a minute also shows that its node was alive then. Ignores records that can't be read.
    """
    at = start_of(by, start)
    while at < end:
        until = min(at + _PERIODS_READ * LENGTH[by], end)
        last = rollup_key(by, until + (-until) % LENGTH[by])
        for record in store.find_records(KIND, _TENANT, start=rollup_key(by, at), end=last):
            key, rollup = read_key(record.key), read_rollup(record.body)
            if key is not None and rollup is not None:
                yield NodeRollup(*key, rollup)
        at = until
