"""Counters: writes what this process has counted since its start, and reads what all have counted.

``rules.counters`` says how no count is lost, and none is counted twice.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.node.counting import Counting
from evenbeat.rules import counters
from evenbeat.rules.counters import FORMAT, SEALED, Base, CounterRecord, Sums
from evenbeat.stores.base import Store

KIND, BASE_KIND = "counter", "counter_base"
FOLD_EVERY = 600_000
"""Milliseconds between two searches of a node for records to fold."""
_TENANT, _BASE = "default", "base"
# Milliseconds between two writes of a node at rest. After ``counters.OLD`` it would count as dead.
_QUIET = 300_000
# How many records are folded in one step, and how often a node tries if others write the base meanwhile.
_MOST_FOLDED = 200
_TRIES = 5

_log = logging.getLogger("evenbeat.node.counters")


class CounterWriter:
    """Writes the record of this process, and folds those of processes that have ended into the base."""

    def __init__(self, store: Store, counting: Counting, node: str) -> None:
        self._store = store
        self._counting = counting
        self._state = counting.state
        self._node = node
        self._folded_at: Instant | None = None

    @property
    def _key(self) -> str:
        return f"{self._node}/{self._state.id}"

    def write(self, now: Instant, *, is_last: bool = False) -> None:
        """Write everything that was counted since the start, if there is something new.

        A node at rest only counts its own calls of the store: it writes these every five minutes.
        """
        if self._state.unsure:
            self._resolve()
        sums, written = self._counting.sums(), self._state.written
        is_quiet = sums.tallies == written.tallies and sums.numbers == written.numbers
        if sums == written or (is_quiet and not is_last and 0 <= now - self._state.written_at < _QUIET):
            return
        if self._put(sums, now):
            return
        self._resolve()
        self._put(sums, now)

    def _put(self, sums: Sums, now: Instant) -> bool:
        expected = self._state.version
        version = self._state.begin_write(sums)
        body = counters.write_record(sums.minus(self._state.start), now)
        record = Record(kind=KIND, tenant=_TENANT, key=self._key, body=body, version=version)
        if not self._store.put_record(record, expected):
            self._state.refuse(version)
            return False
        self._state.acknowledge(version)
        self._state.written_at = now
        return True

    def _resolve(self) -> None:
        """Find out which of the last writes the store has, and begin another record if it was sealed."""
        key, state = self._key, self._state
        present = self._store.get_record(KIND, _TENANT, key)
        if present is not None:
            if present.version >= SEALED:
                state.begin_again(present.version - SEALED)
            else:
                state.acknowledge(present.version)
            return
        folded = _read_base(self._store)[0].folded.get(key)
        if folded is not None or state.version is not None:
            state.begin_again(None if folded is None else folded.version)

    # -- folding -------------------------------------------------------------------------------------------

    def fold(self, now: Instant) -> None:
        """Fold old records into the base, at the first call and then every ten minutes."""
        last = self._folded_at
        if last is not None and 0 <= now - last < FOLD_EVERY:
            return
        if fold_old_records(self._store, now):
            self._folded_at = now


def fold_old_records(store: Store, now: Instant) -> bool:
    """Fold the records of processes that have ended; return whether none is left.

    Any number of nodes may do so at once. One that dies in between leaves sealed records to the next one.
    """
    old: dict[str, tuple[Record, CounterRecord]] = {}
    for record in store.find_records(KIND, _TENANT):
        body = counters.read_record(record.body)
        if body is not None and counters.is_old(body, now):
            old[record.key] = (record, body)
    chosen = dict(list(old.items())[:_MOST_FOLDED])
    sealed = {
        key: found
        for key, (record, body) in chosen.items()
        if (found := _seal(store, record, body)) is not None
    }
    if sealed and _add_to_base(store, sealed, now):
        for key, (version, _) in sealed.items():
            store.delete_record(KIND, _TENANT, key, version + SEALED)
    return len(sealed) == len(old)


def _seal(store: Store, record: Record, body: CounterRecord) -> tuple[int, CounterRecord] | None:
    """Seal a record; return its last version and its body, or None if its process has written meanwhile."""
    if record.version >= SEALED:
        return record.version - SEALED, body
    sealed = replace(record, body=counters.write_sealed(body), version=record.version + SEALED)
    return (record.version, body) if store.put_record(sealed, record.version) else None


def _add_to_base(store: Store, sealed: dict[str, tuple[int, CounterRecord]], now: Instant) -> bool:
    """Add records to the base; return whether it contains them."""
    for _ in range(_TRIES):
        base, version = _read_base(store)
        if base.format > FORMAT:
            return False
        grown = counters.with_folded(base, sealed, now)
        record = Record(
            kind=BASE_KIND,
            tenant=_TENANT,
            key=_BASE,
            body=counters.write_base(grown),
            version=1 if version is None else version + 1,
        )
        if store.put_record(record, version):
            return True
    return False


def _read_base(store: Store) -> tuple[Base, int | None]:
    """Return the base and its version. One that can't be read counts as empty."""
    record = store.get_record(BASE_KIND, _TENANT, _BASE)
    if record is None:
        return Base(), None
    base = counters.read_base(record.body)
    if base is None:
        _log.error("the base of the counters can't be read: they begin again", extra={"component": "rollups"})
    return base or Base(), record.version


def read_counters(store: Store) -> Sums:
    """Return what all nodes have counted since the store was created.

    Nodes write once a minute. The numbers never go down, unless a user damages the records.
    """
    records = [
        (record.key, counters.read_record(record.body)) for record in store.find_records(KIND, _TENANT)
    ]
    # Last: a record that is folded and deleted meanwhile is in it.
    base, _ = _read_base(store)
    return counters.total(base, [(key, body) for key, body in records if body is not None])
