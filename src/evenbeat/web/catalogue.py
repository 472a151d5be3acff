"""The catalogue: all schedules in memory, for filters and sorts that the stores have no index for.

It answers with keys. The store answers the rows that are shown, so these are never out of date.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias, get_args

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ScheduleRecord, ScheduleState
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.schedule_filters import LATE_AFTER, Entry, Key, entry_of, is_failing
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store
from evenbeat.stores.pages import every_schedule
from evenbeat.web.entries import EMPTY, Snapshot
from evenbeat.web.search import CataloguePage, CatalogueQuery, search

ScheduleChangeKind: TypeAlias = Literal["created", "updated", "deleted"]

MOST_LATE = 2_000

_PAGE = 500
_EVERY_STATE: tuple[ScheduleState, ...] = get_args(ScheduleState)
# The clocks of writers differ by up to a minute, and a write may commit some seconds after it got its time.
_OVERLAP = 60_000
# The end of a run has the time of a worker that follows the store's clock, so this one can be shorter.
_RUN_OVERLAP = 5_000
# How often to read one more page of all schedules.
_SWEEP_EVERY = 5_000
# How soon to read a schedule again that is still as it was when it should have changed.
_RECHECK_AFTER = 5_000


class ScheduleChange(NamedTuple):
    """A schedule that was found to differ from the catalogue."""

    kind: ScheduleChangeKind
    tenant: str
    name: str


class Catalogue:
    """All schedules of a store, in memory. Any number of threads search it, while one at a time refreshes it.

    A search works on a snapshot that nothing changes. A refresh replaces the snapshot in one assignment.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._refreshing = threading.Lock()
        self._read_at: Instant = 0
        self._rechecks = _Rechecks()
        self._sweep = _Sweep(None, None)
        self._swept_at: Instant = 0
        self._failing: dict[Key, None] = {}
        """The failing schedules, those first whose statistics were not read for longest."""
        self._changes: dict[Key, ScheduleChangeKind] = {}

    @property
    def is_loaded(self) -> bool:
        """Whether a refresh has read all schedules."""
        return self._snapshot is not None

    def __len__(self) -> int:
        return 0 if self._snapshot is None else len(self._snapshot.entries)

    def search(self, query: CatalogueQuery, late: frozenset[Key] = frozenset()) -> CataloguePage:
        """Return the keys of a page. ``late`` are the late schedules, for queries that ask for them.

        Raises StoreUnavailable before the first refresh.
        """
        snapshot = self._snapshot
        if snapshot is None:
            raise StoreUnavailable("the schedules are still being read from the store; try again")
        return search(snapshot, query, late)

    def entries(self) -> list[Entry]:
        """Return the entries of all schedules, which nothing changes; none before the first refresh."""
        return [] if self._snapshot is None else self._snapshot.orders["name"]

    def load(self, store: Store) -> None:
        """Read all schedules, unless a refresh has done so. Of several requests at once, one reads them."""
        with self._refreshing:
            if self._snapshot is None:
                now = store.now()
                self._apply(_load(store, now), now)

    def refresh(self, store: Store) -> None:
        """Read the schedules that have changed; the first time, all of them.

        Finds changes of definitions and pauses by ``changed_since``. Three kinds of changes leave no such
        mark, and are found otherwise:

        - A fire ends a timed pause, or finishes a schedule after its last tick. A refresh reads these
          schedules again when that time has come.
        - The end of a run decides whether its schedule is failing. A refresh reads the statistics of
          schedules with a new failure, and those of failing schedules.
        - A write commits more than a minute late, or comes with a wrong clock. Every 5 s, a refresh reads one
          page of all schedules in turn, so the catalogue of 100,000 corrects itself within 17 minutes.
        """
        with self._refreshing:
            # All reads come first: if one fails, the catalogue stays as it is.
            now = store.now()
            if self._snapshot is None:
                reading = _load(store, now)
            else:
                reading = self._read_changes(store, now, self._snapshot)
            self._apply(reading, now)

    def take_changes(self) -> list[ScheduleChange]:
        """Return the changes that refreshes have found since the last call, one for each schedule."""
        with self._refreshing:
            changes, self._changes = self._changes, {}
        return [ScheduleChange(kind, *key) for key, kind in changes.items()]

    def _read_changes(self, store: Store, now: Instant, snapshot: Snapshot) -> _Reading:
        since = min(self._read_at, now)
        rows = _read(
            store, ScheduleQuery(changed_since=since - _OVERLAP, states=_EVERY_STATE, limit=_PAGE), now
        )
        if due := self._rechecks.due(now, _PAGE):
            again = _read(store, ScheduleQuery(keys=due, states=_EVERY_STATE, limit=_PAGE), now)
            rows |= {key: again.get(key) for key in due}
        # The schedules whose statistics to read. A dictionary, because it has an order.
        suspects = {key: None for key, row in rows.items() if _differs(row, snapshot.entries.get(key))}
        sweep = None
        if not self._swept_at <= now < self._swept_at + _SWEEP_EVERY:
            swept, sweep = self._sweep.next_page(store, now, snapshot)
            rows |= swept
            suspects |= dict.fromkeys(swept)
        failed = RunQuery(
            finished_since=since - _RUN_OVERLAP, states=("failed",), without=LARGE_FIELDS, limit=_PAGE
        )
        for run in store.find_runs(failed).items:
            if run.schedule is not None:
                suspects[run.tenant, run.schedule] = None
        suspects |= dict.fromkeys(islice(self._failing, _PAGE))
        return _Reading(rows, _read_failing(store, suspects), sweep)

    def _apply(self, reading: _Reading, now: Instant) -> None:
        is_first = self._snapshot is None
        snapshot = EMPTY if self._snapshot is None else self._snapshot
        changes: dict[Key, Entry | None] = {}
        for key, row in reading.rows.items():
            known = snapshot.entries.get(key)
            self._rechecks.plan(key, None if row is None else row.recheck_at)
            if not _differs(row, known):
                continue
            if row is None:
                changes[key] = None
                self._note(key, "deleted")
            else:
                changes[key] = replace(row.entry, failing=known is not None and known.failing)
                if not is_first:
                    self._note(key, "created" if known is None else "updated")
        for key, fails in reading.failing.items():
            entry = changes[key] if key in changes else snapshot.entries.get(key)
            self._failing.pop(key, None)
            if entry is None:
                continue
            if fails:
                self._failing[key] = None
            if entry.failing is not fails:
                changes[key] = replace(entry, failing=fails)
        self._snapshot = snapshot.changed(changes)
        self._read_at = now
        if reading.sweep is not None:
            self._sweep, self._swept_at = reading.sweep, now

    def _note(self, key: Key, kind: ScheduleChangeKind) -> None:
        is_new = self._changes.get(key) == "created" and kind == "updated"
        self._changes[key] = "created" if is_new else kind


def late_keys(store: Store, now: Instant, tenant: str | None = None) -> frozenset[Key]:
    """Return the keys of active schedules that should have fired more than 30 s ago.

    The store finds them by their wake-up, by the same rule as ``is_late``. If there are more than 2,000 (no
    node is alive), returns the first 2,000 by tenant and name.
    """
    query = ScheduleQuery(tenant=tenant, states=("active",), wakes_before=now - LATE_AFTER, limit=_PAGE)
    return frozenset(record.key for record in islice(every_schedule(store, query), MOST_LATE))


class _Row(NamedTuple):
    """A schedule as a refresh has read it."""

    entry: Entry
    recheck_at: Instant | None
    """When a fire is expected to change its state."""


_Rows: TypeAlias = dict[Key, _Row | None]
"""The rows that a refresh has read, by key. The value of a deleted schedule is None."""


class _Sweep(NamedTuple):
    """A position in the order (tenant, name), from which the next page of all schedules is read."""

    after: Key | None
    cursor: str | None

    def next_page(self, store: Store, now: Instant, snapshot: Snapshot) -> tuple[_Rows, _Sweep]:
        """Read a page, and return its rows and the position after it. Entries of the snapshot that belong on
        the page and are not on it are deleted."""
        page = store.find_schedules(ScheduleQuery(limit=_PAGE, cursor=self.cursor))
        last = None if page.cursor is None else page.items[-1].key
        rows: _Rows = {
            key: None
            for key in snapshot.entries
            if (self.after is None or self.after < key) and (last is None or key <= last)
        }
        rows |= {record.key: _row(record, now) for record in page.items}
        return rows, _Sweep(last, page.cursor)


class _Reading(NamedTuple):
    """The result of all reads of one refresh."""

    rows: _Rows
    failing: dict[Key, bool]
    sweep: _Sweep | None = None
    """Where the next sweep continues; None if this refresh did not sweep."""


class _Rechecks:
    """The instants at which fires are expected to change the state of schedules."""

    def __init__(self) -> None:
        self._planned: dict[Key, Instant] = {}
        # May contain outdated entries, which differ from _planned.
        self._heap: list[tuple[Instant, Key]] = []

    def plan(self, key: Key, at: Instant | None) -> None:
        """Set the instant of a schedule, or remove it."""
        if at is None:
            self._planned.pop(key, None)
        elif self._planned.get(key) != at:
            self._planned[key] = at
            heapq.heappush(self._heap, (at, key))

    def due(self, now: Instant, limit: int) -> tuple[Key, ...]:
        """Return the schedules whose instant has come, at most so many. They stay due until ``plan`` sets
        another instant."""
        due: dict[Key, Instant] = {}
        while self._heap and self._heap[0][0] <= now and len(due) < limit:
            at, key = heapq.heappop(self._heap)
            if self._planned.get(key) == at:
                due[key] = at
        for key, at in due.items():
            heapq.heappush(self._heap, (at, key))
        return tuple(due)


def _load(store: Store, now: Instant) -> _Reading:
    # 100,000 schedules take 2.4 s of processor time on SQLite, on a busy machine, and 110 MB at most: three
    # quarters for the rows, a tenth for sorting them. They are read once, when a web process starts.
    rows = _read(store, ScheduleQuery(limit=_PAGE), now)
    return _Reading(rows, _read_failing(store, rows))


def _read(store: Store, query: ScheduleQuery, now: Instant) -> _Rows:
    return {record.key: _row(record, now) for record in every_schedule(store, query)}


def _row(record: ScheduleRecord, now: Instant) -> _Row | None:
    if record.state == "deleted":
        return None
    recheck_at = _state_changes_at(record)
    if recheck_at is not None:
        # The fire takes a moment. If the state is still the same after that, the nodes are late.
        recheck_at = recheck_at + 1_000 if recheck_at + 1_000 > now else now + _RECHECK_AFTER
    return _Row(entry_of(record), recheck_at)


def _state_changes_at(record: ScheduleRecord) -> Instant | None:
    """Return when a fire may change the state of a schedule: it ends a pause, or fires the last tick."""
    if record.state == "paused":
        return record.paused_until
    may_be_last = record.trigger.startswith("at ") or "until=" in record.trigger
    return record.wake_at if record.state == "active" and may_be_last else None


def _differs(row: _Row | None, known: Entry | None) -> bool:
    if row is None:
        return known is not None
    return known is None or row.entry != (replace(known, failing=False) if known.failing else known)


def _read_failing(store: Store, keys: Iterable[Key]) -> dict[Key, bool]:
    """Return for each schedule whether it is failing, by its statistics."""
    left = iter(keys)
    failing: dict[Key, bool] = {}
    while batch := list(islice(left, _PAGE)):
        failing |= {(s.tenant, s.schedule): is_failing(s) for s in store.statistics(batch)}
    return failing
