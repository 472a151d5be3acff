"""Records of all tenants, the newest first: for kinds whose keys begin with ``first_key_of`` their time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evenbeat.core.ids import first_key_of
from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.stores.base import Store


class Range(NamedTuple):
    """The records to read."""

    start: str
    """The first key."""
    newest: Instant
    """The latest instant to read; records of a clock that is ahead are later."""
    oldest: Instant
    """The earliest instant to read."""


def newest_of_all_tenants(
    store: Store, kind: str, wanted: Range, *, prefix: str = "", batch: int = 500, first_span: int = 3_600_000
) -> Iterator[Record]:
    """Yield the records of all tenants whose keys, after ``prefix``, lie in the range.

    A store reads records tenant by tenant, so this reads a span of time at once and sorts its records. The
    span is longer where few records are, and shorter where many are.
    """
    start, newest, span = wanted.start, wanted.newest, first_span
    while True:
        oldest = max(newest - span, wanted.oldest)
        end = prefix + first_key_of(oldest - 1)
        # The records of one millisecond are read in any case.
        most = batch if span else None
        records = store.find_records(kind, start=start, end=end, limit=most)
        if len(records) == most:
            span //= 8
            continue
        yield from sorted(records, key=lambda record: record.key)
        if oldest == wanted.oldest:
            return
        start, newest = end, oldest - 1
        span = max(span, 1) * 4
