"""The state of a web app: its scheduler, its gate, and what it keeps in memory about the store."""

from __future__ import annotations

import threading
from typing import Any

import anyio

from evenbeat.alerts.service import AlertService
from evenbeat.app.attention import AttentionReader
from evenbeat.app.scheduler import Scheduler
from evenbeat.core.attention import Attention
from evenbeat.processes.descriptors import descriptor_limit
from evenbeat.web.access import Gate, Principal
from evenbeat.web.catalogue import Catalogue, late_keys
from evenbeat.web.changes import ChangeWatch
from evenbeat.web.costly import CostlyAnswers
from evenbeat.web.limits import REQUESTS_OF_TOKEN, STREAMS_OF_TOKEN, TOKEN_CHECKS, Limit, streams_of_all
from evenbeat.web.outages import OutageLog
from evenbeat.web.search import CataloguePage, CatalogueQuery
from evenbeat.web.sessions import Sessions
from evenbeat.web.settings import WebSettings
from evenbeat.web.streams import Hub


class WebState:
    """What the endpoints of one web app share."""

    def __init__(self, app: Scheduler, settings: WebSettings) -> None:
        self.app = app
        self.settings = settings
        self.gate = Gate(app.tokens, settings)
        self.sessions = Sessions(app, self.gate)
        self.hub = Hub()
        self.requests = Limit("requests", REQUESTS_OF_TOKEN)
        self.streams = Limit("streams", STREAMS_OF_TOKEN, streams_of_all(descriptor_limit()))
        self.token_checks = anyio.CapacityLimiter(TOKEN_CHECKS)
        self.outages = OutageLog()
        self.costly = CostlyAnswers()
        self._catalogue = Catalogue()
        self._attention = AttentionReader(lambda: app.store)
        self._watch: ChangeWatch | None = None
        self._alerts: AlertService | None = None
        self._starting = threading.Lock()
        self._document: dict[str, Any] | None = None

    def watch(self) -> None:
        """Start to watch the store, if this was not done before: an app that nobody asks reads nothing."""
        with self._starting:
            if self._watch is None:
                self._watch = ChangeWatch(self.app.store, self._catalogue, self.hub)
                self._watch.start()
        self.watch_alerts()

    def watch_alerts(self) -> None:
        """Start to evaluate alert rules, if this was not done before: somebody has to report schedules that
        are late because no node is alive."""
        with self._starting:
            if self._alerts is None:
                self._alerts = self.app.alert_service(**self.settings.alert_options)
                # Opens the store in the thread, which retries while the store is unavailable.
                self._alerts.start(lambda: self.app.store.now())

    def still_admits(self, principal: Principal) -> bool:
        """Return whether the token and the session of a long request still work. Asks the store."""
        return self.gate.is_valid(principal) and self.sessions.is_valid(principal)

    def search(self, query: CatalogueQuery) -> CataloguePage:
        """Return the keys of a page of schedules, as they were a second or two ago."""
        self.watch()
        if not self._catalogue.is_loaded:
            self._catalogue.load(self.app.store)
        if query.late is None:
            return self._catalogue.search(query)
        store = self.app.store
        return self._catalogue.search(query, late_keys(store, store.now(), query.tenant))

    def attention(self, tenant: str | None) -> Attention:
        """Return what needs somebody now, of one tenant or of all."""
        self.watch()
        if not self._catalogue.is_loaded:
            self._catalogue.load(self.app.store)
        return self._attention.read(tenant, self._catalogue.entries())

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self._document is None:
            from evenbeat.web.openapi import document

            self._document = document()
        return self._document

    def close(self) -> None:
        """End the streams, and stop watching the store and evaluating alert rules."""
        self.hub.close()
        with self._starting:
            watch, self._watch = self._watch, None
            alerts, self._alerts = self._alerts, None
        for service in (watch, alerts):
            if service is not None:
                service.stop()
