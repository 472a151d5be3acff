"""The code ticker: fires schedules that are planned in memory. No row keeps a tick single; its run's id does.

These are schedules without a row (``durable=False``), and during a fallback those whose rows can't be read.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple, get_args

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, ScheduleState
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules.code_only import (
    CodeSchedule,
    CodeTick,
    fired_from_memory,
    first_of_late,
    grace_of,
    in_memory,
    is_late,
    run_of,
    trigger_in_memory,
)
from evenbeat.rules.firing import Planned
from evenbeat.rules.ticks import spread_delay
from evenbeat.stores.base import LARGE_FIELDS, RunQuery, ScheduleQuery, Store
from evenbeat.timeline import RebuildPolicy, Timeline

BATCH = 500
# Rows that could take the place of schedules in memory are read again so many ms after a hint.
_READ_AFTER_HINT = 5_000
# Of so many runs, the newest tick is looked for; the others were enqueued by hand.
_NEWEST = 50

Key = tuple[str, str]

_log = logging.getLogger("evenbeat.node.code_ticker")


class _Planned(NamedTuple):
    """A schedule that is planned in memory now."""

    row: ScheduleRecord
    since: Instant
    """Ticks before this instant are dealt with, or wait in the list of pending ones."""
    is_fallback: bool


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
        retention: int,
        wake_worker: Callable[[], None] = lambda: None,
        name: str | None = None,
        counting: Counting | None = None,
    ) -> None:
        self._store = store
        self._events = events
        self._fallback = fallback
        self._wanted = {row.key: row for row in wanted}
        self._retention = retention
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
        self._read_at: Instant | None = None
        self._is_hinted = False
        self._planned_for: Instant | None = None
        """``since`` of the fallback for which the schedules were last chosen."""

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
        if not self._wanted and self._fallback.since is None and not self._planned:
            return None
        self._choose(now)
        self._collect(now)
        self._fire(now)
        return self._next(now)

    def _choose(self, now: Instant, *, at_once: bool = False) -> None:
        """Choose what to plan: schedules without a row, and in a fallback those whose rows can't be read.

        Rows are read again if it is time, or ``at_once``.
        """
        since = self._fallback.since
        is_changed = self._planned_for != since
        period = self._timeline.policy.period
        wait = _READ_AFTER_HINT if self._is_hinted else period
        is_fresh = self._read_at is not None and self._read_at <= now < self._read_at + wait
        if not is_changed and (self._read_at == now if at_once else is_fresh):
            return
        chosen = self._kept() if since is not None else self._without_rows(now)
        if since is not None:
            for row in self._fallback.rows():
                before = self._planned.get(row.key)
                begin = max(since, row.next_tick or since) if before is None else before.since
                chosen.setdefault(row.key, _Planned(row, begin, True))
        self._read_at, self._is_hinted, self._planned_for = now, False, since
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

    def _kept(self) -> dict[Key, _Planned]:
        """Return the schedules without a row as they were last planned: rows can't be read now."""
        return {key: each for key, each in self._planned.items() if not each.is_fallback}

    def _without_rows(self, now: Instant) -> dict[Key, _Planned]:
        """Return the schedules without a row, except those of which the store has one nevertheless."""
        if not self._wanted:
            return {}
        keys = tuple(sorted(self._wanted))
        query = ScheduleQuery(keys=keys, states=get_args(ScheduleState), limit=len(keys))
        try:
            rows = {row.key: row for row in self._store.find_schedules(query).items}
        except Exception:
            if self._read_at is None:
                raise  # whether there are rows is not known yet
            return self._kept()
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
            chosen[key] = _Planned(code.row, begin, False)
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
        if self._pending and self._pending[0].start <= now and self._fallback.since is None:
            # A row that was made, or deleted, since the last look decides which ids the ticks have.
            self._choose(now, at_once=True)
        while self._pending and self._pending[0].start <= now:
            batch = [each for each in self._pending[:BATCH] if each.start <= now]
            chosen: Counter[Key] = Counter()
            runs = []
            for each in batch:
                run = self._run(each, now, chosen[each.key])
                if run is not None:
                    runs.append(run)
                    chosen[each.key] += 1
            new = self._store.add_runs(runs) if runs else []
            # Only now: after an error, the next step adds them again, without effect if they are there.
            del self._pending[: len(batch)]
            self._report([run for run, is_new in zip(runs, new, strict=True) if is_new], now)
            self._counting.count("duplicates", "tick", number=new.count(False))
            for run in runs:
                if self._is_fallback(run) and run.tick is not None:
                    self._fallback.note_fired((run.tenant, run.schedule or ""), run.tick)

    def _run(self, due: CodeTick, now: Instant, chosen: int) -> RunRecord | None:
        """Return the run of a tick; None if it is left to the schedule's row. ``chosen`` runs of the schedule
        are added with it."""
        each = self._known[due.key]
        run = run_of(each.row, due.tick, now, self._retention)
        if not each.is_fallback:
            return replace(run, fired_by=self._name)
        if is_late(each.row, due.tick, now) or not self._fallback.may_fire(each.row, chosen):
            return None
        return replace(run, fired_by=fired_from_memory(self._name))

    def _is_fallback(self, run: RunRecord) -> bool:
        return self._known[run.tenant, run.schedule or ""].is_fallback

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
