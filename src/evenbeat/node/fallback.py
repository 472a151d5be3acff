"""The fallback: while the rows of schedules can't be used, a node fires those of its code from memory.

It covers schedules that the code declares, and that were last seen active. Their runs have the ids that their
rows would give them, so a tick that another node fires from its row is not fired twice. Where the whole
database is down, there is nowhere to write a run, and nothing begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import get_args

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import ScheduleRecord, ScheduleState, Skipped
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.events import Events
from evenbeat.rules.fallback import Remembered, covers, rest_of
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store

AFTER = 10_000
"""A shorter outage does not begin a fallback: the rows catch up on their ticks."""
# The rows are read again this often, and after a hint no sooner than this many ms after the last time.
_READ_EVERY, _READ_AFTER_HINT = 100_000, 30_000
# How long the ticks that were fired from memory are remembered after a fallback.
_REMEMBERED = 600_000

Key = tuple[str, str]

_log = logging.getLogger("evenbeat.node.fallback")


class Fallback:
    """Remembers the rows of the schedules that the code declares, and decides when memory replaces them.

    A duty of the node calls ``step``, the ticker reports how its steps end, and the fallback ticker fires
    ``rows`` while ``since`` is set.
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        keys: Iterable[Key] = (),
        changed: Callable[[], None] = lambda: None,
        recovered: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._events = events
        self._keys = set(keys)
        self._changed = changed
        """Called when a fallback begins or ends."""
        self._recovered = recovered
        """Called when the rows can be used again, even if no fallback had begun."""
        self._rows: dict[Key, ScheduleRecord] = {}
        self.read_at: Instant | None = None
        """When the rows were last read."""
        self._is_hinted = False
        self._succeeded_at: Instant | None = None
        self._failing_since: Instant | None = None
        self._ended_at: Instant | None = None
        self.since: Instant | None = None
        """Ticks from this instant on are fired from memory; None while the rows are fired."""
        self.remembered: dict[Key, Remembered] = {}
        """The schedules that were fired from memory, in this fallback or in the last one."""

    @property
    def is_failing(self) -> bool:
        """Whether the ticker could not read or write the rows when it last tried."""
        return self._failing_since is not None

    def add(self, key: Key) -> None:
        """Cover a schedule that was declared while the node runs."""
        self._keys.add(key)
        self.read_at = None

    def hint(self) -> None:
        """Something in the store may have changed."""
        self._is_hinted = True

    def step(self, now: Instant) -> Instant:
        """Read the rows again if it is time. Without declared schedules, nothing is read."""
        if self._ended_at is not None and now > self._ended_at + _REMEMBERED:
            self.remembered, self._ended_at = {}, None
        if self._keys and self._failing_since is None and self._is_time(now):
            query = ScheduleQuery(
                keys=tuple(sorted(self._keys)), states=get_args(ScheduleState), limit=len(self._keys)
            )
            self._is_hinted = False
            self._rows = {row.key: row for row in self._store.find_schedules(query).items}
            self.read_at = now
        return now + _READ_AFTER_HINT

    def _is_time(self, now: Instant) -> bool:
        if self.read_at is None or self.read_at > now:
            return True
        return now >= self.read_at + (_READ_AFTER_HINT if self._is_hinted else _READ_EVERY)

    def note_success(self, now: Instant) -> None:
        """The ticker has read the rows."""
        was_failing = self._failing_since is not None
        self._succeeded_at, self._failing_since = now, None
        if self.since is not None:
            self.since, self._ended_at = None, now
            _log.warning(
                "the schedules can be read again; their rows are fired", extra={"component": "fallback"}
            )
            self._events.publish("fallback_ended", now)
            self._changed()
        if was_failing:
            self._recovered()

    def note_failure(self, now: Instant, error: Exception) -> None:
        """A step of the ticker that began at ``now`` could not read or write the rows. After some time,
        memory replaces them."""
        if self._failing_since is None:
            self._failing_since = now
        with suppress(StoreUnavailable):
            now = max(now, self._store.now())  # the step may have waited for a lock
        if self.since is not None or now < self._failing_since + AFTER or not self.rows():
            return
        try:
            self._store.find_runs(RunQuery(limit=1, without=LARGE_FIELDS))
        except Exception:
            return  # the whole database is down: there is nowhere to write
        self.remembered, self._ended_at = {}, None
        self.since = self._failing_since if self._succeeded_at is None else self._succeeded_at + 1
        _log.error(
            "the schedules can't be read; the node fires those of its code from memory: %s",
            error,
            extra={
                "component": "fallback",
                "schedules": len(self.rows()),
                "since": write_instant(self.since),
            },
        )
        self._events.publish("fallback_started", now, error=str(error), exception=error)
        self._changed()

    def rows(self) -> list[ScheduleRecord]:
        """Return the rows that are fired from memory, as they were last read."""
        return [row for row in self._rows.values() if covers(row)]

    def rest_of(self, schedule: ScheduleRecord) -> tuple[ScheduleRecord, tuple[Skipped, ...]]:
        """Return a due row without the ticks that memory has dealt with, and the ledger rows of these."""
        remembered = self.remembered.get(schedule.key) if self.remembered else None
        return (schedule, ()) if remembered is None else rest_of(schedule, remembered)
