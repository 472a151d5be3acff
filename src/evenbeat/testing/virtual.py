"""A scheduler in virtual time: a test moves the clock, and each run is executed at its own instant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime

from evenbeat.app.declarations import Declarations
from evenbeat.app.scheduler import Scheduler
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import Instant, Moment, from_ms, read_instant, read_moment, write_instant
from evenbeat.core.results import Run
from evenbeat.errors import EvenbeatError, InvalidValue, shown
from evenbeat.node.code_ticker import CodeTicker
from evenbeat.node.counting import Counting
from evenbeat.node.fallback import Fallback
from evenbeat.node.node import Node
from evenbeat.node.settings import NodeSettings
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.observe.events import Events
from evenbeat.stores.base import Store
from evenbeat.tasks.task import Tasks
from evenbeat.testing.clock import START, VirtualClock
from evenbeat.testing.journeys import LIMIT, Journey, VirtualAlerts
from evenbeat.testing.virtual_store import VirtualStore


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
        self.flow = app.flow
        self.new_flow = app.new_flow
        self.flows = app.flows
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
        self._alerts = VirtualAlerts(store, app.alert_service())
        self._code_ticker = CodeTicker(
            store, app.events, Fallback(store, app.events), counting=self._counting
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
        journey = Journey(
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
