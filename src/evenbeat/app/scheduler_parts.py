"""``SchedulerParts``: creates the parts of a scheduler, and joins them."""

from __future__ import annotations

from typing import Unpack

from evenbeat.app.alerts.alerts import Alerts
from evenbeat.app.attention import AttentionReader
from evenbeat.app.audit import Audit
from evenbeat.app.backfills import Backfills
from evenbeat.app.calendars import Calendars
from evenbeat.app.declarations import Declarations, Declared
from evenbeat.app.declared_schedules import DeclaredSchedules
from evenbeat.app.deploying import Deployments
from evenbeat.app.enqueueing import Enqueuer
from evenbeat.app.figures import FigureReader
from evenbeat.app.flows import Flows
from evenbeat.app.lifecycle import Lifecycle
from evenbeat.app.limits import RunLimits
from evenbeat.app.quarantine import Quarantine
from evenbeat.app.quotas import Quotas
from evenbeat.app.retention import Retention
from evenbeat.app.rows import ScheduleRows
from evenbeat.app.runs import Runs
from evenbeat.app.schedules.schedules import Schedules
from evenbeat.app.session import AppSession
from evenbeat.app.templates import Templates
from evenbeat.app.tenants import Tenants
from evenbeat.app.tokens import Tokens
from evenbeat.config import default_store
from evenbeat.core.instants import from_ms
from evenbeat.errors import InvalidValue, shown
from evenbeat.node.node import Node
from evenbeat.node.settings import NodeOptions, NodeSettings
from evenbeat.observe.events import Events
from evenbeat.rules.alert_records import StoredIncident
from evenbeat.stores.base import Store
from evenbeat.stores.urls import open_url, without_password
from evenbeat.tasks.task import Tasks


class SchedulerParts:
    """The base of the classes that ``Scheduler`` consists of. Each has the calls about one concept."""

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        tenant: str = "default",
        source: str = "",
        **options: Unpack[NodeOptions],
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
        quotas = Quotas(self._session)
        self._enqueuer = Enqueuer(self._session, quotas)
        rows = ScheduleRows(self._session, quotas)
        mode = options.get("schedule_mode", "durable")
        self._declared = DeclaredSchedules(self._session, source, mode)
        self._declarations = Declarations(rows, self._declared)
        self._deployments = Deployments(rows, self._declared)
        self.alerts = Alerts(self._session, lambda: self.node is not None)
        self._lifecycle = Lifecycle(self._session, self._declare, options)
        self.schedules = Schedules(self._session, rows, self._declarations)
        self.backfills = Backfills(self._session)
        self.runs = Runs(self._session, rows)
        self.flows = Flows(self._session, self._enqueuer, self.runs)
        self.audit = Audit(self._session)
        self.quarantine = Quarantine(self._session, rows, self.runs)
        self.retention = Retention(self._session)
        self.calendars = Calendars(self._session)
        self._figures = FigureReader(self._session)
        self._attention = AttentionReader(self._session.store)
        self.tokens = Tokens(self._session)
        self.limits = RunLimits(self._session)
        self.templates = Templates(self._session, rows)
        self.tenants = Tenants(self._session, self._figures, quotas, self.tokens)
        self._lifecycle.why = self._why_incident

    def _declare(self, settings: NodeSettings) -> Declared:
        """Declare what the code and the files declare. A node does so when it starts."""
        declared = self._declarations.declare_all(self._tasks, settings)
        self.alerts.declare()
        return declared

    def _why_incident(self, incident: StoredIncident) -> str | None:
        if incident.run is not None:
            return self.runs.why(incident.run, tenant=incident.tenant).sentence
        if incident.schedule is not None:
            at = None if incident.tick is None else from_ms(incident.tick)
            return self.schedules.why(incident.schedule, at, tenant=incident.tenant).sentence
        return None

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

    @property
    def node(self) -> Node | None:
        """The node that was started here and not stopped."""
        return self._lifecycle.node
