"""A node for fault tests: a real scheduler on a real store.

    python -m tests.faults.node URL STOP [--failpoint NAME:N] [--record] [--broken KIND] [--lease 30s]
                                [--timeout 5] [--fires]

It ends when the file STOP exists. A failpoint such as ``commit:3`` kills the process with SIGKILL when the
store is about to send that command for the third time; ``committed:3`` right after the third commit. The node
reports what it does on stdout, as JSON lines, each written before the process can die.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evenbeat import Event, RunContext, Scheduler
from evenbeat.core.records import Execution
from evenbeat.stores.base import Store
from evenbeat.stores.sqlite import SqliteStore
from tests.faults import broken

LEASE = "1s"
TIMEOUT = 1.0
"""Seconds that a node waits for a server: short, so that tests are quick."""

_SAYING = threading.Lock()


class Failpoint:
    """Kills this process at the nth command of a name."""

    def __init__(self, text: str | None) -> None:
        self._command, _, nth = (text or "").rpartition(":")
        self._nth = int(nth or 0)
        self.seen: Counter[str] = Counter()

    def __call__(self, command: str) -> None:
        self.seen[command] += 1
        if command == self._command and self.seen[command] == self._nth:
            os.kill(os.getpid(), signal.SIGKILL)


def make_store(url: str, on_command: Callable[[str], None] | None = None, timeout: float = TIMEOUT) -> Store:
    """Open a store with short timeouts, unless longer ones are given."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return SqliteStore(parts.path[1:], busy_timeout=timeout / 2, on_command=on_command)
    if parts.scheme == "postgresql":
        from evenbeat.stores.postgres import PostgresStore

        return PostgresStore(url, timeout=timeout, lock_timeout=timeout, on_command=on_command)
    if parts.scheme == "mongodb":
        from evenbeat.stores.mongo import MongoStore

        return MongoStore(url, timeout=timeout, lock_timeout=timeout, on_command=on_command)
    from evenbeat.stores.redis import RedisStore

    return RedisStore(url, timeout=timeout, on_command=on_command)


def report(what: str, **facts: object) -> None:
    with _SAYING:
        sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
        sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("stop", type=Path)
    parser.add_argument("--failpoint")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--broken", choices=sorted(broken.KINDS))
    parser.add_argument("--lease", default=LEASE)
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds to wait for the store")
    parser.add_argument("--fires", action="store_true", help="report fires as well")
    parser.add_argument("--really", help="the real time of the machine")
    options = parser.parse_args()
    failpoint = Failpoint(options.failpoint)
    store = make_store(options.url, failpoint, options.timeout)
    if options.broken:
        store = broken.KINDS[options.broken](store)
    app = Scheduler(store, lease=options.lease, thread_concurrency=4)

    @app.task
    def work(run: RunContext) -> None:
        report("ran", run=run.id, attempt=run.attempt)
        time.sleep(0.01)  # so that nodes die and freeze in the middle of runs, too

    @app.task
    def charge(run: RunContext, customer: int) -> None:
        """Take a slot of a limit for a while; report the begin and the end."""
        report("ran", run=run.id, attempt=run.attempt, at=time.time())
        time.sleep(0.3)
        report("ended", run=run.id, attempt=run.attempt, at=time.time())

    @app.task
    async def steady(run: RunContext, period: int, early: int) -> None:
        """End up to ``early`` ms before the next tick of the schedule; report the begin and the end."""
        began = time.monotonic()
        grid = 0.0 if run.tick is None else run.tick.timestamp() * 1000
        left = period - (time.time() * 1000 - grid) % period
        left += period if left < early else 0
        await asyncio.sleep((left - random.uniform(0, early)) / 1000)
        report("spent", run=run.id, schedule=run.schedule, began=began, ended=time.monotonic())

    @app.task
    async def brief(run: RunContext) -> None:
        """End soon, and fail now and then; report the begin and the end, also after a cancel."""
        began = time.monotonic()
        try:
            await asyncio.sleep(0.02)
            if random.random() < 0.1:
                raise RuntimeError("this happens")
        finally:
            report("spent", run=run.id, schedule=run.schedule, began=began, ended=time.monotonic())

    @app.task
    def hold(run: RunContext) -> None:
        """Run until the worker dies; the next attempt ends at once."""
        report("held", run=run.id, attempt=run.attempt, at=time.time())
        if run.attempt == 1:
            time.sleep(60)

    @app.task
    def nap(run: RunContext) -> None:
        """Wait in the first attempt while the process is frozen, and end after it is thawed."""
        report("held", run=run.id, attempt=run.attempt, at=time.time())
        if run.attempt == 1:
            time.sleep(0.5)

    register_flows(app)

    @app.on_event
    def note(event: Event) -> None:
        if event.kind == "succeeded" and event.run is not None:
            report("done accepted", run=event.run.id, attempt=event.run.attempt)
        if options.fires and event.kind == "fired":
            report("fired", at=time.time())

    persist(app.start)
    # The time of this machine, and its real time without libfaketime.
    really = float(options.really) if options.really else time.time()
    report("started", pid=os.getpid(), clock=time.time(), really=really)
    while not options.stop.exists():
        time.sleep(0.02)
    if options.record:
        report("commands", names=dict(failpoint.seen))
    app.stop(timeout="2s")
    app.close()


def register_flows(app: Scheduler) -> None:
    """Register a flow with two maps, a flow within it, and joins of all of them."""

    @app.task(max_crashes=1000)
    def numbers(run: RunContext, size: int) -> list[int]:
        report("ran", run=run.id, attempt=run.attempt)
        return list(range(size))

    @app.task(max_crashes=1000)
    def double(number: int, run: RunContext) -> int:
        report("ran", run=run.id, attempt=run.attempt)
        time.sleep(0.01)
        return 2 * number

    @app.task(max_crashes=1000)
    def total(parts: list[int], run: RunContext) -> int:
        report("ran", run=run.id, attempt=run.attempt)
        return sum(parts)

    @app.flow
    def doubled(parts: list[int]) -> Any:
        return total.step(double.map(parts))

    # A flow has no such option: most flows begin at the first try.
    doubled.execution = Execution(max_crashes=1000)

    @app.flow
    def pipeline(size: int = 3) -> Any:
        made = numbers.step(size)
        left = double.map(made, step_name="left")
        right = double.map(made, step_name="right")
        inner = doubled.step(left)
        return total.step([inner, total.step(right)], step_name="all")


def persist(start: Callable[[], None]) -> None:
    """Start the node, and retry while the server is unavailable, as a service manager would."""
    from evenbeat.errors import StoreUnavailable

    while True:
        try:
            start()
        except StoreUnavailable:
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main()
