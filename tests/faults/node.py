"""A node for fault tests: a scheduler on one SQLite file, until told to stop.

    python node.py DATABASE NAME [FAILPOINT]

A failpoint such as ``commit:3`` kills the process with SIGKILL when the store is about to send that
command for the third time; ``committed:3`` right after the third commit. What it did goes to stdout,
a JSON line each, written before the process can die.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from evenbeat import Event, Run, Scheduler
from evenbeat.stores.sqlite import SqliteStore

_SAYING = threading.Lock()


class Failpoint:
    """Kills this process at the nth command of a name."""

    def __init__(self, text: str | None) -> None:
        self._command, _, nth = (text or "").partition(":")
        self._nth = int(nth or 0)
        self._seen: Counter[str] = Counter()

    def __call__(self, command: str) -> None:
        self._seen[command] += 1
        if command == self._command and self._seen[command] == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)


def report(what: str, run: str, attempt: int) -> None:
    with _SAYING:
        sys.stdout.write(json.dumps({"what": what, "run": run, "attempt": attempt}) + "\n")
        sys.stdout.flush()


def main(database: Path, failpoint: str | None) -> None:
    store = SqliteStore(database, busy_timeout=0.5, on_command=Failpoint(failpoint))
    # A short lease, so that a test sees it end.
    app = Scheduler(store, lease="1s", poll="50ms", threads=4)

    @app.task
    def work(run: Run) -> None:
        report("ran", run.id, run.attempt)

    @app.on_event
    def note(event: Event) -> None:
        if event.kind == "succeeded" and event.run is not None:
            report("done accepted", event.run.id, event.run.attempt)

    app.start()
    stop = database.with_suffix(".stop")
    while not stop.exists():
        time.sleep(0.02)
    app.stop()
    app.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else None)
