"""Be told of a failing job: once, again at the third failure in a row, and when it works again.

python examples/alerts.py
"""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

from evenbeat import Scheduler, every

told: Queue[dict[str, str]] = Queue()


class Receiver(BaseHTTPRequestHandler):
    """The program on the other side of the webhook."""

    def do_POST(self) -> None:
        told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main(folder: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    is_bank_up = threading.Event()

    # A webhook on this machine has a private address, which must be allowed by name.
    app = Scheduler(f"sqlite:///{folder / 'evenbeat.db'}", allow_private_webhooks=["127.0.0.1"])

    @app.task(schedule=every("1s"))
    def charge() -> None:
        if not is_bank_up.is_set():
            raise ConnectionError("the bank is away")

    app.alerts.declare_channel("ops", "webhook", f"http://127.0.0.1:{server.server_port}/")
    app.alerts.declare_rule("failures", on=["failed", "failing:3"], to="ops")

    logging.getLogger("evenbeat").setLevel(logging.CRITICAL)  # the failures are part of the example
    with app:
        for wanted in ("opened", "escalated", "recovered"):
            alert = told.get(timeout=60)
            assert alert["announcement"] == wanted
            print(f"{alert['announcement']}: {alert['title']}")
            if wanted == "escalated":
                is_bank_up.set()
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(Path(folder))
