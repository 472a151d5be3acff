"""The receiver of the demo's alerts: a webhook in the same process, so they arrive without a network."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHANNEL = "on-call"
CHANNEL_VARIABLE = "EVENBEAT_SECRET_ON_CALL"
"""The variable with the address of the channel: the receiver gets another port at each start."""


class OnCall:
    """Takes the alerts of the channel, and passes the title of each one on. Use it as a context manager."""

    def __init__(self, show: Callable[[str], object]) -> None:
        class Receive(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                alert = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(HTTPStatus.NO_CONTENT)
                self.end_headers()
                show(alert["title"])

            def log_message(self, *_: object) -> None:
                """Log nothing: the alert itself is shown."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="evenbeat-demo-on-call", daemon=True
        )

    def __enter__(self) -> OnCall:
        os.environ[CHANNEL_VARIABLE] = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        del os.environ[CHANNEL_VARIABLE]
