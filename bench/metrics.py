"""Metrics: how long a scrape takes with 100,000 schedules, and what counting costs a node."""

from __future__ import annotations

import http.client
import sys
import time
from pathlib import Path
from typing import Any

from bench import apps, web_catalogue
from bench.databases import TITLES, place, present
from bench.measure import Row, median, percentile
from bench.processes import process, processor_seconds, scratch, until
from bench.web import get, serving
from evenbeat import Scheduler
from evenbeat.app.metrics import MOST_SCHEDULES
from evenbeat.node import counting, node, rollups
from evenbeat.stores.base import Store

SCRAPES = 30
GOAL_SCRAPE = 300
RUNS = 10_000
ROUNDS = 9
GOAL_COST = 0.03
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
    from evenbeat.core.records import RunRecord

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
    """Execute no-ops with and without counting, in turn, and compare round by round."""
    rates: list[float] = []
    used: list[float] = []
    with_counting: list[float] = []
    for at in range(ROUNDS):
        # Each is first in every other round: a machine that becomes slower favours neither.
        order = ("on", "off") if at % 2 else ("off", "on")
        found = {how: _rate(how) for how in order}
        rates.append(found["on"][0] / found["off"][0])
        used.append(found["on"][1] / found["off"][1])
        with_counting.append(found["on"][0])
    lost, more = 1 - median(rates), median(used) - 1
    goal = f"< {GOAL_COST:.0%}"
    return [
        Row("metrics", f"{RUNS:,} `def` no-ops on SQLite, counted", "runs/s", median(with_counting)),
        Row("metrics", "of the rate is lost by counting", "%", lost * 100, goal=goal, met=lost < GOAL_COST),
        Row("metrics", "more processor time of the node by counting", "%", more * 100),
    ]


def _rate(how: str) -> tuple[float, float]:
    """Return the runs that a node executes in a second, and the seconds of processor time that it needs."""
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make("def", database)
        task = app.tasks.get("noop")
        assert task is not None
        with process("-m", "bench.metrics", how, f"sqlite:///{database}") as child:
            assert app.runs.join(app.enqueue(task).id, "30s").state == "succeeded"
            before, begin = processor_seconds(child.pid), time.perf_counter()
            app.enqueue_many(task.bind() for _ in range(RUNS))
            until(lambda: app.runs.count().get("succeeded") == RUNS + 1)
            taken, used = time.perf_counter() - begin, processor_seconds(child.pid) - before
        app.close()
    return RUNS / taken, used


def _without_counting() -> None:
    """Replace all that counts by functions that do nothing."""

    def nothing(*_: Any, **__: Any) -> None:
        pass

    for name in ("count", "count_call", "count_fired", "count_started", "count_ended", "count_taken_over"):
        setattr(counting.Counting, name, nothing)
    node.metered = lambda store, *_, **__: store  # type: ignore[attr-defined]  # imported there


if __name__ == "__main__":
    match sys.argv[1:]:
        case [how, url]:
            if how == "off":
                _without_counting()
            apps.make("def", url).run()
        case _:
            from tests.servers import stop_shared

            try:
                for row in run():
                    print(f"{row.name}: {row.ours:.2f} {row.unit} {row.p95 or ''} {row.goal} {row.met}")
            finally:
                stop_shared()
