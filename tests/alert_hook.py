"""A real receiver of webhooks, on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook(ThreadingHTTPServer):
    """Keeps what arrives."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.messages: list[dict[str, Any]] = []
        self.arrived = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def await_messages(self, number: int) -> list[dict[str, Any]]:
        """Wait until so many have arrived; return all of them."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.messages) >= number, 30)
            return list(self.messages)


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.arrived:
            self.server.messages.append(message)
            self.server.arrived.notify_all()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def hook() -> Iterator[Hook]:
    server = Hook()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
