"""The quiet tenant beside the flood: how late its runs start while 50,000 runs of another tenant are due.

One node with the default settings executes both in another process; on the store in memory, in this one. The
quiet tenant enqueues a run every 20 ms, which notes when it started. Measured in turn with and without the
flood. The runs of the flood do nothing, so the node is as busy as it can be; what is left of the flood at the
end must not be nothing, or the last runs were not beside it.
``python -m bench.fairness 20000 SQLite`` measures one store with another flood.
"""

from __future__ import annotations

import sys
import time

import msgspec

from bench import apps, databases
from bench.databases import StoreName, store_place
from bench.measure import Row, median, percentile
from bench.processes import scratch, until
from evenbeat import Scheduler

FLOOD = 50_000
QUIET = 100
EVERY = 0.02
ROUNDS = 3
_ADDED = 1_000


def run(flood: int = FLOOD, *stores: StoreName) -> list[Row]:
    """Measure these stores, by default all, with a flood of so many thousands of runs."""
    rows: list[Row] = []
    for place in stores or databases.stores():
        calm: list[list[float]] = []
        beside: list[list[float]] = []
        for _ in range(ROUNDS):
            calm.append(_lates(place, 0))
            beside.append(_lates(place, flood))
        p50, p95, p99 = (_median(beside, share) for share in (0.5, 0.95, 0.99))
        others = {"without the flood": _median(calm, 0.5), "without the flood, p99": _median(calm, 0.99)}
        title = f"{place}: a run of a quiet tenant beside {flood:,} of another, half of them"
        rows.append(Row("fairness", title, "ms", p50, others, p95=p95, p99=p99))
    return rows


def _median(rounds: list[list[float]], share: float) -> float:
    return median([percentile(sorted(values), share) for values in rounds])


def _lates(place: StoreName, flood: int) -> list[float]:
    """Return how late the quiet tenant's runs started, in milliseconds."""
    with store_place(place) as url, scratch() as folder:
        app = apps.make("flood", url)
        # All of them are there before the node starts.
        for _ in range(flood // _ADDED):
            app.enqueue_many([("noop", {})] * _ADDED, tenant="flood")
        databases.analyze(url)
        if place == "memory":
            apps.STARTS.clear()
            with app:
                _enqueue_quiet(app, flood)
            starts = list(apps.STARTS)
        else:
            noted = folder / "bench.starts"
            with apps.node("flood", url, noted):
                _enqueue_quiet(app, flood)
            app.close()
            starts = apps.read_starts(noted)
    late = [(began - due) * 1000 for due, began in starts if due]
    assert len(late) == QUIET, f"{place}: {len(late)} of {QUIET} started"
    return late


def _enqueue_quiet(app: Scheduler, flood: int) -> None:
    first = app.enqueue("stamp", {"due": 0}, tenant="quiet")
    assert app.runs.join(first.id, "60s", tenant="quiet").state == "succeeded"
    for _ in range(QUIET):
        app.enqueue("stamp", {"due": time.time()}, tenant="quiet")
        time.sleep(EVERY)
    left = app.runs.count(tenant="flood").get("queued", 0)
    if flood and not left:
        print("  the flood was over before the last quiet runs: enqueue more", file=sys.stderr)
    until(lambda: app.runs.count(tenant="quiet") == {"succeeded": QUIET + 1}, every=0.2)


if __name__ == "__main__":
    chosen = msgspec.convert(sys.argv[2:], list[StoreName])
    for row in run(int(sys.argv[1]) if sys.argv[1:] else FLOOD, *chosen):
        print(row)
