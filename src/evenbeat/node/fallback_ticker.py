"""The fallback ticker: fires the schedules of the code from memory while their rows can't be used."""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import ACTIVE_STATES, RunRecord, ScheduleRecord
from evenbeat.node.adding import add_in_parts
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules.auditing import ENTRY, key_range
from evenbeat.rules.fallback import (
    Key,
    Remembered,
    added_before,
    after_runs,
    changed_by_hand,
    remember,
    run_from_memory,
    without_late,
)
from evenbeat.rules.firing import Active, Planned, needs_active, plan_or_defer
from evenbeat.rules.refusals import back_off
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, Store

BATCH = 500
# Of the runs of a schedule, these are searched for the newest tick; others were enqueued by hand.
_NEWEST = 50
# A change may be written this much later than its entry says: no transaction lasts longer.
_LONGEST_WRITE = 60_000
# A tick that waits for a run is planned again after this time: the end of the run wakes only the row.
_WAIT_CHECK = 1_000
_PERIOD = 30_000
# How far the store's clock may be ahead of this node's estimate of it, in ms.
_CLOCKS_APART = 10_000

_log = logging.getLogger("evenbeat.node.fallback_ticker")


class FallbackTicker:
    """Fires schedules from memory, by the rules by which their rows are fired. Any number of nodes may."""

    def __init__(
        self,
        store: Store,
        events: Events,
        fallback: Fallback,
        *,
        wake_worker: Callable[[], None] = lambda: None,
        name: str | None = None,
        counting: Counting | None = None,
    ) -> None:
        self._store = store
        self._events = events
        self._fallback = fallback
        self._wake_worker = wake_worker
        self._name = name
        self._counting = counting or Counting()
        self._planned_for: Instant | None = None
        """``since`` of the fallback that the schedules are planned for."""
        self._audited_to: Instant = 0
        self._left: set[Key] = set()
        """Schedules that are left to their rows: users have changed them since the rows were read."""
        self._fresh: set[Key] = set()
        """Schedules that this fallback has not planned yet."""

    def step(self, now: Instant) -> Instant | None:
        """Fire what is due; return when something is due next, None without a fallback."""
        since = self._fallback.since
        if since is None:
            self._planned_for = None
            return None
        if self._planned_for != since:
            self._begin(since)
        known = self._fallback.remembered
        due = [key for key, each in known.items() if _is_due(each, now) and key not in self._left]
        if due:
            self._read_changes(now)
            self._fire([key for key in due if key not in self._left], now)
        coming = [
            each.row.wake_at
            for key, each in known.items()
            if each.row.wake_at is not None and key not in self._left
        ]
        return min((*coming, now + _PERIOD))

    def _begin(self, since: Instant) -> None:
        read_at = self._fallback.read_at
        self._fallback.remembered = {row.key: remember(row, since) for row in self._fallback.rows()}
        self._audited_to = since if read_at is None else min(since, read_at)
        self._left = set()
        self._planned_for = since
        self._fresh = set(self._fallback.remembered)

    def _read_changes(self, now: Instant) -> None:
        """Find out which schedules users have changed since their rows were read, by the audit."""
        rows = self._fallback.rows()
        for tenant in sorted({row.tenant for row in rows}):
            _, end = key_range("", self._audited_to - _LONGEST_WRITE, None)
            entries = self._store.find_records(ENTRY, tenant, end=end)
            if entries:
                self._left |= changed_by_hand([row for row in rows if row.tenant == tenant], entries)
        self._audited_to = max(self._audited_to, now)

    def _fire(self, due: list[Key], now: Instant) -> None:
        known = self._fallback.remembered
        for at in range(0, len(due), BATCH):
            plans: dict[Key, tuple[Remembered, Planned]] = {}
            for key in due[at : at + BATCH]:
                present = self._present(key, now)
                if (planned := self._plan(present.row, now)) is None:
                    self._left.add(key)
                else:
                    plans[key] = (present, planned)
            runs = [run_from_memory(run, self._name) for _, planned in plans.values() for run in planned.runs]
            end = min((added_before(run) for run in runs), default=now)
            new = add_in_parts(self._store, runs, "fallback ticker", self._counting, end)
            if False in new and self._store.now() + _CLOCKS_APART >= end:
                # The store may have refused them, since this process was stopped: the next step plans again.
                self._report([run for run, is_new in zip(runs, new, strict=True) if is_new], now)
                return
            answers = zip(runs, new, strict=True)
            refused = {(run.tenant, run.schedule) for run, is_new in answers if is_new is None}
            # Only now: after an error, the next step adds them again, without effect if they are there.
            for key, (present, planned) in plans.items():
                waits = key in refused
                waiting = present._replace(row=back_off(present.row, now, "").schedule) if waits else None
                known[key] = present.after(planned) if waiting is None else waiting
            self._report([run for run, is_new in zip(runs, new, strict=True) if is_new], now)
            self._counting.count("duplicates", "tick", number=new.count(False))

    def _present(self, key: Key, now: Instant) -> Remembered:
        """Return a due schedule without ticks that are not to be fired from memory."""
        found = without_late(self._fallback.remembered[key], now)
        if key in self._fresh:
            query = RunQuery(tenant=key[0], schedule=key[1], without=LARGE_FIELDS, limit=_NEWEST)
            found = after_runs(found, self._store.find_runs(query).items)
            self._fresh.discard(key)
            self._fallback.remembered[key] = found
        return found

    def _plan(self, row: ScheduleRecord, now: Instant) -> Planned | None:
        """Plan a schedule; None if its row can't be planned."""
        active = self._active(row)
        try:
            planned = plan_or_defer(row, now, active)
        except Exception as error:
            fields = {"component": "fallback ticker", "schedule_id": row.name, "tenant": row.tenant}
            _log.error("a schedule can't be fired from memory: %s", error, exc_info=error, extra=fields)
            return None
        if active and planned.schedule.next_tick == row.next_tick:
            return planned._replace(schedule=replace(planned.schedule, wake_at=now + _WAIT_CHECK))
        return planned

    def _active(self, row: ScheduleRecord) -> tuple[Active, ...]:
        """Read the active runs of a schedule that bounds them. Without locks: others may start meanwhile."""
        if not needs_active(row):
            return ()
        query = RunQuery(
            tenant=row.tenant,
            schedule=row.name,
            states=tuple(sorted(ACTIVE_STATES)),
            without=LARGE_FIELDS,
            limit=max(1, row.max_concurrent or 1),
        )
        found = self._store.find_runs(query).items
        return tuple(Active(run.id, run.state, run.cancel_requested) for run in found)

    def _report(self, runs: list[RunRecord], now: Instant) -> None:
        if not runs:
            return
        self._wake_worker()
        self._store.hint()
        rows = [self._fallback.remembered[run.tenant, run.schedule or ""].row for run in runs]
        self._counting.count_fired([Planned(row, (run,)) for row, run in zip(rows, runs, strict=True)], now)
        for row, run in zip(rows, runs, strict=True):
            _log.info("fired", extra={**run_fields(run), "component": "fallback ticker"})
            self._events.publish("fired", now, run=run, schedule=row)


def _is_due(remembered: Remembered, now: Instant) -> bool:
    wake_at = remembered.row.wake_at
    return wake_at is not None and wake_at <= now
