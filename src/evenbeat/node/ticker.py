"""The ticker: turns due ticks into runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from evenbeat.core.instants import Instant, write_instant
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.counting import Counting
from evenbeat.node.deferral_notes import write_note
from evenbeat.node.fallback import Fallback
from evenbeat.node.flows import End, FlowSettling
from evenbeat.node.signals import Signals
from evenbeat.observe.events import Events
from evenbeat.observe.logs import run_fields
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import NO_FACTS, Facts
from evenbeat.rules.firing import DEFERRED, Active, Planned, plan_or_defer
from evenbeat.rules.flow_parts import is_begun
from evenbeat.rules.refusals import NOTE, is_refusal, may_have_note
from evenbeat.rules.ticks import next_start
from evenbeat.stores.base import Fired, RunQuery, Store

# The schedules that are fired in one transaction: it takes 13 ms on SQLite, and blocks all other writers.
BATCH = 500
# A schedule that this node can't plan is deferred by this many ms, this many times in a row, so that another
# node takes it soon. After that it is deferred for longer: no other node can plan it either.
_SHORT_DEFERRAL, _SHORT_DEFERRALS = 1_000, 5
# Milliseconds until the next step where schedules are due and another node holds them.
_RETRY_FIRE = 20
# How many schedules of a fire that failed are logged by name.
_MOST_LOGGED = 10

_log = logging.getLogger("evenbeat.node.ticker")


class Ticker:
    """Fires due schedules, in batches. Any number of tickers may work on one store."""

    def __init__(
        self,
        store: Store,
        events: Events,
        wake_worker: Callable[[], None] = lambda: None,
        *,
        name: str | None = None,
        counting: Counting | None = None,
        signals: Signals | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self._signals = Signals() if signals is None else signals
        self._fallback = Fallback(store, events) if fallback is None else fallback
        self._store = store
        self._flows = FlowSettling(store, "ticker", signals=self._signals)
        self._counting = counting or Counting()
        self._name = name
        """The node's name: ``fired_by`` of the runs that it adds."""
        self._events = events
        self._wake_worker = wake_worker
        """Called after runs were added: the worker of this node may execute them."""
        self._unsure = False
        """Whether the last fire failed: it may have taken effect nevertheless, and no worker was woken."""
        self._deferrals: dict[tuple[str, str], int] = {}
        """How often in a row this node could not plan a schedule."""
        self._noted: dict[tuple[str, str], None] = {}
        """The schedules on which this node wrote a note, and which it has not fired since."""
        self._next_wake: Instant | None = None
        """When the next schedule wakes up, by the last answer of the store."""
        self._planning: list[tuple[str, str]] = []
        """The schedules that the present fire has planned so far."""
        self._failures = 0
        """How many fires in a row have failed."""

    def step(self, now: Instant) -> Instant | None:
        """Fire a batch; return when the next schedule wakes up, in the past if more is due."""
        was_unsure, self._unsure = self._unsure, True
        self._planning.clear()
        try:
            done = self._store.fire_due(now, BATCH, self._plan)
        except Exception as error:
            self._counting.count("lock_failures", "schedules", "error")
            self._report_failure(error)
            self._fallback.note_failure(now, error)
            raise
        self._fallback.note_success(now)
        self._unsure = False
        self._failures = 0
        self._counting.count_fired(done.planned, now)
        self._counting.count("duplicates", "tick", number=len(done.lost))
        self._signals.note_written()
        self._report_others(done, now)
        if was_unsure or any(planned.runs or planned.cancels for planned in done.planned):
            self._wake_worker()
            self._store.hint()
        self._report(done.planned, now)
        for planned in done.planned:
            if planned.deferred:
                self._note_deferred(planned.schedule, planned.deferred, now)
            elif self._noted:
                self._noted.pop(planned.schedule.key, None)
        for tenant, name in done.quarantined:
            _log.error(
                "a schedule can't be read; it does not fire until it is written again",
                extra={"component": "ticker", "schedule_id": name, "tenant": tenant},
            )
            self._events.publish("quarantined", now, key=(tenant, name))
        cancels = [run for planned in done.planned for run in planned.cancels]
        if cancels and self._end_waiting(cancels, now):
            return now  # the schedules of these runs have woken up
        if not done.planned and done.next_wake is not None and done.next_wake <= now:
            # Another node holds what is due.
            self._counting.count("lock_failures", "schedules", "held")
            return now + _RETRY_FIRE
        return done.next_wake

    def _plan(
        self, schedule: ScheduleRecord, now: Instant, active: tuple[Active, ...], facts: Facts = NO_FACTS
    ) -> Planned:
        self._planning.append(schedule.key)
        times = self._deferrals.get(schedule.key, 0)
        defer_by = _SHORT_DEFERRAL if times < _SHORT_DEFERRALS else DEFERRED
        rest, skipped = self._fallback.rest_of(schedule)
        planned = plan_or_defer(rest, now, active, defer_by, self._complete, facts)
        if skipped:
            planned = planned._replace(skipped=skipped + planned.skipped)
        if planned.deferred:
            self._deferrals[schedule.key] = times + 1
            return planned
        if times:
            del self._deferrals[schedule.key]
        if may_have_note(schedule) or schedule.key in self._noted:
            # Whichever node fires it again, the note goes in the same step.
            planned = planned._replace(spent=(*planned.spent, (NOTE, *schedule.key)))
        return planned

    def _complete(self, planned: Planned) -> Planned:
        """Return the plan with the node's name in its runs, and with the signals that alert rules ask for."""
        # This costs 0.5 us per run.
        planned = planned._replace(runs=tuple(replace(run, fired_by=self._name) for run in planned.runs))
        return self._signals.with_missed(planned) if self._signals and planned.skipped else planned

    def _note_deferred(self, schedule: ScheduleRecord, reason: str, now: Instant) -> None:
        """Log the reason, and write a note, which expires unless it is written again."""
        self._noted[schedule.key] = None
        message = "this node can't plan a schedule now; other nodes try, and this node retries later"
        if is_refusal(reason):
            message = "the database refuses what a schedule writes; it alone waits, and is tried again"
            self._counting.count("lock_failures", "schedules", "refused")
        _log.error(
            message,
            extra={
                "component": "ticker",
                "schedule_id": schedule.name,
                "tenant": schedule.tenant,
                "error": reason,
            },
        )
        write_note(self._store, schedule.key, reason, now)

    def _end_waiting(self, cancels: list[str], now: Instant) -> bool:
        """Cancel those of the runs that wait for a retry, and flows: no worker holds them and could end
        them."""
        query = RunQuery(ids=tuple(cancels), states=("queued", "running"), limit=len(cancels))
        found = [run for run in self._store.find_runs(query).items if run.state == "queued" or is_begun(run)]
        # Every node uses the same token: the second one repeats the transition of the first.
        ends = [(run, attempts.cancel(run, now, f"overlap.{run.id}.{run.attempt}")) for run in found]
        wanted = [End(run, end) for run, end in ends if end is not None]
        return bool(wanted) and any(self._flows.settle(wanted, now).answers)

    def _report_failure(self, error: Exception) -> None:
        """Log the schedules that are still due because the store did not accept the fire."""
        self._failures += 1
        # Less and less often, as the loop does that retries.
        level = logging.ERROR if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        for tenant, name in self._planning[:_MOST_LOGGED]:
            _log.log(
                level,
                "a schedule could not be fired, retrying: %s",
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
        """Log, at DEBUG, ticks that other nodes fired, as far as they are known without another query."""
        expected, self._next_wake = self._next_wake, done.next_wake
        for tenant, name in done.lost:
            _log.debug(
                "another node fired the tick, or the schedule was changed meanwhile",
                extra={"component": "ticker", "schedule_id": name, "tenant": tenant},
            )
        if done.planned or done.quarantined or done.lost or not _log.isEnabledFor(logging.DEBUG):
            return
        if done.next_wake is not None and done.next_wake <= now:
            due = write_instant(done.next_wake)
            _log.debug("another node is firing the tick", extra={"component": "ticker", "due": due})
        elif expected is not None and expected <= now:
            due = write_instant(expected)
            _log.debug(
                "another node fired the tick, or the schedule was changed meanwhile",
                extra={"component": "ticker", "due": due},
            )

    def _report(self, fired: tuple[Planned, ...], now: Instant) -> None:
        is_logged = _log.isEnabledFor(logging.INFO)
        if not is_logged and not self._events:
            return
        for planned in fired:
            schedule = planned.schedule
            start = next_start(schedule)
            upcoming = None if start is None else write_instant(start)
            for run in planned.runs:
                if is_logged:
                    _log.info("fired", extra={**run_fields(run), "component": "ticker", "next_run": upcoming})
                self._events.publish("fired", now, run=run, schedule=schedule)
            for skipped in planned.skipped:
                fields = {"schedule_id": schedule.name, "tenant": schedule.tenant, "reason": skipped.reason}
                if is_logged:
                    _log.info("skipped", extra={**fields, "component": "ticker", "count": skipped.count})
                self._events.publish(
                    "skipped", now, schedule=schedule, reason=skipped.reason, count=skipped.count
                )
