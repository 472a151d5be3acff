"""Purging: how long a claim takes while a pruner deletes a long history, and how fast that is.

A pruner purges in another process, as on another node, with the batches and rests of a node. Meanwhile this
process adds, claims and ends one run at a time. The goal is that no claim takes 50 ms longer than without.
The time that this process waits for a CPU is subtracted, and shown in a row of its own: on a busy machine,
such a wait was 219 ms of a commit of 220 ms. Waits for a purge that has the lock but no CPU
are not subtracted.
``python -m bench.purging 1000000 SQLite`` measures one store with another number of runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import msgspec

from bench import databases
from bench.databases import StoreName, store_place
from bench.measure import Row, median, percentile
from evenbeat.core.records import Record, RunRecord
from evenbeat.node.pruner import Pruner
from evenbeat.rules import attempts, retention
from evenbeat.stores.base import Claim, Store
from evenbeat.stores.urls import open_url

RUNS: dict[StoreName, int] = {
    "SQLite": 1_000_000,
    "PostgreSQL": 1_000_000,
    "Valkey": 200_000,
    "MongoDB": 200_000,
}
ADDED = 5_000
BEFORE = 5_000
"""How many claims are measured without a purge."""
GOAL = 50
_LONGEST_REST = 1_000
_SCHEDULING = Path("/proc/self/schedstat")


class _Claimed(NamedTuple):
    """The seconds of a claim."""

    took: float
    """Without ``waited``."""
    waited: float
    """For a CPU."""


def run(number: int | None = None, *stores: StoreName) -> list[Row]:
    """Measure these stores with so many runs; by default all that are not in memory, with ``RUNS``."""
    rows: list[Row] = []
    for name in stores or databases.stores():
        if name in RUNS:
            rows += _measured(name, number or RUNS[name])
    return rows


def _measured(name: StoreName, number: int) -> Iterator[Row]:
    with store_place(name) as url:
        store = open_url(url)
        store.open()
        _fill(store, number)
        databases.analyze(url)
        calm = [_claim(store) for _ in range(BEFORE)]
        began = time.perf_counter()
        purging = subprocess.Popen([sys.executable, "-m", "bench.purging", "--purge", url])
        busy: list[_Claimed] = []
        while purging.poll() is None:
            busy.append(_claim(store))
        took = time.perf_counter() - began
        assert purging.returncode == 0
        assert store.count_runs("old") == {}
        store.close()
    times = sorted(each.took for each in busy)
    longest, usual = times[-1] * 1000, max(each.took for each in calm) * 1000
    yield Row(
        "purging",
        f"{name}: a claim while {number:,} runs are purged",
        "ms",
        median(times) * 1000,
        peers={"without a purge": median([each.took for each in calm]) * 1000},
        p99=percentile(times, 0.99) * 1000,
    )
    yield Row(
        "purging",
        f"{name}: the longest of {len(busy):,} claims, without its waits for a CPU",
        "ms",
        longest,
        peers={f"the longest of {BEFORE:,} without a purge": usual},
        goal=f"at most {GOAL} ms longer",
        met=longest <= usual + GOAL,
    )
    yield Row(
        "purging",
        f"{name}: the longest of these claims, with its waits for a CPU",
        "ms",
        max(map(sum, busy)) * 1000,
        peers={f"the longest of {BEFORE:,} without a purge": max(map(sum, calm)) * 1000},
    )
    yield Row("purging", f"{name}: runs purged a second", "1/s", number / took)


def _fill(store: Store, number: int) -> None:
    """Add runs that ended 40 days ago, half of them of a tenant that a rule keeps shorter."""
    ended = store.now() - 40 * 86_400_000
    for first in range(0, number, ADDED):
        store.add_runs(
            [
                RunRecord(
                    id=f"old/{at}",
                    task="work",
                    tenant="old",
                    state="failed" if at % 10 == 0 else "succeeded",
                    created_at=ended + at // 100 - 1000,
                    finished_at=ended + at // 100,
                )
                for at in range(first, min(first + ADDED, number))
            ]
        )


def _claim(store: Store) -> _Claimed:
    """Add, claim and end one run."""
    now = store.now()
    store.add_runs([RunRecord(id=uuid4().hex, task="work", run_at=now, created_at=now)])
    wanted = Claim(worker="w", token=uuid4().hex, limit=1, now=now, lease=30_000)
    waited_before, begin = _cpu_wait(), time.perf_counter()
    (claimed,) = store.claim_runs(wanted).runs
    took, waited = time.perf_counter() - begin, _cpu_wait() - waited_before
    store.settle_runs([attempts.succeeded(claimed, None, store.now(), uuid4().hex)])
    return _Claimed(took - waited, waited)


def _cpu_wait() -> float:
    """Return how many seconds the main thread has waited for a CPU so far; 0 where only Linux tells."""
    try:
        return int(_SCHEDULING.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _purge(url: str) -> None:
    """Purge what is older than 30 days, and the runs of a tenant by a rule of its own, as a node does."""
    store = open_url(url)
    store.open()
    tenant, key = retention.record_place("old", "failed")
    store.put_record(Record(kind=retention.KIND, tenant=tenant, key=key, body='{"keep":86400000}'))
    pruner = Pruner(store, 30 * 86_400_000)
    while True:
        now = store.now()
        rest = pruner.step(now) - now
        if rest > _LONGEST_REST and not store.count_runs("old"):
            break
        time.sleep(min(rest, _LONGEST_REST) / 1000)
    store.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--purge"]:
        _purge(sys.argv[2])
    else:
        chosen = msgspec.convert(sys.argv[2:], list[StoreName])
        for row in run(int(sys.argv[1]) if sys.argv[1:] else None, *chosen):
            print(row)
