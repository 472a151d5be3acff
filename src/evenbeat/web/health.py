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
from evenbeat.errors import EvenbeatError
from evenbeat.observe.health import readiness
from evenbeat.web.state import WebState

# Seconds that the store may take to answer.
_PATIENCE = 3.0

_log = logging.getLogger("evenbeat.web.health")


def health_routes(state: WebState) -> list[Route]:
    """Return the routes of probes."""

    async def healthz(_: Request) -> Response:
        return _response(HTTPStatus.OK, {"ok": True})

    probe = _StoreProbe(state.app)

    async def readyz(_: Request) -> Response:
        problems = _problems_of_node(state.app) + await probe.problems()
        status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
        return _response(status, {"ok": not problems, "problems": problems})

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


class _StoreProbe:
    """Asks the store whether it answers, once at a time: probes need no token, so there may be any number."""

    def __init__(self, app: Scheduler) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._asked: Future[list[str]] | None = None
        self._is_away = False

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
            self._app.store.get_record("probe", "default", "probe")
        except Exception as error:
            # The reason may name hosts, and a probe needs no token: only the log has it, once per outage.
            if not self._is_away:
                defect = None if isinstance(error, EvenbeatError) else error
                _log.warning(
                    "the store does not answer probes: %s", error, exc_info=defect, extra={"component": "web"}
                )
            self._is_away = True
            asked.set_result(["the store is unavailable"])
        else:
            self._is_away = False
            asked.set_result([])


def _problems_of_node(app: Scheduler) -> list[str]:
    node = app.node
    return [] if node is None else list(readiness(node.process_status(), time.monotonic()).problems)


def _response(status: HTTPStatus, body: dict[str, object]) -> Response:
    return Response(msgspec.json.encode(body), status, {"Cache-Control": "no-store"}, "application/json")
