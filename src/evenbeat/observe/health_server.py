"""Health over HTTP, for probes: ``GET /healthz`` and ``GET /readyz``. Standard library only.

``/healthz`` answers 200 as long as this process answers at all. ``/readyz`` answers 200 if the process works,
else 503 with the reasons: the judgement is ``readiness`` of ``observe/health.py``, which ``evenbeat health``
shares. Neither calls the store, so that a probe never waits for it.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, NamedTuple

from evenbeat.errors import InvalidValue
from evenbeat.observe.health import readiness
from evenbeat.observe.status_files import ProcessStatus

LARGEST_REQUEST = 8192
"""Bytes of a request's line and headers. A body is never read."""
LONGEST_REQUEST = 5.0
"""Seconds in which the whole request must arrive."""
# A probe takes a millisecond. More connections than this are closed at once.
_MOST_AT_ONCE = 16
_LARGEST_REST, _LONGEST_REST = 65_536, 1.0
_ALLOWED = "GET, HEAD"

_log = logging.getLogger("evenbeat.observe.health_server")


class Answer(NamedTuple):
    """The status code and the JSON body of an answer."""

    code: HTTPStatus
    body: dict[str, Any]


def answer(path: str, status: ProcessStatus) -> Answer:
    """Return the answer to a request for ``path``, by the status of this process."""
    route = path.partition("?")[0]
    if route == "/healthz":
        return Answer(HTTPStatus.OK, {"ok": True})
    if route == "/readyz":
        ready = readiness(status, time.monotonic())
        code = HTTPStatus.OK if ready.ok else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(code, {"ok": ready.ok, "problems": list(ready.problems)})
    return Answer(HTTPStatus.NOT_FOUND, {"ok": False, "problems": ["only /healthz and /readyz exist"]})


class HealthServer:
    """Answers probes in daemon threads. ``status`` returns the status of this process, and must not block."""

    def __init__(self, host: str, port: int, status: Callable[[], ProcessStatus]) -> None:
        """``port`` 0 takes a free one."""
        self._host = host
        self._port = port
        self._status = status
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """The address that is served, with the port that was taken."""
        assert self._server is not None, "start() comes first"
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def start(self) -> None:
        """Open the port and answer; ``InvalidValue`` if it can't be opened."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, address, self._status)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidValue(
                f"health_port {self._port} can't be opened on {self._host}: {reason}",
                field="health_port",
                value=self._port,
                hint="choose another port, 0 for any that is free, or another health_host",
            ) from error
        serve = self._server.serve_forever
        threading.Thread(target=serve, name="evenbeat-health", daemon=True).start()
        _log.info("health is served", extra={"component": "health", "url": self.url})

    def stop(self) -> None:
        """Close the port. Safe to repeat."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Not ``HTTPServer``, which looks up the host's name when it binds."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, family: int, address: Any, status: Callable[[], ProcessStatus]) -> None:
        self.address_family = family
        self.status = status
        self._slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a probe could not be answered", exc_info=True, extra={"component": "health"})


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes the connection."""

    server: _Server

    def handle(self) -> None:
        head = _read_head(self.connection)
        if head is None:
            return
        self.rfile = BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        if len(head) > LARGEST_REQUEST:
            self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.parse_request():
            # Not self.path, in which several slashes at the start are one.
            found = answer(self.requestline.split()[1], self.server.status())
            if found.code != HTTPStatus.NOT_FOUND and self.command not in ("GET", "HEAD"):
                self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            else:
                self._send(found)
        _close_gently(self.connection)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with our own JSON: the base class answers with a page, which names Python's version."""
        status = HTTPStatus(code)
        if self.request_version == "HTTP/0.9":  # what the base class assumes of a line that it can't read
            self.request_version = "HTTP/1.0"
        self._send(Answer(status, {"ok": False, "problems": [message or status.phrase.lower()]}))

    def _send(self, reply: Answer) -> None:
        body = json.dumps(reply.body, ensure_ascii=False).encode()
        self.send_response_only(reply.code)
        self.send_header("Date", self.date_time_string())
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        if reply.code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", _ALLOWED)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
        """Log nothing: a probe comes every few seconds."""


def _read_head(connection: socket.socket) -> bytes | None:
    """Return the request's line and headers, and at most a little more than ``LARGEST_REQUEST`` bytes.

    None if they do not arrive in time. The base class limits each read, not the whole request.
    """
    deadline = time.monotonic() + LONGEST_REQUEST
    head = b""
    while len(head) <= LARGEST_REQUEST and b"\r\n\r\n" not in head and b"\n\n" not in head:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        connection.settimeout(left)
        part = b""
        with suppress(OSError):
            part = connection.recv(4096)
        if not part:
            return None
        head += part
    connection.settimeout(LONGEST_REQUEST)
    return head


def _close_gently(connection: socket.socket) -> None:
    """Read the rest of what the client sends, within bounds: a close before that could discard the answer."""
    deadline = time.monotonic() + _LONGEST_REST
    rest = _LARGEST_REST
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while rest > 0 and (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            part = connection.recv(4096)
            if not part:
                return
            rest -= len(part)
