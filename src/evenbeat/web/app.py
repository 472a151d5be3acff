"""The web app: the API and the dashboard of one scheduler, for a server or for another ASGI app."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from starlette.types import Receive, Scope, Send

from evenbeat.app.metrics import MOST_SCHEDULES
from evenbeat.app.scheduler import Scheduler
from evenbeat.web.api import starlette_app
from evenbeat.web.endpoints import (
    about,
    alerts,
    audit,
    backfills,
    calendars,
    cells,
    deploys,
    doctor,
    events,
    figures,
    flows,
    limits,
    metrics,
    order,
    runs,
    schedule_bulk,
    schedule_history,
    schedule_operations,
    schedules,
    session,
    templates,
    tenants,
    tokens,
    why,
)
from evenbeat.web.health import health_routes
from evenbeat.web.page import BUILT, Dashboard
from evenbeat.web.settings import WebSettings, read_settings
from evenbeat.web.state import WebState

ENDPOINTS = (
    schedules,
    schedule_operations,
    schedule_bulk,
    schedule_history,
    runs,
    flows,
    deploys,
    why,
    calendars,
    cells,
    figures,
    metrics,
    limits,
    backfills,
    templates,
    alerts,
    doctor,
    order,
    audit,
    events,
    tenants,
    tokens,
    session,
    about,
)
"""The modules whose endpoints are served."""


class WebApp:
    """An ASGI app. It reads the store when the first request comes, and stops reading when it is closed."""

    def __init__(self, app: Scheduler, settings: WebSettings, dashboard: Path = BUILT) -> None:
        self.state = WebState(app, settings)
        self._app = starlette_app(self.state, Dashboard(dashboard), health_routes(self.state))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def end_streams(self) -> None:
        """End the event streams: a server that stops waits for all requests."""
        self.state.hub.close()

    def close(self) -> None:
        """Stop watching the store. The scheduler stays as it is."""
        self.state.close()


def web_app(
    app: Scheduler,
    *,
    needs_token: bool = True,
    hosts: Iterable[str] = (),
    proxies: Iterable[str] = (),
    open_metrics: bool = False,
    metrics_schedules: int = MOST_SCHEDULES,
    public_url: str | None = None,
    allow_private_webhooks: Iterable[str] | None = None,
) -> WebApp:
    """Return the API and the dashboard of a scheduler as an ASGI app, to be mounted under any path.

    ``hosts`` are the accepted Host headers, besides loopback names, with the port unless it is the scheme's
    own. ``proxies`` are addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are
    believed. Without ``needs_token`` everybody who reaches the app is an admin: only for servers on a
    loopback address. With ``open_metrics``, ``GET /metrics`` needs no token; ``metrics_schedules`` is the
    bound of ``app.metrics``.

    ``public_url`` and ``allow_private_webhooks`` override the options of the scheduler for alerts that this
    process sends.
    """
    settings = read_settings(
        needs_token=needs_token,
        hosts=hosts,
        proxies=proxies,
        open_metrics=open_metrics,
        metrics_schedules=metrics_schedules,
        public_url=public_url,
        allow_private_webhooks=allow_private_webhooks,
    )
    return WebApp(app, settings)
