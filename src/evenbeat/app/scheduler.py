"""``Scheduler``: joins the tasks, schedules and runs of an app with a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from evenbeat.app.alerts.alerts import Alerts
from evenbeat.app.audit import Audit
from evenbeat.app.declarations import Declarations
from evenbeat.app.enqueueing import EnqueueOptions, Enqueuer
from evenbeat.app.figures import MOST_FAILURES, MOST_TENANTS, FigureReader, Scope
from evenbeat.app.forecasting import firing_schedules, forecast_of
from evenbeat.app.lifecycle import Lifecycle
from evenbeat.app.locks import Lock
from evenbeat.app.metrics import MOST_SCHEDULES, read_metrics
from evenbeat.app.rows import ScheduleRows
from evenbeat.app.runs import Runs
from evenbeat.app.schedules import Schedules
from evenbeat.app.session import AppSession
from evenbeat.app.tokens import Tokens
from evenbeat.config import default_store
from evenbeat.core.awaitable import twin
from evenbeat.core.checks import check_label
from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.figures import FailureReport, FigureSeries, NodeView, QuarantineNote, TenantView
from evenbeat.core.forecasts import Forecast, ForecastStep, TriggerExplanation
from evenbeat.core.instants import Moment, from_ms
from evenbeat.core.options import NEW_SCHEDULE, RUN
from evenbeat.core.records import NORMAL, CatchUp, Execution
from evenbeat.core.results import QueueStats, Run
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.node import Node
from evenbeat.node.presence import live_nodes
from evenbeat.node.settings import NodeOptions, NodeSettings
from evenbeat.observe.events import Event, Events
from evenbeat.observe.trigger_explanations import explain_trigger
from evenbeat.observe.views import queue_view
from evenbeat.rules.alert_records import StoredIncident
from evenbeat.rules.rollups import By
from evenbeat.stores.base import QueueCounts, Store
from evenbeat.stores.urls import open_url, without_password
from evenbeat.tasks import context
from evenbeat.tasks.options import NewScheduleOptions, RunOptions, read_schedule_fields, refuse_unknown
from evenbeat.tasks.task import Call, ExecutorKind, Task, Tasks
from evenbeat.triggers import Trigger, check_trigger, parse_trigger

if TYPE_CHECKING:
    from evenbeat.alerts.service import AlertService

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])


class Scheduler:
    """Cron, interval and one-shot jobs on a database, each tick exactly once.

    ``store`` is a URL (``sqlite:///evenbeat.db``, ``memory://``) or a store; without one it is what
    EVENBEAT_STORE or the project's configuration says, else ``sqlite:///evenbeat.db``. Nothing is opened
    before it is needed.
    """

    def __init__(
        self, store: str | Store | None = None, *, tenant: str = "default", **options: Unpack[NodeOptions]
    ) -> None:
        if store is None:
            store = default_store()
        if not isinstance(store, str) and not hasattr(store, "fire_due"):
            raise InvalidValue(
                f"store {shown(store)} is not a store",
                field="store",
                value=store,
                hint='give a URL such as "sqlite:///evenbeat.db", or a store',
            )
        self.url = without_password(store) if isinstance(store, str) else type(store).__name__
        """The store's URL, without its password."""
        self._tasks = Tasks()
        self._session = AppSession(open_url(store) if isinstance(store, str) else store, self._tasks, tenant)
        self._enqueuer = Enqueuer(self._session)
        rows = ScheduleRows(self._session)
        self._declarations = Declarations(rows)
        self.alerts = Alerts(self._session, lambda: self.node is not None)
        self._lifecycle = Lifecycle(self._session, self._declare, options)
        self.schedules = Schedules(self._session, rows, self._declarations)
        self.runs = Runs(self._session, rows)
        self.audit = Audit(self._session)
        self._figures = FigureReader(self._session)
        self.tokens = Tokens(self._session)
        self._lifecycle.why = self._why_incident

    @property
    def store(self) -> Store:
        """The store, open."""
        return self._session.store()

    @property
    def tenant(self) -> str:
        """The tenant of calls that name none."""
        return self._session.tenant

    @property
    def tasks(self) -> Tasks:
        """The tasks that are registered here."""
        return self._tasks

    @property
    def events(self) -> Events:
        return self._lifecycle.events

    # -- tasks ---------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[context.RunContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        executor: ExecutorKind | None = None,
        **options: Unpack[NewScheduleOptions],
    ) -> TaskDecorator: ...

    def task(  # type: ignore[misc]  # mypy 2.4 takes Unpack in an overload for more than **options
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        schedule: Trigger | str | None = None,
        executor: ExecutorKind | None = None,
        **options: Any,
    ) -> Any:
        """Register a function as a task, by its name or another one.

        With a ``schedule``, a node declares a schedule of the same name when it starts. A ``def`` runs in a
        thread, an ``async def`` on the event loop; ``executor="process"`` gives a ``def`` a process of its
        own. Options are defaults of all its runs (retries, backoff, timeout, queue, priority) and policies of
        its schedule (catch_up, overlap, spread, …).
        """
        refuse_unknown(options, NEW_SCHEDULE, "a task")
        policies = {key: value for key, value in options.items() if key not in RUN}
        if policies and schedule is None:
            raise InvalidValue(
                f"{min(policies)} is about a schedule, and there is none",
                field=min(policies),
                value=policies[min(policies)],
                hint="say when it runs: schedule=cron(…) or every(…)",
            )
        fields = read_schedule_fields(options, Execution(), CatchUp())
        if schedule is not None:
            check_trigger(schedule, "schedule")
        trigger = parse_trigger(schedule) if isinstance(schedule, str) else schedule

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            if not callable(function):
                raise InvalidValue(
                    f"task {shown(function)} is not a function",
                    field="function",
                    value=function,
                    hint="write @app.task above one; options have names: @app.task(name=…, schedule=…)",
                )
            task: Task[..., Any] = Task(
                function,
                name or function.__name__,
                execution=fields["execution"],
                queue=fields.get("queue", "default"),
                priority=fields.get("priority", NORMAL),
                executor=executor,
                trigger=trigger,
                policies=cast(NewScheduleOptions, options),
                enqueue=self.enqueue,
            )
            self._tasks.add(task)
            if self.node is not None:
                # Registered while a node runs: it learns at once what it would have found at its start.
                self.node.add_task(task)
                if task.trigger is not None:
                    self._declarations.declare_task(task)
            return task

        return register if function is None else register(function)

    # -- runs by hand --------------------------------------------------------------------------------------

    def enqueue(
        self,
        task: Task[..., Any] | Call | str,
        payload: Mapping[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        id: str | None = None,
        tenant: str | None = None,
        within: object | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Add one run of a task: due at once, after ``delay``, or at ``at``.

        With an ``id`` of your own, enqueueing it again adds nothing and returns the run that is there, with
        its own payload; ``RunExists`` if that run belongs to another task, schedule or tenant.

        ``within`` is a connection or session of yours to the same database (PostgreSQL or SQLite): the run is
        added in its transaction, and workers see it when you commit, or never. psycopg, sqlite3, Django and
        SQLAlchemy are supported; asynchronous ones with ``await app.aenqueue(…)``. In virtual time
        (``evenbeat.testing``) the connection may belong to any database.
        """
        return self._enqueuer.add(task, payload, id, EnqueueOptions(delay, at, tenant, within, options))

    def enqueue_many(
        self,
        calls: Iterable[Call | Task[..., Any] | str | tuple[Task[..., Any] | str, Mapping[str, Any] | None]],
        *,
        delay: Duration | None = None,
        at: Moment | None = None,
        ids: Iterable[str] | None = None,
        tenant: str | None = None,
        within: object | None = None,
        **options: Unpack[RunOptions],
    ) -> list[str]:
        """Add many runs, 1,000 per write; return their ids. ``ids`` and ``within`` as in ``enqueue``."""
        return self._enqueuer.add_many(calls, ids, EnqueueOptions(delay, at, tenant, within, options))

    def lock(
        self,
        name: str,
        ttl: Duration = "30s",
        *,
        timeout: Duration | None = "0s",
        description: str = "",
        tenant: str | None = None,
    ) -> Lock:
        """Return a named lock, not acquired yet.

        ``with app.lock("import"):`` raises ``LockHeld`` if another holder has it for longer than ``timeout``
        (None: waits as long as it takes), and renews it while the block runs. ``description`` is stored with
        the lock, and shown by ``LockHeld``.
        """
        owner = self._session.tenant_of(tenant)
        return Lock(
            self._session.store,
            name,
            ttl,
            owner,
            description,
            timeout,
            note_failure=self._lifecycle.count_lock,
        )

    def queues(self, period: Duration = "5m") -> list[QueueStats]:
        """Return each queue over all tenants: how many runs it holds, which live nodes take from it, and how
        many came due and ended in the last ``period``."""
        length = read_duration(period, "period")
        store = self._session.store()
        now = store.now()
        counted = {counts.queue: counts for counts in store.count_queues(now, now - length)}
        nodes = [node for node in live_nodes(store) if node.worker]
        names = sorted({*counted, *(queue for node in nodes for queue in node.queues)})
        return [
            queue_view(
                counted.get(name) or QueueCounts(queue=name),
                tuple(node.key for node in nodes if name in node.queues),
            )
            for name in names
        ]

    # -- figures -------------------------------------------------------------------------------------------

    def statistics(
        self,
        since: Moment = "1h",
        until: Moment | None = None,
        *,
        by: By | None = None,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        top: int = 0,
    ) -> FigureSeries:
        """Return how many ticks fired and runs ended, and how long and how late they were, over time.

        Reads what nodes write once a minute, never the history of runs. ``by`` is ``minute``, for the last
        three hours, or ``hour``, for 40 days; it defaults to minutes if they go back to ``since``. A duration
        as ``since`` or ``until`` counts back from now. ``top`` adds the figures of so many schedules and
        tasks, the busiest.
        """
        scope = self._figures.scope(schedule, task, tenant, all_tenants)
        return self._figures.statistics(since, until, by, scope, top)

    def failures(
        self,
        since: Moment | None = "1d",
        *,
        schedule: str | None = None,
        task: Task[..., Any] | str | None = None,
        tenant: str | None = None,
        all_tenants: bool = False,
        limit: int = MOST_FAILURES,
    ) -> FailureReport:
        """Return the newest failed runs, at most ``limit``, grouped by their error.

        Errors that differ only in numbers, ids and quoted values are one group. ``since`` selects runs that
        failed then or later; None: all, which may take long if few of many runs failed.
        ``app.runs.retry_all(ids=group.runs)`` retries a group.
        """
        name = task.name if isinstance(task, Task) else task
        owner = None if all_tenants else self._session.tenant_of(tenant)
        return self._figures.failures(since, Scope(owner, schedule, name), limit)

    def nodes(self) -> list[NodeView]:
        """Return the live nodes: those that have given a sign of life within about a minute."""
        return self._figures.nodes()

    def tenants(self, limit: int = MOST_TENANTS, *, name: str | None = None) -> list[TenantView]:
        """Return the tenants that have schedules, or had runs in the last 24 hours, by name.

        ``name`` asks for one of them, however many there are.
        """
        return self._figures.tenants(limit, name)

    def quarantine(self, *, tenant: str | None = None, all_tenants: bool = False) -> list[QuarantineNote]:
        """Return the schedules and runs that nodes can't process, each with the reason and what to do."""
        return self._figures.quarantine(tenant, all_tenants)

    def metrics(self, *, tenant: str | None = None, schedules: int = MOST_SCHEDULES) -> str:
        """Return all metrics in the text format of Prometheus, as ``GET /metrics`` does; with ``tenant``,
        only what concerns that tenant.

        Up to ``schedules`` schedules have series of their own; if there are more, none has. Needs
        prometheus-client, which the extra ``metrics`` installs: ``ImportError`` without it.
        """
        if tenant is not None:
            check_label(tenant, "tenant")
        made = read_metrics(self._session.store(), tenant=tenant, schedules=schedules)
        return made.encode()[0].decode()

    # -- times to come -------------------------------------------------------------------------------------

    def forecast(
        self,
        hours: int = 24,
        *,
        since: Moment | None = None,
        by: ForecastStep = "minute",
        tenant: str | None = None,
        all_tenants: bool = False,
    ) -> Forecast:
        """Return how many runs start in each minute or hour from now, or ``since``, on: at most 7 days by the
        minute, 31 days by the hour.

        Names the busiest minutes with their schedules, quiet windows for maintenance, and spreads that would
        lower the peaks. Retries, runs by hand and delays by overlap are left out. Needs numpy, which the
        extra ``timeline`` installs: ``ImportError`` without it.
        """
        owner = None if all_tenants else self._session.tenant_of(tenant)
        store = self._session.store()
        rows = firing_schedules(store, owner)
        return forecast_of(rows, store.now(), hours, since=since, by=by, with_tenant=all_tenants)

    def explain(
        self,
        trigger: str,
        count: int = 10,
        *,
        tz: str | None = None,
        since: datetime | str | None = None,
        name: str | None = None,
    ) -> TriggerExplanation:
        """Return the trigger of a text in words, with its next ``count`` ticks (at most 1,000) after now, or
        ``since``, and the effect of coming clock changes.

        ``tz`` is the zone of a cron that names none; ``name`` is that of the schedule, which decides ``H``.
        ``InvalidTrigger``, with the position of the refused part, if the text is not valid.
        """
        # With a time to start from, the store is not needed.
        now = self._session.store().now() if since is None else 0
        return explain_trigger(trigger, count, now=now, tz=tz, since=since, name=name)

    # -- hooks ---------------------------------------------------------------------------------------------

    def on_start(self, function: F) -> F:
        """Register a function to call when a node of this scheduler has started.

        Hooks may be ``async def``: they are awaited, on the event loop of async tasks if there are any.
        """
        self._lifecycle.on_start.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Register a function to call when a node of this scheduler stops and its jobs have ended."""
        self._lifecycle.on_stop.append(function)
        return function

    def on_idle(self, function: F) -> F:
        """Register a function to call each time that the node becomes idle."""
        self.events.listen(lambda event: function() if event.kind == "idle" else None)
        return function

    def on_error(self, function: F) -> F:
        """Register a function to call with the event of every failed attempt, lost run and failing store."""
        wanted = {"failed", "retrying", "lost", "crashed", "quarantined", "store_unavailable"}
        self.events.listen(lambda event: function(event) if event.kind in wanted else None)
        return function

    def on_event(self, function: Callable[[Event], R]) -> Callable[[Event], R]:
        """Register a function to call with every event. The thread that works calls it: be quick."""
        self.events.listen(function)
        return function

    # -- life ----------------------------------------------------------------------------------------------

    def start(
        self,
        *,
        ticker: bool = True,
        worker: bool = True,
        name: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> None:
        """Start a node in threads of this process: a ticker that fires, a worker that executes, or both.

        First it declares the schedules of decorated tasks. Options override those given to ``Scheduler()``.
        A ``name`` of your own must never have been the name of another node. Does nothing while ``evenbeat
        run``, or a process for ``executor="process"`` tasks, imports the module.
        """
        self._lifecycle.start(ticker=ticker, worker=worker, name=name, options=options)

    def stop(self, timeout: Duration | None = None) -> bool:
        """Drain and stop: no new runs, running jobs get until the deadline, the rest is handed back.

        Return whether every job came to its end in time. Safe to repeat. ``timeout`` overrides the
        ``drain_timeout`` option.

        Called by a hook or a task of this scheduler, it returns False at once, since it would wait for
        itself; the scheduler stops when the hook or the task has returned.
        """
        return self._lifecycle.stop(timeout)

    def run(self, *, ticker: bool = True, worker: bool = True, **options: Unpack[NodeOptions]) -> bool:
        """Start a node; return when SIGINT, SIGTERM or SIGHUP came, or a hook or a task called ``stop``, and
        it has drained.

        A second signal ends the wait for running jobs. Return whether every job came to its end in time.
        """
        return self._lifecycle.run(ticker, worker, options)

    def alert_service(self, **options: Unpack[NodeOptions]) -> AlertService:
        """Return a service that evaluates alert rules and sends alerts, for a process without a node.

        ``start`` it. A node has its own. Options override those given to ``Scheduler()``.
        """
        return self._lifecycle.alert_service(settings=self.node_settings(**options), rest=5_000)

    def _why_incident(self, incident: StoredIncident) -> str | None:
        if incident.run is not None:
            return self.runs.why(incident.run, tenant=incident.tenant).sentence
        if incident.schedule is not None:
            at = None if incident.tick is None else from_ms(incident.tick)
            return self.schedules.why(incident.schedule, at, tenant=incident.tenant).sentence
        return None

    def hurry(self) -> None:
        """End the wait of ``stop`` for running jobs. For handlers of a second signal."""
        self._lifecycle.hurry()

    def _declare(self) -> None:
        """Declare what the code and the files declare. A node does so when it starts."""
        self._declarations.declare_tasks(self._tasks)
        self.alerts.declare()

    def declare_tasks(self) -> None:
        """Declare the schedules of decorated tasks. A node does so when it starts."""
        self._declarations.declare_tasks(self._tasks)

    def close(self) -> None:
        """Close the store; the next call opens it again."""
        self._session.close()

    @contextmanager
    def stand_in(self, store: Store, node: type[Node] = Node) -> Iterator[Declarations]:
        """Replace the store and the class of nodes until the block ends. For ``evenbeat.testing``."""
        with self._lifecycle.stand_in(store, node):
            yield self._declarations

    def node_settings(self, **options: Unpack[NodeOptions]) -> NodeSettings:
        """Return the settings of a node that is started with these options."""
        return self._lifecycle.settings(options)

    @property
    def node(self) -> Node | None:
        """The node that was started here and not stopped."""
        return self._lifecycle.node

    @property
    def is_running(self) -> bool:
        """Whether a node was started here, and ``stop`` was not called since."""
        return self._lifecycle.is_running

    @property
    def is_processing(self) -> bool:
        """Whether this node has runs in hand."""
        return self.node is not None and self.node.is_processing

    @property
    def is_idle(self) -> bool:
        """Whether this node is running and has nothing to do for now."""
        return self.is_running and self.node is not None and not self.node.is_processing

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.close()

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()
        await self.aclose()

    aenqueue = twin(enqueue)
    aenqueue_many = twin(enqueue_many)
    aqueues = twin(queues)
    astatistics = twin(statistics)
    afailures = twin(failures)
    anodes = twin(nodes)
    atenants = twin(tenants)
    aquarantine = twin(quarantine)
    ametrics = twin(metrics)
    aforecast = twin(forecast)
    aexplain = twin(explain)
    astart = twin(start)
    astop = twin(stop)
    aclose = twin(close)
    adeclare_tasks = twin(declare_tasks)


class TaskDecorator(Protocol):
    """For type checkers: what ``@app.task(…)`` returns for a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[context.RunContext, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
