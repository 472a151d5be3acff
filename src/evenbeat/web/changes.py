"""``ChangeWatch`` asks the store what changed, once a second, for all clients that follow the changes.

It finds changes that any process made, since it reads the store and does not rely on messages. Without
clients, it only refreshes the catalogue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Store
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.change import Change, Subject
from evenbeat.web.run_changes import RunChanges, read

MOST_NAMED = 500
"""How many schedules or quarantine notes the changes of one poll name. Beyond that, they say "many"."""

# Seconds between polls. A poll that takes long makes the next one wait, so that polls take at most a tenth of
# the time, and refreshes of the catalogue a twentieth.
_POLL_EVERY, _LONGEST_PAUSE, _SHARE = 1.0, 10.0, 10
_LONGEST_REFRESH_PAUSE, _REFRESH_SHARE = 30.0, 20
# Nodes write their records every 20 s, and notes are rare, so these are read less often.
_RECORDS_EVERY = 5_000
_STOP_SECONDS = 5.0

_log = logging.getLogger("evenbeat.web.changes")


class Receiver(Protocol):
    """The receiver of changes: ``Hub``, which passes them on to its clients."""

    @property
    def audiences(self) -> Mapping[str | None, float]:
        """The tenants whose changes somebody follows, or followed a moment ago, with the seconds since the
        first of them came; None stands for all tenants."""

    def publish(self, instant: Instant, found: Mapping[str | None, Sequence[Change]]) -> None:
        """Take the changes for each audience up to an instant of the store, also if there are none."""


class ChangeWatch:
    """Polls the store for changes, in a thread of its own. ``step`` is one poll.

    ``idle_refresh`` is the time between refreshes of the catalogue while nobody follows the changes, in
    seconds. A hint of the store leads to a refresh within a second or two.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        receiver: Receiver,
        *,
        idle_refresh: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._receiver = receiver
        self._idle_refresh = idle_refresh
        self._clock = clock
        self._refreshed_at: float | None = None
        self._refresh_took = 0.0
        self._instant: Instant = 0
        """The store's time at the last poll that reached it."""
        self._runs: dict[str | None, RunChanges] = {}
        self._records: dict[str | None, _RecordChanges] = {}
        """By audience. What one of them gets does not depend on what others do."""
        self._is_store_away = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evenbeat-web-changes", daemon=True)
        self._failures = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the present poll, which takes a second or two."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def step(self, is_hinted: bool = False) -> dict[str | None, list[Change]]:
        """Poll for changes, publish and return them, by audience.

        If the store is unavailable, says so once, and the next poll covers the time since the last
        successful one. ``is_hinted`` says that something in the store may have changed.
        """
        audiences = self._receiver.audiences
        self._runs = {tenant: runs for tenant, runs in self._runs.items() if tenant in audiences}
        self._records = {tenant: each for tenant, each in self._records.items() if tenant in audiences}
        is_refresh_due = self._is_refresh_due(is_eager=bool(audiences) or is_hinted)
        if not audiences and not is_refresh_due:
            return {}
        found: dict[str | None, list[Change]] = {}
        try:
            now = self._store.now()
            if is_refresh_due:
                self._refresh()
            # These include changes that a refresh for a request found.
            schedules = [Change("schedule", *change) for change in self._catalogue.take_changes()]
            audiences = self._receiver.audiences  # some may have come meanwhile
            found |= {tenant: _named("schedule", tenant, schedules) for tenant in audiences}
            if found:
                self._poll(found, audiences, now)
            self._instant = now
        except StoreUnavailable as error:
            # Publishes also the changes that were found before the store failed: no later poll finds them.
            self._add_to_all(found, self._lost(error))
        else:
            self._add_to_all(found, self._reached())
        finally:
            # Without changes, too: the position of the clients moves on.
            self._receiver.publish(self._instant, found)
        return found

    def _is_refresh_due(self, *, is_eager: bool) -> bool:
        last = self._refreshed_at
        if last is None or self._is_store_away:
            return True
        # A store without an index for changes reads all schedules: a fifth of a second for 100,000.
        pause = min(_REFRESH_SHARE * self._refresh_took, _LONGEST_REFRESH_PAUSE)
        return self._clock() - last >= max(pause, 0 if is_eager else self._idle_refresh)

    def _refresh(self) -> None:
        began, is_first = self._clock(), not self._catalogue.is_loaded
        self._catalogue.refresh(self._store)
        self._refreshed_at = self._clock()
        self._refresh_took = 0.0 if is_first else self._refreshed_at - began

    def _add_to_all(self, found: dict[str | None, list[Change]], more: list[Change]) -> None:
        if more:
            for tenant in self._receiver.audiences:
                found.setdefault(tenant, []).extend(more)

    def _poll(
        self, found: dict[str | None, list[Change]], audiences: Mapping[str | None, float], now: Instant
    ) -> None:
        """Add the changes to ``found``, each as soon as it is found."""
        self._runs = {
            tenant: self._runs.get(tenant) or RunChanges(tenant, now - int(seconds * 1000))
            for tenant, seconds in audiences.items()
        }
        self._records = {tenant: self._records.get(tenant) or _RecordChanges(tenant) for tenant in audiences}
        reading = read(self._store, None, min(runs.since(now) for runs in self._runs.values()))
        for tenant, runs in self._runs.items():
            found[tenant] += runs.poll(self._store, now, reading)
        due = [tenant for tenant, records in self._records.items() if records.is_due(now)]
        if due:
            nodes = self._store.find_records("node") if None in due else []
            notes = self._store.find_records("quarantine", limit=MOST_NAMED)
            for tenant in due:
                found[tenant] += self._records[tenant].poll(self._store, now, nodes, notes)

    def _lost(self, error: StoreUnavailable) -> list[Change]:
        for runs in self._runs.values():
            runs.interrupted()
        if self._is_store_away:
            return []
        _log.warning("the store is unavailable, retrying: %s", error, extra={"component": "web"})
        self._is_store_away = True
        return [Change("store", "unavailable")]

    def _reached(self) -> list[Change]:
        if not self._is_store_away:
            return []
        _log.info("the store is available again", extra={"component": "web"})
        self._is_store_away = False
        return [Change("store", "back")]

    def _work(self) -> None:
        is_hinted = False
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self.step(is_hinted)
                self._failures = 0
            except Exception:
                self._failures += 1
                # Less and less often, so that a lasting error does not fill the disk with the same lines.
                if self._failures & (self._failures - 1) == 0:
                    _log.exception("a poll for changes failed, retrying", extra={"component": "web"})
            took = time.monotonic() - began
            self._stopping.wait(min(max(_POLL_EVERY, _SHARE * took), _LONGEST_PAUSE) - took)
            is_hinted = self._wait()

    def _wait(self) -> bool:
        """While nobody follows the changes, sleep until a hint arrives, for at most a second."""
        if self._stopping.is_set() or self._receiver.audiences:
            return False
        try:
            return self._store.wait(_POLL_EVERY)
        except StoreUnavailable:
            self._stopping.wait(_POLL_EVERY)
            return False


class _RecordChanges:
    """Compares the records of nodes and of quarantined rows with those of the last poll.

    Nodes belong to no tenant: only clients of all tenants see them.
    """

    def __init__(self, tenant: str | None) -> None:
        self._tenant = tenant
        self._polled_at: Instant | None = None
        self._nodes: frozenset[str] = frozenset()
        self._notes: dict[tuple[str, str], int] = {}

    def is_due(self, now: Instant) -> bool:
        last = self._polled_at
        return last is None or not last <= now < last + _RECORDS_EVERY

    def poll(self, store: Store, now: Instant, nodes: list[Record], notes: list[Record]) -> list[Change]:
        """Return the changes since the last poll. ``notes`` are those of all tenants, at most MOST_NAMED."""
        changes = self._node_changes(frozenset(record.key for record in nodes))
        if self._tenant is not None:
            if len(notes) >= MOST_NAMED:
                notes = store.find_records("quarantine", self._tenant, limit=MOST_NAMED)
            notes = [record for record in notes if record.tenant == self._tenant]
        versions = {(record.tenant, record.key): record.version for record in notes}
        added = [
            Change("quarantine", "added", *key)
            for key, version in versions.items()
            if version != self._notes.get(key)
        ]
        removed = [Change("quarantine", "removed", *key) for key in self._notes if key not in versions]
        is_first = self._polled_at is None
        self._polled_at, self._notes = now, versions
        if is_first:
            # There is nothing to compare with. A client that read the notes before may be out of date, so it
            # has to read them again.
            return [*changes, Change("quarantine", "many", self._tenant)]
        return changes + _named("quarantine", self._tenant, added + removed)

    def _node_changes(self, nodes: frozenset[str]) -> list[Change]:
        if self._tenant is not None:
            return []
        before, self._nodes = self._nodes, nodes
        if self._polled_at is None:
            return [Change("node", "many")]
        joined = [Change("node", "joined", id=name) for name in sorted(nodes - before)]
        return joined + [Change("node", "left", id=name) for name in sorted(before - nodes)]


def _named(subject: Subject, tenant: str | None, changes: list[Change]) -> list[Change]:
    """Return the changes of a tenant, or "many" if there are too many to name."""
    own = [change for change in changes if change.is_visible_to(tenant)]
    return own if len(own) <= MOST_NAMED else [Change(subject, "many", tenant)]
