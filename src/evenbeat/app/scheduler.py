"""``Scheduler``: joins the tasks, schedules and runs of an app with a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from evenbeat.app.declarations import Declarations
from evenbeat.app.deploy_calls import DeployCalls
from evenbeat.app.flow_calls import FlowCalls
from evenbeat.app.forecast_calls import ForecastCalls
from evenbeat.app.hook_calls import HookCalls
from evenbeat.app.locks import Lock
from evenbeat.app.repairs import repair
from evenbeat.app.report_calls import ReportCalls
from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration
from evenbeat.core.repairs import RepairReport
from evenbeat.node.node import Node
from evenbeat.node.settings import NodeOptions, NodeSettings
from evenbeat.stores.base import Store

if TYPE_CHECKING:
    from evenbeat.alerts.service import AlertService


class Scheduler(FlowCalls, HookCalls, ReportCalls, ForecastCalls, DeployCalls):
    """Cron, interval and one-shot jobs on a database, each tick exactly once.

    ``store`` is a URL (``sqlite:///evenbeat.db``, ``memory://``) or a store; without one it is what
    EVENBEAT_STORE or the project's configuration says, else ``sqlite:///evenbeat.db``. Nothing is opened
    before it is needed.

    ``source`` is a label of the app, under which the schedules of its code are managed. ``apply`` with
    ``prune`` needs one: several apps may share a database.
    """

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

    def repair(self, *, dry_run: bool = True) -> RepairReport:
        """Find duplicates, stuck rows and leftovers, of all tenants; unless it is a ``dry_run``, mend those
        that need no judgement.

        Safe beside live nodes: what somebody changes meanwhile is left alone. The audit has each change.
        """
        return repair(self._session.store(), dry_run=dry_run)

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

    def hurry(self) -> None:
        """End the wait of ``stop`` for running jobs. For handlers of a second signal."""
        self._lifecycle.hurry()

    def declare_tasks(self) -> None:
        """Declare the schedules of decorated tasks, of ``declare`` and of files. A node does so when it
        starts."""
        self._declarations.declare_all(self._tasks, self.node_settings())

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

    arepair = twin(repair)
    astart = twin(start)
    astop = twin(stop)
    adeclare_tasks = twin(declare_tasks)
    aclose = twin(close)
