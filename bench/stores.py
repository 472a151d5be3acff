"""Firing against APScheduler 3, memory and SQLite, and the memory that many schedules take.

APScheduler's SQLite store commits job by job, Evenbeat's a batch of ticks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import apscheduler_app
from bench.measure import Row, median
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import Store, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.testing import VirtualClock

ROUNDS = 3
BATCH = 2_000
MANY = 100_000


def run() -> list[Row]:
    return [*_memory(), *_firing()]


def _firing() -> list[Row]:
    rows = []
    for name, count, peer_count, goal in (("memory", 50_000, 10_000, 50_000), ("SQLite", 10_000, 500, None)):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(_ours(name, count))
            theirs.append(_apscheduler(name, peer_count))
        rate, peers = median(ours), {"APScheduler 3": median(theirs)}
        title = f"{name}: ticks fired, all due at once"
        if goal is None:
            rows.append(Row("stores", title, "ticks/s", rate, peers))
        else:
            rows.append(Row("stores", title, "ticks/s", rate, peers, f"≥ {goal:,}", rate >= goal))
    return rows


def _ours(name: str, count: int) -> float:
    clock = VirtualClock()
    with TemporaryDirectory(prefix="evenbeat-bench-") as folder:
        store: Store = (
            MemoryStore(clock) if name == "memory" else SqliteStore(Path(folder) / "bench.db", clock)
        )
        store.open()
        for start in range(0, count, BATCH):
            wanted = [
                changes.create(ScheduleRecord(name=f"s{at}", task="work", trigger="0 * * * *"), clock.now)
                for at in range(start, start + BATCH)
            ]
            store.put_schedules([Write(planned, None) for planned in wanted])
        clock.advance("1h")
        begin = time.perf_counter()
        while store.fire_due(clock.now, BATCH, plan).planned:
            pass
        taken = time.perf_counter() - begin
        store.close()
    return count / taken


def _apscheduler(name: str, count: int) -> float:
    if name == "memory":
        return apscheduler_app.fire("memory://", count)
    with TemporaryDirectory(prefix="evenbeat-bench-") as folder:
        return apscheduler_app.fire(f"sqlite:///{folder}/peer.db", count)


def _memory() -> list[Row]:
    figures = {who: median([_resident(who) for _ in range(ROUNDS)]) for who in ("evenbeat", "APScheduler 3")}
    ours = figures.pop("evenbeat")
    name = f"resident memory of a process with {MANY:,} cron schedules"
    return [Row("stores", name, "MB", ours, figures, "< 150 MB", ours < 150)]


def _resident(who: str) -> float:
    command = [sys.executable, "-m", "bench.stores", who]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def _hold(who: str) -> object:
    """Make the schedules in a process of its own, and keep them."""
    if who == "evenbeat":
        clock = VirtualClock()
        store = MemoryStore(clock)
        for at in range(MANY):
            trigger = f"{at % 60} {at // 60 % 24} * * *"
            wanted = changes.create(ScheduleRecord(name=f"job-{at}", task="work", trigger=trigger), clock.now)
            store.put_schedules([Write(wanted, None)])
        return store
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.cron import CronTrigger

    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start(paused=True)
    for at in range(MANY):
        trigger = CronTrigger.from_crontab(f"{at % 60} {at // 60 % 24} * * *", timezone=UTC)
        scheduler.add_job("time:time", trigger, id=f"job-{at}")
    return scheduler


def _resident_now() -> float:
    # Not the peak of getrusage, which a child inherits from its parent.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    held = _hold(sys.argv[1])
    print(json.dumps(_resident_now()), flush=True)
    os._exit(0)  # without the messages that the peer's threads print at exit
