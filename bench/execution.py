"""No-op runs from ``enqueue_many`` to recorded success, one worker process, against huey on SQLite."""

from __future__ import annotations

import time
from functools import partial

from bench import apps, huey_app
from bench.measure import Row, median
from bench.processes import scratch, until

RUNS = 10_000
ROUNDS = 5
GOAL = 6_000
TIMES_HUEY = 3
# "No slower", within the difference between two rounds of the same library here.
TIMES_DEF = 0.95


def run() -> list[Row]:
    contestants = {
        "def": partial(_ours, "def"),
        "async def": partial(_ours, "async def"),
        "huey": partial(_huey, keep=False),
        "huey, results kept": partial(_huey, keep=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, measure in contestants.items():
            rates[name].append(measure())
    peers = {name: median(rates[name]) for name in ("huey", "huey, results kept")}
    plain, coroutines = median(rates["def"]), median(rates["async def"])
    times_huey = plain / max(peers.values())
    # In turn, round by round: a slow minute affects both.
    times_def = median([ours / theirs for ours, theirs in zip(rates["async def"], rates["def"], strict=True)])
    return [
        Row("execution", f"{RUNS:,} `def` no-ops", "runs/s", plain, peers, f"≥ {GOAL:,}", plain >= GOAL),
        Row("execution", f"{RUNS:,} `async def` no-ops", "runs/s", coroutines, peers),
        Row(
            "execution",
            "`def`, times the faster huey",
            "x",
            times_huey,
            goal=f"≥ {TIMES_HUEY}x",
            met=times_huey >= TIMES_HUEY,
        ),
        Row(
            "execution",
            "`async def`, times `def`",
            "x",
            times_def,
            goal=f"≥ {TIMES_DEF}x",
            met=times_def >= TIMES_DEF,
        ),
    ]


def _ours(kind: apps.Kind) -> float:
    with scratch() as folder:
        database = folder / "bench.db"
        app = apps.make(kind, database)
        task = app.tasks.get("noop")
        assert task is not None
        with apps.node(kind, database):
            assert app.runs.join(app.enqueue(task).id, "30s").state == "succeeded"
            begin = time.perf_counter()
            app.enqueue_many(task.bind() for _ in range(RUNS))
            until(lambda: app.runs.count().get("succeeded") == RUNS + 1)
            taken = time.perf_counter() - begin
        assert app.runs.count() == {"succeeded": RUNS + 1}
        app.close()
    return RUNS / taken


def _huey(keep: bool) -> float:
    with scratch() as folder:
        database = folder / "bench.db"
        measured, default = huey_app.durability(database)
        assert measured == default == 2, "huey's default is not as durable as what is measured: say so"
        huey = huey_app.make(database, keep)
        with huey_app.consumer(database, keep):
            huey.noop()
            until(lambda: huey.pending_count() == 0)
            time.sleep(0.05)
            begin = time.perf_counter()
            for _ in range(RUNS):
                huey.noop()
            if keep:
                until(lambda: huey.result_count() == RUNS + 1)
            else:
                # It records no results, so the last tasks may still be running: an advantage for it.
                until(lambda: huey.pending_count() == 0)
            taken = time.perf_counter() - begin
        assert len(apps.starts(database)) == RUNS + 1
        assert huey.result_count() == (RUNS + 1 if keep else 0)
        huey.storage.close()
    return RUNS / taken
