"""What a node costs while nothing is due: the processor time of its process."""

from __future__ import annotations

import time

from bench import apps
from bench.measure import Row, median
from bench.processes import processor_seconds, scratch
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import Store, Write

SCHEDULES = 10_000
SECONDS = 30
SETTLE = 3
ROUNDS = 3
GOAL = 0.5

_BATCH = 1_000


def run() -> list[Row]:
    share = median([_share() for _ in range(ROUNDS)])
    name = f"a node at rest, {SCHEDULES:,} schedules, over {SECONDS} s"
    return [Row("rest", name, "% of a core", share, goal=f"< {GOAL} %", met=share < GOAL)]


def _share() -> float:
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make("both", database)
        fill(app.store, SCHEDULES)
        with apps.node("both", database) as pid:
            assert app.runs.join(app.enqueue("noop").id, "30s").state == "succeeded"
            time.sleep(SETTLE)
            before, begin = processor_seconds(pid), time.perf_counter()
            time.sleep(SECONDS)
            used, taken = processor_seconds(pid) - before, time.perf_counter() - begin
            # The node works: it executes a run at once, and no schedule had one.
            assert app.runs.join(app.enqueue("noop").id, "2s").state == "succeeded"
        assert app.runs.count() == {"succeeded": 2}
        app.close()
    return used / taken * 100


def fill(store: Store, count: int) -> None:
    """Add schedules that tick once a year, at different hours, none of them within the next day."""
    now = store.now()
    month = time.gmtime(now / 1000 + 60 * 86_400).tm_mon
    for start in range(0, count, _BATCH):
        wanted = [
            ScheduleRecord(
                name=f"yearly-{number:06}",
                task="noop",
                trigger=f"{number % 60} {number // 60 % 24} {number % 28 + 1} {month} *",
            )
            for number in range(start, min(start + _BATCH, count))
        ]
        store.put_schedules([Write(changes.create(schedule, now), None) for schedule in wanted])
