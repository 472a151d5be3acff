"""Travel in virtual time: the real ticker and worker, stepped at each instant at which something is due."""

from __future__ import annotations

from evenbeat.alerts.service import AlertService
from evenbeat.core.instants import Instant, write_instant
from evenbeat.errors import EvenbeatError
from evenbeat.executors.inline import InlineExecutor
from evenbeat.node.backfills import Backfiller
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.flow_checks import FlowWatch
from evenbeat.node.flow_work import FlowReports
from evenbeat.node.lanes import Lane
from evenbeat.node.rollups import Rollups
from evenbeat.node.ticker import Ticker
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Events
from evenbeat.rules.alert_records import INCIDENT
from evenbeat.tasks.task import Tasks
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.virtual_store import VirtualStore

LIMIT = 20_000
"""The default limit of runs in one ``travel``: some seconds of work."""


class TravelTooLong(EvenbeatError):
    """More runs happened during ``travel`` than its limit allows.

    ``what`` names the schedule or the task that most of them belong to.
    """

    def __init__(self, what: str, count: int, limit: int, since: Instant, reached: Instant) -> None:
        super().__init__(
            f"more than {limit:,} runs between {write_instant(since)} and {write_instant(reached)}, "
            f"{count:,} of them of {what}; travel less far, pause it, or allow more: "
            f"travel(…, limit={limit * 10:_})"
        )
        self.what = what
        self.count = count
        self.limit = limit


class Journey:
    """One ``travel``: steps the real ticker and worker at each instant at which something is due."""

    def __init__(
        self,
        store: VirtualStore,
        clock: VirtualClock,
        tasks: Tasks,
        events: Events,
        limit: int,
        counting: Counting,
        alerts: VirtualAlerts,
        code_ticker: CodeTicker,
    ) -> None:
        self._store = store
        self._code_ticker = code_ticker
        self._clock = clock
        self._limit = limit
        self._since = clock.now
        self._alerts = alerts
        self._ticker = Ticker(store, events, counting=counting, signals=alerts.signals)
        # One lane for all executors, so that priority and time decide among all runs.
        lane = _OneAtATime(InlineExecutor(), slots=1)
        self._worker = Worker(
            store,
            tasks,
            events,
            lambda _kind: lane,
            name="virtual",
            counting=counting,
            signals=alerts.signals,
        )
        reports = FlowReports(events, counting, alerts.signals, tasks=tasks)
        self._flows = FlowWatch(store, reports, alerts.signals)
        self._rollups = Rollups(store, counting, "virtual")
        self._backfiller = Backfiller(store)
        store.woken.clear()
        store.started.clear()

    def go(self, end: Instant) -> Instant | None:
        """Step until ``end``; return when something is due after it."""
        self._alerts.step(self._clock.now)
        try:
            while True:
                due = self._do_what_is_due()
                self._alerts.step_if_needed(self._clock.now)
                if due is None or due > end:
                    break
                self._store.move_to(due)
                self._rollups.write(due)
        finally:
            # Also after an error: record the runs that were executed.
            self._worker.drain()
            self._worker.step(self._clock.now)
            self._rollups.write(self._clock.now, is_last=True)
        self._store.move_to(end)
        self._alerts.step(end)
        return due

    def _do_what_is_due(self) -> Instant | None:
        """Step until nothing is due now; return when something is due next."""
        now = self._clock.now
        while True:
            seen = self._store.changes
            code = self._code_ticker.step(now)
            wake = self._ticker.step(now)
            due = self._worker.step(now)
            checked = self._flows.step(now)
            # What a backfill waits for happens in these steps, or in a call of the test: no step just for it.
            while self._store.open_backfills and self._backfiller.step(now) <= now:
                pass
            self._check_limit()
            upcoming = min((at for at in (code, wake, due, checked) if at is not None), default=None)
            # The next step records a run that was executed. The count of changes shows whether the run, or
            # a listener, changed anything.
            if not self._worker.is_processing and self._store.changes == seen:
                if upcoming is None or upcoming > now:
                    return upcoming

    def _check_limit(self) -> None:
        for counts in (self._store.started, self._store.woken):
            if counts.total() > self._limit:
                what, count = counts.most_common(1)[0]
                raise TravelTooLong(what, count, self._limit, self._since, self._clock.now)


class VirtualAlerts:
    """Finds what alert rules ask for. The announcements wait: nothing is sent in virtual time.

    Conditions that leave no signal, such as ``late``, are looked at when time stands still.
    """

    def __init__(self, store: VirtualStore, service: AlertService) -> None:
        self._store = store
        self._service = service
        self._read_of = 0
        self._is_anything_open = False
        self.signals = service.signals

    def step(self, now: Instant) -> None:
        if self._read_of != self._store.rule_changes:
            self._read_of = self._store.rule_changes
            self._service.refresh(now)
        if self._read_of:
            self._service.evaluate(now)
            self._is_anything_open = bool(self._store.find_records(INCIDENT, limit=1))

    def step_if_needed(self, now: Instant) -> None:
        """Step if something may have begun or ended."""
        is_new = self._read_of != self._store.rule_changes
        if is_new or self._service.has_signals or self._is_anything_open:
            self.step(now)


class _OneAtATime(Lane):
    """A lane that claims a run only when the run before it is recorded, since that may affect the next."""

    def room(self, now: float) -> int:
        return self.slots - len(self.attempts)
