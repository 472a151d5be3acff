"""The ticker: turns due ticks into runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from evenbeat.errors import StoreUnavailable
from evenbeat.instants import Instant, write_instant
from evenbeat.model import Record, Schedule
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.rules.firing import DEFERRED, Active, Planned, plan_or_defer
from evenbeat.stores.base import RunQuery, Store

# Schedules fired in one transaction: 13 ms on SQLite, in which nobody else writes there.
BATCH = 500
# A schedule that this node can't plan is put off so briefly, in ms, for so many times in a row: another node
# takes it then. Longer only where no other node does, since this one would try in vain every second.
_BRIEFLY, _TIMES = 1_000, 5
# Between two looks at what is due and can't be taken.
_AGAIN = 20

_log = logging.getLogger("evenbeat.ticker")


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

    def step(self, now: Instant) -> Instant | None:
        """Fire a batch; answers when the next schedule wakes up, in the past if more is due."""
        was_unsure, self._unsure = self._unsure, True
        done = self._store.fire_due(now, BATCH, self._plan)
        self._unsure = False
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
            # Due, and not to be had: another node is firing it.
            return now + _AGAIN
        return done.next_wake

    def _plan(self, schedule: Schedule, now: Instant, active: tuple[Active, ...]) -> Planned:
        times = self._deferrals.get(schedule.key, 0)
        planned = plan_or_defer(schedule, now, active, _BRIEFLY if times < _TIMES else DEFERRED)
        if planned.deferred:
            self._deferrals[schedule.key] = times + 1
        elif times:
            del self._deferrals[schedule.key]
        # 0.5 us for each run.
        return planned._replace(runs=tuple(replace(run, fired_by=self._name) for run in planned.runs))

    def _note_deferred(self, schedule: Schedule, reason: str, now: Instant) -> None:
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

    def _report(self, fired: tuple[Planned, ...], now: Instant) -> None:
        loud = _log.isEnabledFor(logging.INFO)
        if not loud and not self._events:
            return
        for planned in fired:
            schedule = planned.schedule
            upcoming = None if schedule.next_tick is None else write_instant(schedule.next_tick)
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
