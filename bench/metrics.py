"""Metrics: how long a scrape takes with 100,000 schedules, and what counting costs a node."""

from __future__ import annotations

import http.client
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import apps, web_catalogue
from bench.databases import TITLES, place, present
from bench.measure import Row, median, percentile
from bench.processes import process, processor_seconds, scratch, until
from bench.web import get, serving
from evenbeat import Scheduler
from evenbeat.app.metrics import MOST_SCHEDULES
from evenbeat.core.records import RunRecord
from evenbeat.node import counting, node, rollups
from evenbeat.node.metered_store import metered
from evenbeat.stores.base import Store

SCRAPES = 30
GOAL_SCRAPE = 300
RUNS = 5_000
PAIRS = 25
GOAL_COST = 0.03
_ON, _OFF = signal.SIGUSR1, signal.SIGUSR2
# Nodes that have written counters for an hour, each of so many tasks.
NODES, TASKS = 20, 100


def run() -> list[Row]:
    return [*_scrapes(), *_cost()]


# -- scrapes -------------------------------------------------------------------------------------------------


def _scrapes() -> list[Row]:
    with scratch() as folder:
        rows = _scrapes_on("SQLite", f"sqlite:///{folder / 'bench.db'}", folder)
    for name in present("postgres"):
        with scratch() as folder, place(name) as url:
            rows += _scrapes_on(TITLES[name], url, folder)
    return rows


def _scrapes_on(store: str, url: str, folder: Path) -> list[Row]:
    """Measure with as many schedules as have series of their own, then with 100,000."""
    rows = []
    for count in (MOST_SCHEDULES, web_catalogue.SCHEDULES):
        app = Scheduler(url)
        present = 0 if count == MOST_SCHEDULES else MOST_SCHEDULES
        web_catalogue.fill(app.store, count - present, first=present)
        if not present:
            _write_counters(app.store)
        secret = app.tokens.create("bench").secret
        app.close()
        rows.append(_measured(f"scrape with {count:,} schedules on {store}", url, folder, secret))
    return rows


def _measured(name: str, url: str, folder: Path, secret: str) -> Row:
    times: list[float] = []
    with serving("bench.web_events", url, folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        for _ in range(SCRAPES):
            begin = time.perf_counter()
            get(connection, "/metrics", secret)
            times.append((time.perf_counter() - begin) * 1000)
        connection.close()
    (folder / "port of bench.web_events").unlink()
    times.sort()
    worst = percentile(times, 0.95)
    goal = f"< {GOAL_SCRAPE} ms (p95)"
    return Row("metrics", name, "ms", median(times), goal=goal, met=worst < GOAL_SCRAPE, p95=worst)


def _write_counters(store: Store) -> None:
    """Write what twenty nodes have counted, each with runs of a hundred tasks."""
    now = store.now()
    for at in range(NODES):
        counted = counting.Counting()
        counted.count_started(
            [
                RunRecord(
                    id="r", tenant=f"tenant-{task % 2}", task=f"task-{task}", attempt=1, started_at=now + 9
                )
                for task in range(TASKS)
            ],
            now,
        )
        for operation in ("fire", "claim", "settle", "heartbeat", "record"):
            counted.count_call(operation, 0.002)
        rollups.Rollups(store, counted, f"node-{at}").write(now, is_last=True)


# -- the cost of counting ------------------------------------------------------------------------------------


def _cost() -> list[Row]:
    """Have one node execute no-ops with and without counting, in turn, and compare each pair of rounds."""
    rates: list[float] = []
    used: list[float] = []
    counted: list[float] = []
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make("def", database)
        with process("-m", "bench.metrics", f"sqlite:///{database}") as child:
            _executed(app, child.pid)
            for at in range(PAIRS):
                # Each is first in every other pair: a machine that becomes slower favours neither.
                found = {}
                for is_on in (True, False) if at % 2 else (False, True):
                    child.send_signal(_ON if is_on else _OFF)
                    found[is_on] = _executed(app, child.pid)
                rates.append(found[True].rate / found[False].rate)
                used.append(found[True].used / found[False].used)
                counted.append(found[True].rate)
        app.close()
    lost, more = 1 - median(rates), median(used) - 1
    goal = f"< {GOAL_COST:.0%}"
    return [
        Row("metrics", f"{RUNS:,} `def` no-ops on SQLite, counted", "runs/s", median(counted)),
        Row("metrics", "of the rate is lost by counting", "%", lost * 100, goal=goal, met=lost < GOAL_COST),
        Row("metrics", "more processor time of the node by counting", "%", more * 100),
    ]


class Executed(NamedTuple):
    """What a round has shown."""

    rate: float
    """Runs in a second."""
    used: float
    """The seconds of processor time of the node."""


def _executed(app: Scheduler, pid: int) -> Executed:
    task = app.tasks.get("noop")
    assert task is not None
    before, begin = processor_seconds(pid), time.perf_counter()
    app.enqueue_many(task.bind() for _ in range(RUNS))
    # The queues alone: the history grows from round to round.
    until(lambda: not app.store.count_queues(app.store.now(), app.store.now()))
    return Executed(RUNS / (time.perf_counter() - begin), processor_seconds(pid) - before)


class Switchable:
    """A store that is metered only while counting is on."""

    is_on = True

    def __init__(self, store: Store, *arguments: Any, **options: Any) -> None:
        self._plain, self._metered = store, metered(store, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metered if Switchable.is_on else self._plain, name)


def _serve(url: str) -> None:
    """Run a node that counts after one signal and not after another."""
    names = ("count", "count_call", "count_fired", "count_started", "count_ended", "count_taken_over")
    real = {name: getattr(counting.Counting, name) for name in names}

    def switch(number: int, _: object) -> None:
        Switchable.is_on = number == _ON
        for name, method in real.items():
            setattr(counting.Counting, name, method if Switchable.is_on else _nothing)

    for number in (_ON, _OFF):
        signal.signal(number, switch)
    node.metered = Switchable  # type: ignore[attr-defined]  # imported there
    apps.make("def", url).run()


def _nothing(*_: Any, **__: Any) -> None:
    pass


if __name__ == "__main__":
    match sys.argv[1:]:
        case [url]:
            _serve(url)
        case _:
            from tests.servers import stop_shared

            try:
                for row in run():
                    print(f"{row.name}: {row.ours:.2f} {row.unit} {row.p95 or ''} {row.goal} {row.met}")
            finally:
                stop_shared()
