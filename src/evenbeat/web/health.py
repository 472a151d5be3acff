"""``/healthz`` and ``/readyz``: exact paths that need no token, and say nothing about schedules or runs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from http import HTTPStatus

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

_log = logging.getLogger("evenbeat.web.health")


def health_routes(state: WebState) -> list[Route]:
    """Return the routes of probes."""

    async def healthz(_: Request) -> Response:
        return _response([])

    probe = _StoreProbe(state.app)

    async def readyz(_: Request) -> Response:
        return _response(_problems_of_node(state.app) + await probe.problems())

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class _StoreProbe:
    """Asks the store whether it answers: once at a time, however many probes come, since nobody needs a token
    to send them."""

    def __init__(self, app: Scheduler) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._asked: Future[list[str]] | None = None

    async def problems(self) -> list[str]:
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = Future()
                # The thread of a store that does not answer is left behind; the store's own timeout ends it.
                threading.Thread(
                    target=self._ask, args=(self._asked,), name="evenbeat-web-probe", daemon=True
                ).start()
            asked = asyncio.wrap_future(self._asked)
        done, _ = await asyncio.wait([asked], timeout=_PATIENCE)
        return asked.result() if done else [f"the store has not answered for {_PATIENCE:.0f} s"]

    def _ask(self, asked: Future[list[str]]) -> None:
        try:
            asked.set_result(_problems_of_store(self._app))
        except Exception:
            _log.exception("a probe of the store failed", extra={"component": "web"})
            asked.set_result(["the store is unavailable"])


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
