"""``/healthz`` and ``/readyz``: exact paths that need no token, and say nothing about schedules or runs."""

from __future__ import annotations

import time
from http import HTTPStatus

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evenbeat.app.scheduler import Scheduler
from evenbeat.errors import StoreUnavailable
from evenbeat.observe.health import readiness
from evenbeat.web.state import WebState

# Seconds that the store may take to answer.
_PATIENCE = 3.0


def health_routes(state: WebState) -> list[Route]:
    """Return the routes of probes."""

    async def healthz(_: Request) -> Response:
        return _response([])

    async def readyz(_: Request) -> Response:
        problems = _problems_of_node(state.app)
        with anyio.move_on_after(_PATIENCE) as limit:
            # The thread of a store that does not answer is left behind; the store's own timeout ends it.
            problems += await anyio.to_thread.run_sync(_problems_of_store, state.app, abandon_on_cancel=True)
        if limit.cancelled_caught:
            problems.append(f"the store has not answered for {_PATIENCE:.0f} s")
        return _response(problems)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


def _problems_of_store(app: Scheduler) -> list[str]:
    try:
        app.store.get_record("probe", "default", "probe")
    except StoreUnavailable:
        # The reason may name hosts, and a probe has no password: the log has it.
        return ["the store is unavailable"]
    return []


def _problems_of_node(app: Scheduler) -> list[str]:
    node = app.node
    return [] if node is None else list(readiness(node.process_status(), time.monotonic()).problems)


def _response(problems: list[str]) -> Response:
    body = msgspec.json.encode({"ok": not problems, "problems": problems} if problems else {"ok": True})
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
