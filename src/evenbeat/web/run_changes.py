"""Finds runs that changed since the last poll, in any process and on any store.

A poll reads three windows of the store: the newest runs, the running ones, and those that ended lately. The
audit names runs that a user retried or cancelled, which may be in none of them. Each window reaches back some
seconds before the last poll, because a write may commit after a later one has been seen. The memory of what
was reported keeps changes in this overlap from being reported twice.

**A run that changes between two polls is reported once, in its last state.** A run that was queued, started
and ended since the last poll is reported as ended.

**Missed:** a run that commits more than 5 s after its time (a user's transaction that stays open after
``enqueue(within=…)``) is not reported as queued, but as started or ended. An end that commits so late is
missed only if no poll saw the run running. If more than 500 runs are running, the start of a run that had
waited behind 500 newer ones may be missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.rules import auditing
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.web.change import Change, ChangeKind

MOST = 500
"""How many runs a poll reads from each window. Beyond that, it reports "many"."""

MANY = Change("run", "many")

# The times of runs come from nodes, which follow the store's clock, so that only the commit can be late.
_OVERLAP = 5_000
# Workers that could not reach the store record ends when they reach it again, with the time of the end.
_AFTER_OUTAGE = 10_000
# Longer than the overlap: what is not seen for so long is outside every window.
_REMEMBERED = 15_000
# Sizes of pages of the newest runs: a poll at a store at rest should not read 500 of them.
_PAGES = (20, 80, 400)


class _Mark(NamedTuple):
    """What was last reported about a run."""

    attempt: int
    state: str
    cancel_requested: bool


class _Window(NamedTuple):
    """The runs that a query found, and whether it left out some that may have changed."""

    runs: tuple[RunRecord, ...]
    is_cut: bool


class RunChanges:
    """Compares the runs of a store with those of the last poll."""

    def __init__(self) -> None:
        self._last: Instant | None = None
        self._known: dict[str, tuple[_Mark, Instant]] = {}
        self._running: frozenset[str] = frozenset()
        self._knew_all_running = False
        self._outage_began: Instant | None = None
        self._outage_counts_until: Instant | None = None

    def interrupted(self) -> None:
        """Note that the store is unavailable: ends of runs may commit late."""
        self._outage_counts_until = None
        if self._outage_began is None:
            self._outage_began = self._last

    def poll(self, store: Store, now: Instant) -> list[Change]:
        """Return the changes since the last poll; the first time, those of the last 5 s.

        If the store fails in between, the next poll covers the same time again.
        """
        last = now if self._last is None else min(self._last, now)
        since = self._since(last, now)
        # In the order of a run's life: a later window has the later state of a run.
        newest = _newest(store, since, last)
        running = store.find_runs(RunQuery(states=("running",), without=LARGE_FIELDS, limit=MOST))
        ended = _ended(store, since, last)
        here = frozenset(run.id for run in running.items)
        by_hand = _changed_by_hand(store, since)
        missing = (self._running | by_hand) - here - {run.id for run in ended.runs}
        of_ids = RunQuery(ids=tuple(missing), without=LARGE_FIELDS, limit=MOST)
        gone = store.find_runs(of_ids).items if missing else ()

        changes: dict[str, Change] = {}
        self._report(changes, (run for run in newest.runs if run.created_at >= since), now)
        for run in running.items:
            # An old run that appears among the newest running ones has not started just now.
            is_new = self._knew_all_running or run.id in self._known or (run.started_at or 0) >= since
            self._report(changes if is_new else {}, (run,), now)
        self._report(changes, ended.runs, now)
        # A run that is still running was only pushed out of the newest ones. Of the runs that a user changed,
        # only those that wait are in none of the windows.
        left = (run for run in gone if run.state != "running" and run.id in self._running)
        self._report(changes, left, now)
        self._report(changes, (run for run in gone if run.state == "queued"), now)
        # Among more runs than were read, some may have started that are not among the newest.
        is_cut = running.cursor is not None and here != self._running and self._last is not None
        self._running, self._knew_all_running = here, running.cursor is None
        self._last = now
        self._known = {run: seen for run, seen in self._known.items() if seen[1] > now - _REMEMBERED}
        if newest.is_cut or ended.is_cut or is_cut or len(changes) > MOST:
            return [MANY]
        return list(changes.values())

    def _since(self, last: Instant, now: Instant) -> Instant:
        """Return the start of the windows."""
        if self._outage_began is not None:
            if self._outage_counts_until is None:
                self._outage_counts_until = now + _AFTER_OUTAGE
            if now < self._outage_counts_until:
                return min(last, self._outage_began) - _OVERLAP
            self._outage_began = self._outage_counts_until = None
        return last - _OVERLAP

    def _report(self, changes: dict[str, Change], runs: Iterable[RunRecord], now: Instant) -> None:
        """Add a change for each run that differs from what was reported last, and remember the run."""
        for run in runs:
            mark = _Mark(run.attempt, run.state, run.cancel_requested)
            before, _ = self._known.get(run.id, (None, now))
            self._known[run.id] = (mark, now)
            if before != mark:
                changes[run.id] = Change("run", _kind(before, mark), run.tenant, run.id, run.schedule)


def _kind(before: _Mark | None, mark: _Mark) -> ChangeKind:
    if before is not None and before[:2] == mark[:2]:
        return "updated"
    match mark.state:
        case "running":
            return "started"
        case "succeeded" | "failed" | "cancelled":
            return mark.state
        case _:
            return "queued"


def _newest(store: Store, since: Instant, last: Instant) -> _Window:
    """Read runs, the newest first, until one was created before ``since``."""
    runs: tuple[RunRecord, ...] = ()
    cursor: str | None = None
    for size in _PAGES:
        page = store.find_runs(RunQuery(without=LARGE_FIELDS, limit=size, cursor=cursor))
        runs += page.items
        cursor = page.cursor
        if cursor is None or runs[-1].created_at < since:
            return _Window(runs, False)
    # Under load, the overlap shrinks before changes are left out.
    return _Window(runs, runs[-1].created_at >= last)


def _changed_by_hand(store: Store, since: Instant) -> frozenset[str]:
    start, end = auditing.key_range("", since, None)
    records = store.find_records(auditing.ENTRY, start=start, end=end, limit=MOST)
    entries = (auditing.read_entry(record) for record in records)
    return frozenset(entry.subject for entry in entries if entry is not None and entry.kind == "run")


def _ended(store: Store, since: Instant, last: Instant) -> _Window:
    page = store.find_runs(RunQuery(finished_since=since, without=LARGE_FIELDS, limit=MOST))
    if page.cursor is not None:
        # Under load, give up the overlap before changes are left out.
        page = store.find_runs(RunQuery(finished_since=last, without=LARGE_FIELDS, limit=MOST))
    return _Window(page.items, page.cursor is not None)
