"""A node for fault tests of alerts: its jobs fail, and it announces that, with short turns and claims.

    python -m tests.faults.watcher URL STOP --armed FILE

It ends when the file STOP exists. FILE arms a failpoint of all watchers: ``batch 3`` kills the first process
that is about to send the third command since it has read signals; ``turn 3`` since it has looked whose turn
it is; ``send 3`` since it has begun to claim a delivery. Only the commands of the threads that evaluate rules
and send alerts count.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from evenbeat import Scheduler
from evenbeat.alerts import sender, service
from evenbeat.alerts.evaluation import Evaluation
from evenbeat.alerts.watch import AlertWatch
from tests.faults.node import make_store, persist, report

TURN_MS = 250
CLAIMED_MS = 1_000


class ArmedFailpoint:
    """Kills this process at a command, unless another process was faster."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed
        self._at: int | None = None
        self._seen = 0
        self._guard = threading.Lock()

    def begin(self, kind: str) -> None:
        """Count from here on, if the failpoint is armed for this kind of beginning."""
        try:
            wanted, at = self._armed.read_text().split()
        except (FileNotFoundError, ValueError):
            return
        if wanted == kind:
            with self._guard:
                self._at, self._seen = int(at), 0

    def __call__(self, _command: str) -> None:
        if self._at is None or not threading.current_thread().name.startswith("evenbeat-alert"):
            return
        with self._guard:
            self._seen += 1
            is_here = self._seen == self._at
        if is_here:
            try:
                self._armed.rename(self._armed.with_name(f"died-{os.getpid()}"))
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)


def begin_before(kind: type, method: str, begin: Callable[[], None]) -> None:
    whole = getattr(kind, method)

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        begin()
        return whole(self, *args, **options)

    setattr(kind, method, counted)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("stop", type=Path)
    parser.add_argument("--armed", type=Path, required=True)
    parser.add_argument("--really")
    options = parser.parse_args()
    failpoint = ArmedFailpoint(options.armed)
    begin_before(AlertWatch, "step", lambda: failpoint.begin("turn"))
    begin_before(Evaluation, "_take_batch", lambda: failpoint.begin("batch"))
    begin_before(sender.AlertSender, "_claim", lambda: failpoint.begin("send"))
    sender.CLAIMED_FOR = CLAIMED_MS
    setattr(service, "AlertService", partial(service.AlertService, every=TURN_MS))  # noqa: B010  # mypy
    app = Scheduler(make_store(options.url, failpoint), lease="5s", allow_private_webhooks=["127.0.0.1"])

    @app.task
    def work() -> None:
        raise ValueError("boom")

    persist(app.start)
    report("started", pid=os.getpid())
    while not options.stop.exists():
        time.sleep(0.02)
    app.stop(timeout="2s")
    app.close()


if __name__ == "__main__":
    main()
