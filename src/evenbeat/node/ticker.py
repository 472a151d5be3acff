"""The ticker: turns due ticks into runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.rules.firing import DEFERRED, Active, Planned, next_start, plan_or_defer
from evenbeat.stores.base import Fired, RunQuery, Store

# Schedules fired in one transaction: 13 ms on SQLite, in which nobody else writes there.
BATCH = 500
# A schedule that this node can't plan is put off so briefly, in ms, for so many times in a row: another node
# takes it then. Longer only where no other node does, since this one would try in vain every second.
_BRIEFLY, _TIMES = 1_000, 5
# Between two looks at what is due and can't be taken.
_AGAIN = 20
# How many schedules of a fire that failed are logged by name.
_NAMED = 10

_log = logging.getLogger("evenbeat.node.ticker")


class Ticker:
    """Fires what is due, in batches. Any number of tickers may work on one store."""

    def __init__(
        self,
        store: Store,
        events: Events,
        fired: Callable[[], None] = lambda: None,
        *,
        name: str | None = None,
    ) -> None:
        self._store = store
        self._name = name
        """The node that runs say they were fired by."""
        self._events = events
        self._fired = fired
        """Called after runs were added: somebody here may execute them."""
        self._unsure = False
        """Whether the last fire failed: it may have taken effect all the same, and nobody was told of it."""
        self._deferrals: dict[tuple[str, str], int] = {}
        """How often in a row this node could not plan a schedule."""
        self._next_wake: Instant | None = None
        """When the next schedule was to wake up, as the store said last."""
        self._planning: list[tuple[str, str]] = []
        """What the present fire has planned so far."""
        self._failures = 0
        """How many fires in a row have failed."""

    def step(self, now: Instant) -> Instant | None:
        """Fire a batch; answers when the next schedule wakes up, in the past if more is due."""
        was_unsure, self._unsure = self._unsure, True
        self._planning.clear()
        try:
            done = self._store.fire_due(now, BATCH, self._plan)
        except Exception as error:
            self._report_failure(error)
            raise
        self._unsure = False
        self._failures = 0
        self._report_others(done, now)
        if was_unsure or any(planned.runs or planned.cancels for planned in done.planned):
            self._fired()
            self._store.hint()
        self._report(done.planned, now)
        for planned in done.planned:
            if planned.deferred:
                self._note_deferred(planned.schedule, planned.deferred, now)
        for tenant, name in done.quarantined:
            _log.error(
                "a schedule can't be understood and sleeps until it is written anew",
                extra={"component": "ticker", "schedule_id": name, "tenant": tenant},
            )
            self._events.tell("quarantined", now, key=(tenant, name))
        cancels = [run for planned in done.planned for run in planned.cancels]
        if cancels and self._end_waiting(cancels, now):
            return now  # their schedules woke up
        if not done.planned and done.next_wake is not None and done.next_wake <= now:
            # Another node holds what is due.
            return now + _AGAIN
        return done.next_wake

    def _plan(self, schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...]) -> Planned:
        self._planning.append(schedule.key)
        times = self._deferrals.get(schedule.key, 0)
        planned = plan_or_defer(schedule, now, active, _BRIEFLY if times < _TIMES else DEFERRED)
        if planned.deferred:
            self._deferrals[schedule.key] = times + 1
        elif times:
            del self._deferrals[schedule.key]
        # 0.5 us for each run.
        return planned._replace(runs=tuple(replace(run, fired_by=self._name) for run in planned.runs))

    def _note_deferred(self, schedule: ScheduleRecord, reason: str, now: Instant) -> None:
        """Log the reason, and leave a note for ``doctor`` that expires once the schedule is planned again."""
        _log.error(
            "this node can't plan a schedule now; another node may, or this one later",
            extra={
                "component": "ticker",
                "schedule_id": schedule.name,
                "tenant": schedule.tenant,
                "error": reason,
            },
        )
        with suppress(StoreUnavailable):
            present = self._store.get_record("deferred", schedule.tenant, schedule.name)
            note = Record(
                kind="deferred",
                tenant=schedule.tenant,
                key=schedule.name,
                body=reason,
                version=1 if present is None else present.version + 1,
                expires=now + 2 * DEFERRED,
            )
            # Of two nodes that write their notes at once, either will do.
            self._store.put_record(note, None if present is None else present.version)

    def _end_waiting(self, cancels: list[str], now: Instant) -> bool:
        """Runs that were asked to stop and wait for a retry: nobody has them in hand who could end them."""
        waiting = self._store.find_runs(RunQuery(ids=tuple(cancels), states=("queued",), limit=len(cancels)))
        # The same token from every node: who comes second repeats.
        ends = [attempts.cancel(run, now, f"overlap.{run.id}.{run.attempt}") for run in waiting.items]
        return any(self._store.settle_runs([end for end in ends if end is not None]))

    def _report_failure(self, error: Exception) -> None:
        """Name the schedules that are still due, since the store did not take their fire."""
        self._failures += 1
        # Ever more seldom, as the loop does that tries again.
        level = logging.ERROR if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        for tenant, name in self._planning[:_NAMED]:
            _log.log(
                level,
                "a schedule could not be fired, trying again: %s",
                error,
                extra={
                    "component": "ticker",
                    "schedule_id": name,
                    "tenant": tenant,
                    "failures": self._failures,
                    "schedules": len(self._planning),
                },
            )

    def _report_others(self, done: Fired, now: Instant) -> None:
        """Say what other nodes took. The store is not asked for it: most stores can't name the schedules."""
        expected, self._next_wake = self._next_wake, done.next_wake
        for tenant, name in done.lost:
            _log.debug(
                "another node took the tick, or the schedule was changed meanwhile",
                extra={"component": "ticker", "schedule_id": name, "tenant": tenant},
            )
        if done.planned or done.quarantined or done.lost or not _log.isEnabledFor(logging.DEBUG):
            return
        if done.next_wake is not None and done.next_wake <= now:
            due = write_instant(done.next_wake)
            _log.debug("another node is taking the tick", extra={"component": "ticker", "due": due})
        elif expected is not None and expected <= now:
            due = write_instant(expected)
            _log.debug(
                "another node took the tick, or the schedule was changed meanwhile",
                extra={"component": "ticker", "due": due},
            )

    def _report(self, fired: tuple[Planned, ...], now: Instant) -> None:
        loud = _log.isEnabledFor(logging.INFO)
        if not loud and not self._events:
            return
        for planned in fired:
            schedule = planned.schedule
            start = next_start(schedule)
            upcoming = None if start is None else write_instant(start)
            for run in planned.runs:
                if loud:
                    _log.info("fired", extra={**run_fields(run), "component": "ticker", "next_run": upcoming})
                self._events.tell("fired", now, run=run, schedule=schedule)
            for skipped in planned.skipped:
                fields = {"schedule_id": schedule.name, "tenant": schedule.tenant, "reason": skipped.reason}
                if loud:
                    _log.info("skipped", extra={**fields, "component": "ticker", "count": skipped.count})
                self._events.tell(
                    "skipped", now, schedule=schedule, reason=skipped.reason, count=skipped.count
                )
