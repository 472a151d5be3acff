"""A scheduler in virtual time: a test moves the clock, and each run is executed at its own instant."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime

from msgspec.structs import replace

from evenbeat.alerts.service import AlertService
from evenbeat.app.declarations import Declarations
from evenbeat.app.scheduler import Scheduler
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant, Moment, from_ms, read_instant, read_moment, write_instant
from evenbeat.core.records import FINAL_STATES, LogChunk, Record, RunRecord, RunState, Transition
from evenbeat.core.results import Run
from evenbeat.errors import EvenbeatError, InvalidValue, shown
from evenbeat.executors.inline import InlineExecutor
from evenbeat.node.backfills import Backfiller
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.node.lanes import Lane
from evenbeat.node.node import Node
from evenbeat.node.rollups import Rollups
from evenbeat.node.settings import NodeSettings
from evenbeat.node.ticker import Ticker
from evenbeat.node.worker import Worker
from evenbeat.observe import views
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.events import Events
from evenbeat.rules.alert_records import INCIDENT, RULE
from evenbeat.rules.backfills import OPEN
from evenbeat.stores.base import Claim, Claimed, Fired, Page, PlanFunction, RunQuery, Store
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Tasks
from evenbeat.testing.clock import START, VirtualClock
from evenbeat.testing.transactions import Transactions

LIMIT = 20_000
"""The default limit of runs in one ``travel``: some seconds of work."""


@contextmanager
def virtual(app: Scheduler | None = None, *, now: datetime | str | None = None) -> Iterator[VirtualScheduler]:
    """Put an app into virtual time until the block ends. The app's own store is not used meanwhile.

    The app keeps its tasks, and its decorated schedules are declared; everything else starts empty, at
    ``now``, by default 2026-03-01T12:00:00Z. ``app`` defaults to a new one; one that is running is refused.
    """
    app = Scheduler("memory://") if app is None else app
    clock = VirtualClock(START if now is None else read_instant(now, "now"))
    store = VirtualStore(clock, app.tasks)
    with app.stand_in(store, _StillNode) as declarations, closing(store.transactions):
        yield VirtualScheduler(app, store, clock, declarations)


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


class VirtualScheduler:
    """An app in virtual time: the methods of ``Scheduler``, and methods that move the time.

    Only ``travel`` and ``down_for`` move it. ``app`` is the app itself, in the same virtual time: the code
    under test may use it.
    """

    def __init__(
        self, app: Scheduler, store: VirtualStore, clock: VirtualClock, declarations: Declarations
    ) -> None:
        self.app = app
        self._declarations = declarations
        self.tenant = app.tenant
        self.tasks = app.tasks
        self.task = app.task
        self.declare = app.declare
        self.declare_file = app.declare_file
        self.plan = app.plan
        self.apply = app.apply
        self.runs = app.runs
        self.audit = app.audit
        self.backfills = app.backfills
        self.alerts = app.alerts
        self.tokens = app.tokens
        self.limits = app.limits
        self.templates = app.templates
        self.calendars = app.calendars
        self.enqueue = app.enqueue
        self.enqueue_many = app.enqueue_many
        self.queues = app.queues
        self.forecast = app.forecast
        self.explain = app.explain
        self.statistics = app.statistics
        self.failures = app.failures
        self.nodes = app.nodes
        self.tenants = app.tenants
        self.quarantine = app.quarantine
        self.retention = app.retention
        self.repair = app.repair
        self.attention = app.attention
        self.timeline = app.timeline
        self.timeline_of = app.timeline_of
        self.metrics = app.metrics
        self.lock = app.lock
        self.events = app.events
        self.on_event = app.on_event
        self.before = app.before
        self.after = app.after
        self.on_error = app.on_error
        self.on_idle = app.on_idle
        self._store = store
        self._counting = Counting()
        self._clock = clock
        self._alerts = _Alerts(store, app.alert_service())
        self._code_ticker = CodeTicker(
            store,
            app.events,
            Fallback(store, app.events),
            retention=app.node_settings().retention,
            counting=self._counting,
        )
        self._declared: set[tuple[str, str]] = set()
        self._travelling = False
        self._upcoming: Instant | None = None
        self._declare()
        app.alerts.declare()
        store.while_waiting = self._wait

    @property
    def now(self) -> datetime:
        """The virtual time, in UTC, by the store's clock."""
        return from_ms(self._clock.now)

    @property
    def store(self) -> Store:
        """The store in memory that replaces the app's own."""
        return self._store

    @property
    def schedules(self) -> Schedules:
        self._declare()
        return self.app.schedules

    @property
    def fired(self) -> list[Run]:
        """The runs of all ticks that have fired, as they are now, in the order of firing."""
        return self._store.fired()

    @property
    def finished(self) -> list[Run]:
        """The runs that are over, in the order in which they ended."""
        return list(self._store.finished)

    def travel(self, to: Duration | Moment, *, limit: int = LIMIT) -> list[Run]:
        """Let time pass, and return the runs that ended on the way, in order.

        ``to`` is how far (``"+3d"``, ``"3d"``, a timedelta, seconds) or an instant (an aware datetime or
        its text). Runs take no time. More than ``limit`` of them are an error (``TravelTooLong``).
        """
        return self._travel(self._target(to), limit)

    def run_pending(self, *, limit: int = LIMIT) -> list[Run]:
        """Run everything that is due now, and what follows from it now; return the runs that ended."""
        return self._travel(self._clock.now, limit)

    def down_for(self, outage: Duration) -> datetime:
        """Let time pass without any node: nothing fires, nothing runs. Return the time afterwards.

        The next ``travel`` or ``run_pending`` catches up on missed ticks, by each schedule's policy.
        """
        self._declare()
        self._store.move_to(self._clock.now + read_duration(outage, "outage"))
        return self.now

    atravel = twin(travel)
    arun_pending = twin(run_pending)

    def __repr__(self) -> str:
        return f"<VirtualScheduler at {write_instant(self._clock.now)}>"

    def _declare(self) -> None:
        """Declare the schedules of the code, each once: later changes by the test stay."""
        declared = self._declarations.declare_all(self.tasks, self.app.node_settings(), self._declared)
        for code_only in declared.code_only:
            self._code_ticker.add(code_only)

    def _target(self, to: Duration | Moment) -> Instant:
        now = self._clock.now
        if isinstance(to, (int, float)):
            return now + read_duration(to, "to")
        target = read_moment(to, "to", now)
        if target < now:
            raise InvalidValue(
                f"to {shown(str(to))} is before {write_instant(now)}, which it is now",
                field="to",
                value=to,
                hint="time goes one way: start earlier, with virtual(app, now=…)",
            )
        return target

    def _travel(self, end: Instant, limit: int) -> list[Run]:
        self._refuse_nonsense()
        self._declare()
        before = len(self._store.finished)
        journey = _Journey(
            self._store,
            self._clock,
            self.tasks,
            self.events,
            limit,
            self._counting,
            self._alerts,
            self._code_ticker,
        )
        self._travelling = True
        start_capture()
        try:
            self._upcoming = journey.go(end)
        finally:
            stop_capture()
            self._travelling = False
        return self._store.finished[before:]

    def _wait(self, seconds: float, is_endless: bool) -> None:
        """Let time pass for a caller that waits for a run or a lock: nobody else does."""
        ended = self._travel(self._clock.now + max(1, round(seconds * 1000)), LIMIT)
        if is_endless and not ended and self._upcoming is None:
            raise EvenbeatError(
                f"nothing more happens after {write_instant(self._clock.now)}: this wait would never end"
            )

    def _refuse_nonsense(self) -> None:
        if self._travelling:
            raise InvalidValue(
                "a task, or a listener, called travel or run_pending",
                field="travel",
                value=True,
                hint="only the test itself can move the time: a run takes none",
            )
        asyncio = sys.modules.get("asyncio")
        if asyncio is not None and any(task.executor == "async" for task in self.tasks):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return
            raise InvalidValue(
                "async tasks can't be executed inside a running event loop",
                field="travel",
                value=True,
                hint="in an async test, write: await scheduler.atravel(…), or arun_pending()",
            )


class _Journey:
    """One ``travel``: steps the real ticker and worker at each instant at which something is due."""

    def __init__(
        self,
        store: VirtualStore,
        clock: VirtualClock,
        tasks: Tasks,
        events: Events,
        limit: int,
        counting: Counting,
        alerts: _Alerts,
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
            # What a backfill waits for happens in these steps, or in a call of the test: no step just for it.
            while self._store.open_backfills and self._backfiller.step(now) <= now:
                pass
            self._check_limit()
            upcoming = min((at for at in (code, wake, due) if at is not None), default=None)
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


class _Alerts:
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


class VirtualStore(MemoryStore):
    """The store in memory, which also records what a test may want to check."""

    def __init__(self, clock: VirtualClock, tasks: Tasks) -> None:
        super().__init__(clock)
        self._tasks = tasks
        self.finished: list[Run] = []
        self.woken: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.while_waiting: Callable[[float, bool], object] | None = None
        self.renewals: dict[str, Callable[[Instant], object]] = {}
        self._time = clock
        self.transactions = Transactions()
        self.changes = 0
        """The number of hints so far: every change by a user gives one."""
        self.rule_changes = 0
        """How often an alert rule was written or deleted."""
        self.open_backfills = 0
        """How many backfills are not over."""

    def hint(self) -> None:
        self.changes += 1
        super().hint()

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        self.rule_changes += record.kind == RULE
        is_written = super().put_record(record, expect)
        self.open_backfills += is_written and record.kind == OPEN
        return is_written

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        self.rule_changes += kind == RULE
        is_deleted = super().delete_record(kind, tenant, key, version)
        self.open_backfills -= is_deleted and kind == OPEN
        return is_deleted

    def fired(self) -> list[Run]:
        return [views.run_view(run, self._tasks) for run in self._runs.values() if run.cause == "tick"]

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        fired = super().fire_due(now, limit, plan)
        self.woken.update(
            _schedule(planned.schedule.tenant, planned.schedule.name) for planned in fired.planned
        )
        return fired

    def add_runs_within(self, connection: object, runs: Sequence[RunRecord]) -> list[RunRecord]:
        self._admit()
        self.transactions.hold(connection, runs)
        return [self._runs.get(run.id, run) for run in runs]

    def _admit(self) -> None:
        """Add the runs whose transactions have committed. Every method that reads runs calls this first."""
        committed = self.transactions.take()
        if committed:
            super().add_runs(committed)
            self.hint()

    def add_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        self._admit()
        return super().add_runs(runs)

    def find_runs(self, query: RunQuery) -> Page[RunRecord]:
        self._admit()
        return super().find_runs(query)

    def count_runs(self, tenant: str | None = None) -> dict[RunState, int]:
        self._admit()
        return super().count_runs(tenant)

    def claim_runs(self, claim: Claim) -> Claimed:
        self._admit()
        # From every queue: which node serves which queue does not matter to a test.
        queues = tuple(sorted(self._queued.queues))
        claimed = super().claim_runs(replace(claim, queues=queues or claim.queues))
        for run in claimed.runs:
            what = f"task {shown(run.task)}" if run.schedule is None else _schedule(run.tenant, run.schedule)
            self.started[what] += 1
        return claimed

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        answers = super().settle_runs(transitions)
        for transition, accepted in zip(transitions, answers, strict=True):
            if accepted and transition.state in FINAL_STATES:
                self.finished.append(views.run_view(self._runs[transition.run], self._tasks))
        return answers

    def append_log(self, chunks: Sequence[LogChunk]) -> None:
        super().append_log([replace(chunk, at=self.now()) for chunk in chunks])

    def wait(self, timeout: float) -> bool:
        seen = self.changes
        self.pass_time(timeout, is_endless=True)
        return self.changes != seen

    def pass_time(self, seconds: float, is_endless: bool) -> None:
        if self.while_waiting is not None:
            self.while_waiting(seconds, is_endless)

    def move_to(self, instant: Instant) -> None:
        """Move the time, with all locks that ``with`` blocks hold."""
        for renew in list(self.renewals.values()):
            renew(instant)
        self._time.now = instant


class _StillNode(Node):
    """The node of ``app.start()`` in virtual time: it has no threads, since the test moves the time."""

    def __init__(
        self, store: Store, tasks: Tasks, events: Events, settings: NodeSettings, **_options: object
    ) -> None:
        super().__init__(store, tasks, events, settings, ticker=False, worker=False)

    def start(self) -> None:
        pass

    def stop(self, drain: int | None = None, drained: Callable[[], object] | None = None) -> bool:
        if drained is not None:
            drained()
        return True


def _schedule(tenant: str, name: str) -> str:
    return f"schedule {shown(name)}" + ("" if tenant == "default" else f" of tenant {shown(tenant)}")
