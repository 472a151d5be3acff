"""Serving: the ASGI app on a port, by uvicorn."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evenbeat.errors import EvenbeatError, InvalidValue, shown
from evenbeat.processes.signals import until_signalled
from evenbeat.web.settings import WebSettings, is_loopback

if TYPE_CHECKING:
    from evenbeat.web.app import WebApp

# Seconds that requests may take to end when the server stops.
_STOP_PATIENCE = 5
# Seconds in which the header of a request must arrive.
HEAD_PATIENCE = 10.0
# Seconds that the server may take to start.
_START_PATIENCE = 10.0

_log = logging.getLogger("evenbeat.web.serving")


class CannotListen(EvenbeatError):
    """The address is in use, or this user may not listen on it."""


class ServerEnded(EvenbeatError):
    """The server ended without having been asked to."""


def check_bind(host: str, settings: WebSettings) -> None:
    """Refuse to serve without tokens on an address that other machines reach.

    The address that the server is bound to decides, never the address of a peer: behind a proxy, every peer
    looks local.
    """
    if not settings.needs_token and not is_loopback(host):
        raise InvalidValue(
            f"host {shown(host)} is reachable from other machines, and no token is asked for",
            field="host",
            value=host,
            hint="bind to 127.0.0.1, or ask for tokens",
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.create_server((host.strip("[]"), port), family=family, backlog=512)
    except OSError as error:
        # Python adds the address to strerror.
        why = str(error) if error.errno is None else os.strerror(error.errno)
        raise CannotListen(f"can't listen on {host}:{port}: {why}") from error
    found.set_inheritable(False)
    # asyncio sets it only for sockets made with IPPROTO_TCP, which this one is not. Without it, each answer
    # waits 40 ms for the client to acknowledge its head. Accepted connections inherit it.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


class _Protocol(H11Protocol):
    """Closes connections on which no whole header arrives: uvicorn itself keeps them for ever.

    Each of them takes a file descriptor, also from a node in the same process, and anybody can open one: the
    token comes with the header.
    """

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._limit_wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._giving_up is not None:
            self._giving_up.cancel()

    def _limit_wait(self) -> None:
        is_waiting = self.conn.their_state is h11.IDLE
        if is_waiting and self._giving_up is None:
            self._giving_up = self.loop.call_later(HEAD_PATIENCE, self.transport.close)
        elif not is_waiting and self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


class _Server(uvicorn.Server):
    """Ends event streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, before_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._before_stop = before_stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._before_stop()
        await super().shutdown(sockets)


class WebServer:
    """The web app on a socket: in this thread by ``run``, or in a thread of its own by ``start``."""

    def __init__(self, web: WebApp, bound: socket.socket) -> None:
        host, port = bound.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.places = f"Evenbeat's dashboard is at {self.url}/, its API at {self.url}/api/v1"
        self._web = web
        self._socket = bound
        config = uvicorn.Config(
            web,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            # Forwarded headers are read by the gate, and only from named proxies.
            proxy_headers=False,
            lifespan="off",
            http=_Protocol,
            timeout_graceful_shutdown=_STOP_PATIENCE,
            limit_concurrency=None,
            h11_max_incomplete_event_size=32_768,
        )
        self._server = _Server(config, web.end_streams)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve until a signal to stop comes; another one does not wait for requests that are under way.

        In the main thread alone. uvicorn's own way ends the process by the signal, as if it had crashed.
        """
        try:
            until_signalled(self._hurry, over=lambda: not self._is_alive(), start=self.start)
            if not self._is_alive():
                raise ServerEnded("the web server ended by itself; its log says why")
        finally:
            self.stop()

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _hurry(self) -> None:
        self._server.force_exit = True

    def start(self) -> None:
        """Serve in a thread, until ``stop``. Alert rules are evaluated from now on, before any request."""
        self._web.state.watch_alerts()
        # Signals belong to the main thread's program.
        thread = threading.Thread(target=self._serve, name="evenbeat-web", daemon=True)
        self._thread = thread
        thread.start()
        waited = threading.Event()
        left = _START_PATIENCE
        while not self._server.started and thread.is_alive() and left > 0:
            waited.wait(0.01)
            left -= 0.01
        if not self._server.started:
            raise CannotListen(f"the web server did not start on {self.url}; its log says why")

    def _serve(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except Exception:
            _log.exception("the web server failed")

    def stop(self) -> None:
        """Stop, and wait for requests that are under way."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_PATIENCE + 5)
            self._thread = None
        self._web.close()
