"""The code ticker: fires schedules that are planned in memory. No row keeps a tick single; its run's id does.

These are the schedules without a row (``durable=False``).
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, get_args

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.node.adding import add_in_parts
from evenbeat.node.counting import Counting
from evenbeat.node.deferral_notes import delete_note
from evenbeat.node.fallback import Fallback
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules.attempts import is_expired
from evenbeat.rules.code_only import (
    CodeSchedule,
    CodeTick,
    added_before,
    fired_from_code,
    first_of_late,
    grace_of,
    in_memory,
    run_of,
    trigger_in_memory,
)
from evenbeat.rules.firing import Planned
from evenbeat.rules.refusals import wait_of
from evenbeat.rules.ticks import spread_delay
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store
from evenbeat.timeline import RebuildPolicy, Timeline

BATCH = 500
# Rows that could take the place of schedules in memory are read again so many ms after a hint.
_READ_AFTER_HINT = 5_000
# Of so many runs, the newest tick is looked for; the others were enqueued by hand.
_NEWEST = 50
# How far the store's clock may be ahead of this node's estimate of it, in ms.
_CLOCKS_APART = 10_000

Key = tuple[str, str]

_log = logging.getLogger("evenbeat.node.code_ticker")


class _Planned(NamedTuple):
    """A schedule that is planned in memory now."""

    row: ScheduleRecord
    since: Instant
    """Ticks before this instant are dealt with, or wait in the list of pending ones."""


class CodeTicker:
    """Fires schedules that are planned in memory. Any number of nodes may plan the same ones."""

    def __init__(
        self,
        store: Store,
        events: Events,
        fallback: Fallback,
        wanted: Iterable[ScheduleRecord] = (),
        *,
        policy: RebuildPolicy | None = None,
        wake_worker: Callable[[], None] = lambda: None,
        name: str | None = None,
        counting: Counting | None = None,
    ) -> None:
        self._store = store
        self._events = events
        self._fallback = fallback
        self._wanted = {row.key: row for row in wanted}
        self._wake_worker = wake_worker
        self._name = name
        self._counting = counting or Counting()
        self._timeline: Timeline[Key] = Timeline(policy)
        self._planned: dict[Key, _Planned] = {}
        self._known: dict[Key, _Planned] = {}
        """The schedules as they were last planned, also those that have a row by now."""
        self._made_at: dict[Key, Instant] = {}
        """When the rows that take the place of schedules were created."""
        self._pending: list[CodeTick] = []
        """Ticks whose runs are not added yet, the earliest first."""
        self._noted: set[Key] = set()
        """Schedules with a note that the database refuses their runs."""
        self._read_at: Instant | None = None
        self._retry_at: Instant = 0
        """Rows that could not be read are not read again before."""
        self._is_hinted = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the schedules without a row."""
        return tuple(sorted(name for _, name in self._wanted))

    def add(self, wanted: ScheduleRecord) -> None:
        """Plan one more schedule without a row."""
        self._wanted[wanted.key] = wanted
        self._read_at = None

    def hint(self) -> None:
        """Something in the store may have changed."""
        self._is_hinted = True

    def step(self, now: Instant) -> Instant | None:
        """Fire what is due; return when something is due next, None if nothing is planned."""
        if not self._wanted:
            return None
        self._choose(now)
        self._collect(now)
        self._fire(now)
        return self._next(now)

    def _choose(self, now: Instant, *, at_once: bool = False) -> None:
        """Choose what to plan: the schedules without a row in the store. Rows are read again if it is
        time, or ``at_once``; not while they can't be used."""
        period = self._timeline.policy.period
        wait = _READ_AFTER_HINT if self._is_hinted else period
        is_fresh = self._read_at is not None and self._read_at <= now < self._read_at + wait
        if self._read_at == now if at_once else is_fresh:
            return
        is_failing = self._fallback.is_failing or self._retry_at > now >= self._retry_at - _READ_AFTER_HINT
        if self._read_at is not None and is_failing:
            return
        chosen = self._without_rows(now)
        self._read_at, self._is_hinted = now, False
        known = {key: _identity(each.row) for key, each in self._planned.items()}
        self._known |= chosen
        self._planned = chosen
        # Ticks from before a row was made are not the row's: they fire when their spread lets them.
        self._pending = [
            each
            for each in self._pending
            if each.key in chosen or each.tick < self._made_at.get(each.key, each.tick)
        ]
        if known != {key: _identity(each.row) for key, each in chosen.items()}:
            self._timeline.schedule(
                (key, trigger_in_memory(each.row)) for key, each in sorted(chosen.items())
            )

    def _without_rows(self, now: Instant) -> dict[Key, _Planned]:
        """Return the schedules without a row, except those of which the store has one nevertheless."""
        keys = tuple(sorted(self._wanted))
        query = ScheduleQuery(keys=keys, states=get_args(ScheduleState), limit=len(keys))
        try:
            rows = {row.key: row for row in self._store.find_schedules(query).items}
        except Exception:
            if self._read_at is None:
                raise  # whether there are rows is not known yet
            self._retry_at = self._store.now() + _READ_AFTER_HINT
            return self._planned
        self._made_at = {key: row.created_at for key, row in rows.items() if row.state != "deleted"}
        chosen: dict[Key, _Planned] = {}
        for key, wanted in self._wanted.items():
            code = in_memory(wanted, rows.get(key))
            if code is None:
                continue
            before = self._planned.get(key)
            if before is None or before.row.generation != code.row.generation:
                begin = self._first_tick(code, now)
            else:
                begin = before.since
            chosen[key] = _Planned(code.row, begin)
        return chosen

    def _first_tick(self, code: CodeSchedule, now: Instant) -> Instant:
        """Return from when on ticks are due: after the newest one that has a run, since all nodes have missed
        those that follow. A new schedule has missed nothing, unless its row was deleted just now."""
        query = RunQuery(tenant=code.row.tenant, schedule=code.row.name, without=LARGE_FIELDS, limit=_NEWEST)
        newest = self._store.find_runs(query).items
        ticks = [run.tick for run in newest if run.cause == "tick" and run.tick is not None]
        if ticks:
            return max(code.since, max(ticks) + 1)
        edge = now - grace_of(code.row)
        if newest:  # of an earlier row, by hand
            return max(code.since, edge)
        return code.since if code.since >= edge else now + 1

    def _collect(self, now: Instant) -> None:
        """Move the ticks that have come from the timeline to the list of pending ones."""
        for key, each in self._planned.items():
            begin = first_of_late(each.row, each.since, now)
            if begin > each.since:
                _log.warning(
                    "ticks were missed and are too late to be recorded one by one",
                    extra={"component": "code ticker", "schedule_id": key[1], "tenant": key[0]},
                )
                self._planned[key] = each._replace(since=begin)
        earliest = min((each.since for each in self._planned.values()), default=now)
        self._timeline.step(now, earliest)
        for tick, key in self._timeline.query(earliest, now + 1):
            planned = self._planned.get(key)
            if planned is not None and tick >= planned.since:
                insort(self._pending, CodeTick(tick + spread_delay(planned.row), key, tick))
        for key, each in self._planned.items():
            self._planned[key] = each._replace(since=max(each.since, now + 1))

    def _fire(self, now: Instant) -> None:
        """Add the runs of the pending ticks that have come."""
        if self._pending and self._pending[0].start <= now:
            # A row that was made, or deleted, since the last look decides which ids the ticks have.
            self._choose(now, at_once=True)
        while self._pending and self._pending[0].start <= now:
            batch = [each for each in self._pending[:BATCH] if each.start <= now]
            runs = [self._run(each, now) for each in batch]
            new, is_complete = self._add(runs, now)
            if is_complete:
                # Only now: after an error, the next step adds them again, without effect if they are there.
                del self._pending[: len(batch)]
                self._set_aside(runs, new, now)
            self._report([run for run, is_new in zip(runs, new, strict=True) if is_new], now)
            if not is_complete:
                return
            self._counting.count("duplicates", "tick", number=new.count(False))

    def _add(self, runs: list[RunRecord], now: Instant) -> tuple[list[bool | None], bool]:
        """Add runs; return which are new (None if the database refuses one), and whether the others exist.

        If this process was stopped since ``now``, the store may have refused them: the next step then records
        the ticks as too late.
        """
        ends = [added_before(run) for run in runs if not is_expired(run, now)]
        end = min(ends, default=None)
        new = add_in_parts(self._store, runs, "code ticker", self._counting, end)
        return new, end is None or False not in new or self._store.now() + _CLOCKS_APART < end

    def _set_aside(self, runs: Sequence[RunRecord], new: Sequence[bool | None], now: Instant) -> None:
        """Try the refused runs again later: the first time soon, then less and less often."""
        for run, is_new in zip(runs, new, strict=True):
            key = (run.tenant, run.schedule or "")
            if is_new and key in self._noted:
                self._noted.remove(key)
                delete_note(self._store, key)
            if is_new is None and run.tick is not None:
                self._noted.add(key)
                if run.tick >= first_of_late(self._known[key].row, run.tick, now):
                    insort(self._pending, CodeTick(now + wait_of(run.tick, now), key, run.tick))

    def _run(self, due: CodeTick, now: Instant) -> RunRecord:
        run = run_of(self._known[due.key].row, due.tick, now)
        return replace(run, fired_by=fired_from_code(self._name))

    def _report(self, runs: list[RunRecord], now: Instant) -> None:
        if not runs:
            return
        self._wake_worker()
        self._store.hint()
        rows = [self._known[run.tenant, run.schedule or ""].row for run in runs]
        self._counting.count_fired([Planned(row, (run,)) for row, run in zip(rows, runs, strict=True)], now)
        for row, run in zip(rows, runs, strict=True):
            _log.info("fired", extra={**run_fields(run), "component": "code ticker"})
            self._events.publish("fired", now, run=run, schedule=row)

    def _next(self, now: Instant) -> Instant:
        """Return when to step again: for the next tick, or to build the timeline again."""
        coming = [now + self._timeline.policy.period]
        if self._pending:
            coming.append(self._pending[0].start)
        upcoming = self._timeline.peek(now + 1)
        if upcoming is not None:
            coming.append(upcoming[0])
        return min(coming)


def _identity(row: ScheduleRecord) -> tuple[str, str, Instant, int]:
    """Return what makes the ticks of two rows the same."""
    return row.trigger, row.calendars, row.anchor, row.generation
