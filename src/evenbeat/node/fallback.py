"""The fallback: while the rows of schedules can't be read, a node fires those of its code from memory.

It covers schedules that the code declares, and that were last seen active. Their runs have the ids that their
rows would give them, so a tick that another node fires from its row is not fired twice. Where the whole
database is down, there is nowhere to write a run, and nothing begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import get_args

from msgspec.structs import replace

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import ACTIVE_STATES, ScheduleRecord, ScheduleState
from evenbeat.observe.events import Events
from evenbeat.rules.dependencies import needs_facts
from evenbeat.rules.firing import needs_active
from evenbeat.rules.ticks import own_trigger, trigger_of
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store
from evenbeat.triggers import At

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

    A duty of the node calls ``step``, the ticker reports how its steps end, and the code ticker fires
    ``rows`` while ``since`` is set.
    """

    def __init__(
        self,
        store: Store,
        events: Events,
        keys: Iterable[Key] = (),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._events = events
        self._keys = set(keys)
        self._changed = changed
        """Called when a fallback begins or ends."""
        self._rows: dict[Key, ScheduleRecord] = {}
        self._read_at: Instant | None = None
        self._is_hinted = False
        self._succeeded_at: Instant | None = None
        self._failing_since: Instant | None = None
        self._fired: dict[Key, set[Instant]] = {}
        self._ended_at: Instant | None = None
        self.since: Instant | None = None
        """Ticks from this instant on are fired from memory; None while the rows are fired."""

    def add(self, key: Key) -> None:
        """Cover a schedule that was declared while the node runs."""
        self._keys.add(key)
        self._read_at = None

    def hint(self) -> None:
        """Something in the store may have changed."""
        self._is_hinted = True

    def step(self, now: Instant) -> Instant:
        """Read the rows again if it is time. Without declared schedules, nothing is read."""
        if self._ended_at is not None and now > self._ended_at + _REMEMBERED:
            self._fired, self._ended_at = {}, None
        if self._keys and self._failing_since is None and self._is_time(now):
            query = ScheduleQuery(
                keys=tuple(sorted(self._keys)), states=get_args(ScheduleState), limit=len(self._keys)
            )
            self._rows = {row.key: row for row in self._store.find_schedules(query).items}
            self._read_at, self._is_hinted = now, False
        return now + _READ_AFTER_HINT

    def _is_time(self, now: Instant) -> bool:
        if self._read_at is None or self._read_at > now:
            return True
        return now >= self._read_at + (_READ_AFTER_HINT if self._is_hinted else _READ_EVERY)

    def note_success(self, now: Instant) -> None:
        """The ticker has read the rows."""
        self._succeeded_at, self._failing_since = now, None
        if self.since is not None:
            self.since, self._ended_at = None, now
            _log.warning(
                "the schedules can be read again; their rows are fired", extra={"component": "fallback"}
            )
            self._events.publish("fallback_ended", now)
            self._changed()

    def note_failure(self, now: Instant, error: Exception) -> None:
        """The ticker could not read or write the rows. After some time, memory replaces them."""
        if self._failing_since is None:
            self._failing_since = now
        if self.since is not None or now < self._failing_since + AFTER or not self.rows():
            return
        try:
            self._store.find_runs(RunQuery(limit=1, without=LARGE_FIELDS))
        except Exception:
            return  # the whole database is down: there is nowhere to write
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
        """Return the rows that were last seen active."""
        return [
            row
            for row in self._rows.values()
            # Those that wait for other schedules, and a tick that a user moved, are left to their rows.
            if row.state == "active" and not row.damage and not needs_facts(row) and not _is_moved(row)
        ]

    def may_fire(self, row: ScheduleRecord, chosen: int) -> bool:
        """Return whether the row's policies allow another run beside those that are active and those that
        are chosen, as far as this can be known without locking the row."""
        if not needs_active(row):
            return True
        most = 1 if row.overlap != "allow" else row.max_concurrent or 1
        if chosen >= most:
            return False
        query = RunQuery(
            tenant=row.tenant,
            schedule=row.name,
            states=tuple(sorted(ACTIVE_STATES)),
            without=LARGE_FIELDS,
            limit=most,
        )
        return len(self._store.find_runs(query).items) + chosen < most

    def note_fired(self, key: Key, tick: Instant) -> None:
        """A tick has a run by now."""
        self._fired.setdefault(key, set()).add(tick)

    def fired(self, key: Key) -> frozenset[Instant]:
        """Return the ticks of a schedule that were fired from memory."""
        return frozenset(self._fired.get(key, ()))

    def without_fired(self, schedule: ScheduleRecord) -> ScheduleRecord:
        """Return a due row with the first tick that was not fired from memory as its next one.

        The plan of a row counts missed ticks by its catch-up policy, and these were not missed.
        """
        fired, tick = self._fired.get(schedule.key), schedule.next_tick
        if not fired or tick is None or tick not in fired or schedule.state != "active":
            return schedule
        trigger = trigger_of(schedule)
        following: Instant | None = tick
        while following is not None and following in fired:
            following = trigger.next_ms(following)
        if following is None:
            return schedule  # the last tick: the row fires it again, without effect, and is finished
        return replace(schedule, next_tick=following, moved=None, fire_seq=schedule.fire_seq + 1)


def _is_moved(row: ScheduleRecord) -> bool:
    """Return whether a user moved the next tick to an earlier time, or the only one."""
    trigger = own_trigger(row)
    return row.moved is not None or (isinstance(trigger, At) and row.next_tick != trigger.instant)
