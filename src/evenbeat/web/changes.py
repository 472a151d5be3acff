"""``ChangeWatch`` asks the store what changed, once a second, for all clients that follow the changes.

It finds changes that any process made, since it reads the store and does not rely on messages. Without
clients, it only refreshes the catalogue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.stores.base import Store
from evenbeat.web.catalogue import Catalogue
from evenbeat.web.change import Change, Subject
from evenbeat.web.run_changes import RunChanges

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


class Audience(Protocol):
    """The receiver of changes: ``Hub``, which passes them on to its clients."""

    @property
    def is_watched(self) -> bool:
        """Whether anybody follows the changes, or did so a moment ago and may come back."""

    def publish(self, instant: Instant, changes: Sequence[Change]) -> None:
        """Take the changes up to an instant of the store, also if there are none."""

    def forget(self) -> None:
        """Note that polling stops here: nobody can continue from an earlier change."""


class ChangeWatch:
    """Polls the store for changes, in a thread of its own. ``step`` is one poll.

    ``idle_refresh`` is the time between refreshes of the catalogue while nobody follows the changes, in
    seconds. A hint of the store leads to a refresh within a second or two.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        audience: Audience,
        *,
        idle_refresh: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._audience = audience
        self._idle_refresh = idle_refresh
        self._clock = clock
        self._refreshed_at: float | None = None
        self._refresh_took = 0.0
        self._instant: Instant = 0
        """The store's time at the last poll that reached it."""
        self._runs: RunChanges | None = None
        """None while nobody follows the changes."""
        self._records = _RecordChanges()
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

    def step(self, is_hinted: bool = False) -> list[Change]:
        """Poll for changes, publish and return them.

        If the store is unavailable, reports it once, and the next poll covers the time since the last
        successful one. ``is_hinted`` says that something in the store may have changed.
        """
        is_watched = self._audience.is_watched
        if not is_watched and self._runs is not None:
            self._runs = None
            self._audience.forget()
        is_refresh_due = self._is_refresh_due(is_eager=is_watched or is_hinted)
        if not is_watched and not is_refresh_due:
            return []
        found: list[Change] = []
        try:
            now = self._store.now()
            if is_refresh_due:
                self._refresh()
            # These include changes that a refresh for a request found.
            schedules = [Change("schedule", *change) for change in self._catalogue.take_changes()]
            found += _named("schedule", schedules)
            if is_watched:
                self._poll(found, now)
            self._instant = now
        except StoreUnavailable as error:
            # Publishes also the changes that were found before the store failed: no later look finds them.
            found += self._lost(error)
        else:
            found += self._reached()
        finally:
            # Without changes, too: the position of the clients moves on.
            self._audience.publish(self._instant, found)
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

    def _poll(self, found: list[Change], now: Instant) -> None:
        """Add the changes to ``found``, each as soon as it is found."""
        if self._runs is None:
            self._runs, self._records = RunChanges(), _RecordChanges()
        found += self._runs.poll(self._store, now)
        found += self._records.poll(self._store, now)

    def _lost(self, error: StoreUnavailable) -> list[Change]:
        if self._runs is not None:
            self._runs.interrupted()
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
        if self._stopping.is_set() or self._audience.is_watched:
            return False
        try:
            return self._store.wait(_POLL_EVERY)
        except StoreUnavailable:
            self._stopping.wait(_POLL_EVERY)
            return False


class _RecordChanges:
    """Compares the records of nodes and of quarantined rows with those of the last poll."""

    def __init__(self) -> None:
        self._polled_at: Instant | None = None
        self._nodes: frozenset[str] = frozenset()
        self._notes: dict[tuple[str, str], int] = {}

    def poll(self, store: Store, now: Instant) -> list[Change]:
        last = self._polled_at
        if last is not None and last <= now < last + _RECORDS_EVERY:
            return []
        nodes = frozenset(record.key for record in store.find_records("node"))
        found = store.find_records("quarantine", limit=MOST_NAMED)
        notes = {(record.tenant, record.key): record.version for record in found}
        changes = [Change("node", "joined", id=name) for name in sorted(nodes - self._nodes)]
        changes += [Change("node", "left", id=name) for name in sorted(self._nodes - nodes)]
        added = [Change("quarantine", "added", *key) for key in notes if notes[key] != self._notes.get(key)]
        removed = [Change("quarantine", "removed", *key) for key in self._notes if key not in notes]
        self._polled_at, self._nodes, self._notes = now, nodes, notes
        if last is None:
            # The first poll has nothing to compare with. A client that read the nodes before it may be out of
            # date, so it has to read them again.
            return [Change("node", "many"), Change("quarantine", "many")]
        return changes + _named("quarantine", added + removed)


def _named(subject: Subject, changes: list[Change]) -> list[Change]:
    return changes if len(changes) <= MOST_NAMED else [Change(subject, "many")]
