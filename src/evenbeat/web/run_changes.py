"""Finds runs that changed since the last poll, in any process and on any store.

A poll reads three windows of the store: the newest runs, the running ones, and those that ended lately. The
audit names runs that a user retried or cancelled, which may be in none of them. Each window reaches back some
seconds before the last poll, because a write may commit after a later one has been seen. The memory of what
was reported keeps changes in this overlap from being reported twice.

**Each tenant is compared by itself.** One reading of all tenants serves everybody as long as it is complete.
If it is not, a poll reads the runs of each tenant with clients separately. So the changes that a tenant gets
do not depend on how busy others are.

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

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.rules import auditing
from evenbeat.rules.flow_parts import flow_part, is_begun
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store
from evenbeat.web.change import Change, ChangeKind

MOST = 500
"""How many runs a poll reads from each window. Beyond that, it reports "many"."""

# The times of runs come from nodes, which follow the store's clock, so that only the commit can be late.
_OVERLAP = 5_000
# Workers that could not reach the store record ends when they reach it again, with the time of the end.
_AFTER_OUTAGE = 10_000
# Longer than the overlap: what is not seen for so long is outside every window.
_REMEMBERED = 15_000


class _Mark(NamedTuple):
    """What was last reported about a run."""

    attempt: int
    state: str
    cancel_requested: bool
    claim: str | None
    """Tells the run from an earlier one of the same id."""


class _Window(NamedTuple):
    """The runs that a query found, the newest first, and whether it left out others."""

    runs: tuple[RunRecord, ...]
    has_more: bool

    def of(self, tenant: str | None) -> _Window:
        runs = self.runs if tenant is None else tuple(run for run in self.runs if run.tenant == tenant)
        return _Window(runs, self.has_more)


class Reading(NamedTuple):
    """What the store says about runs, of one tenant or of all."""

    newest: _Window
    running: _Window
    ended: _Window
    by_hand: tuple[tuple[str, str], ...]
    """(tenant, id) of runs that a user changed."""
    has_all_by_hand: bool

    @property
    def is_complete(self) -> bool:
        windows = (self.newest, self.running, self.ended)
        return self.has_all_by_hand and not any(window.has_more for window in windows)

    def of(self, tenant: str | None) -> Reading:
        """Return the part of a tenant."""
        by_hand = tuple(key for key in self.by_hand if tenant is None or key[0] == tenant)
        windows = (self.newest.of(tenant), self.running.of(tenant), self.ended.of(tenant))
        return Reading(*windows, by_hand, self.has_all_by_hand)


def read(store: Store, tenant: str | None, since: Instant) -> Reading:
    """Read the runs that may have changed since an instant. ``tenant`` None: those of all tenants."""
    # In the order of a run's life: a later window has the later state of a run.
    asked = RunQuery(tenant=tenant, without=LARGE_FIELDS)
    newest = _window(store, replace(asked, created_since=since))
    running = _window(store, replace(asked, states=("running",)))
    ended = _window(store, replace(asked, finished_since=since))
    return Reading(newest, running, ended, *_changed_by_hand(store, tenant, since))


class RunChanges:
    """Compares the runs of a tenant, or of all tenants, with those of the last poll."""

    def __init__(self, tenant: str | None, began: Instant) -> None:
        self._tenant = tenant
        self._last = began
        """The instant of the last poll; before the first one, when the first client came."""
        self._has_polled = False
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

    def since(self, now: Instant) -> Instant:
        """Return how far back the windows of a poll reach."""
        last = min(self._last, now)
        if self._outage_began is not None:
            if self._outage_counts_until is None:
                self._outage_counts_until = now + _AFTER_OUTAGE
            if now < self._outage_counts_until:
                return min(last, self._outage_began) - _OVERLAP
            self._outage_began = self._outage_counts_until = None
        return last - _OVERLAP

    def poll(self, store: Store, now: Instant, shared: Reading) -> list[Change]:
        """Return the changes since the last poll; the first time, since 5 s before the first client came.

        ``shared`` is a reading of all tenants, since ``since`` or earlier. If the store fails in between, the
        next poll covers the same time again.
        """
        last, since = min(self._last, now), self.since(now)
        can_share = self._tenant is None or shared.is_complete
        reading = shared.of(self._tenant) if can_share else read(store, self._tenant, since)
        newest, running, ended = reading.newest, reading.running.runs, reading.ended
        if ended.has_more:
            # Under load, give up the overlap before changes are left out.
            ended = _window(store, RunQuery(tenant=self._tenant, finished_since=last, without=LARGE_FIELDS))
        here = frozenset(run.id for run in running)
        by_hand = {run_id for _, run_id in reading.by_hand}
        missing = tuple((self._running | by_hand) - here - {run.id for run in ended.runs})
        of_ids = RunQuery(ids=missing, tenant=self._tenant, without=LARGE_FIELDS, limit=len(missing))
        gone = store.find_runs(of_ids).items if missing else ()

        changes: dict[str, Change] = {}
        self._report(changes, (run for run in newest.runs if run.created_at >= since), now)
        for run in running:
            # An old run that appears among the newest running ones has not started just now.
            is_new = self._knew_all_running or run.id in self._known or (run.started_at or 0) >= since
            self._report(changes if is_new else {}, (run,), now)
        self._report(changes, (run for run in ended.runs if (run.finished_at or 0) >= since), now)
        # A run that is still running was only pushed out of the newest ones. Of the runs that a user changed,
        # only those that wait are in none of the windows.
        left = (run for run in gone if run.state != "running" and run.id in self._running)
        self._report(changes, left, now)
        self._report(changes, (run for run in gone if run.state == "queued"), now)
        # Among more runs than were read, some may have started that are not among the newest.
        has_unseen = reading.running.has_more and here != self._running and self._has_polled
        # Under load, the overlap shrinks before changes are left out.
        is_cut = newest.has_more and newest.runs[-1].created_at >= last
        self._running, self._knew_all_running = here, not reading.running.has_more
        self._last, self._has_polled = now, True
        self._known = {run: seen for run, seen in self._known.items() if seen[1] > now - _REMEMBERED}
        if is_cut or ended.has_more or has_unseen or len(changes) > MOST:
            return [Change("run", "many", self._tenant)]
        return list(changes.values())

    def _report(self, changes: dict[str, Change], runs: Iterable[RunRecord], now: Instant) -> None:
        """Add a change for each run that differs from what was reported last, and remember the run."""
        for run in runs:
            mark = _Mark(run.attempt, run.state, run.cancel_requested, run.claim)
            before, _ = self._known.get(run.id, (None, now))
            self._known[run.id] = (mark, now)
            if before != mark:
                member = flow_part(run).member
                flow = None if member is None else member.flow
                kind = _kind(before, mark, is_flow=is_begun(run))
                changes[run.id] = Change("run", kind, run.tenant, run.id, run.schedule, flow)


def _kind(before: _Mark | None, mark: _Mark, *, is_flow: bool) -> ChangeKind:
    if before is not None and before[:2] == mark[:2]:
        return "updated"
    # Each change of a flow that has begun counts its attempt up.
    if is_flow and before is not None and before.state == mark.state:
        return "updated"
    match mark.state:
        case "running":
            return "started"
        case "succeeded" | "failed" | "cancelled":
            return mark.state
        case _:
            return "queued"


def _window(store: Store, query: RunQuery) -> _Window:
    page = store.find_runs(replace(query, limit=MOST))
    return _Window(page.items, page.cursor is not None)


def _changed_by_hand(
    store: Store, tenant: str | None, since: Instant
) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return (tenant, id) of runs that a user changed, and whether these are all."""
    start, end = auditing.key_range("", since, None)
    records = store.find_records(auditing.ENTRY, tenant, start=start, end=end, limit=MOST)
    entries = (auditing.read_entry(record) for record in records)
    runs = (entry for entry in entries if entry is not None and entry.kind == "run")
    return tuple((entry.tenant, entry.subject) for entry in runs), len(records) < MOST
