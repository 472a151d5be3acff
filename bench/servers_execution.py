"""No-op runs on servers, from ``enqueue_many`` to recorded success, one worker process.

Compared with the peers that execute tasks there: pgqueuer and procrastinate on PostgreSQL, huey on a Valkey
without persistence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.servers import Valkey

from bench import apps, databases, huey_app, pgqueuer_app, procrastinate_app
from bench.databases import TITLES, Database
from bench.measure import Row, median
from bench.plot import bars
from bench.processes import ROOT, scratch, until

RUNS: dict[Database, int] = {"postgres": 20_000, "valkey": 10_000, "mongo": 10_000}
# Runs of slow peers: fewer, so that a round takes less than a minute.
HUEY_RUNS, PROCRASTINATE_RUNS = 3_000, 500
# A warm-up for each library: code is imported, connections are open, plans are made.
WARM = 0.05
# More rounds for a goal that is a ratio.
ROUNDS: dict[Database, int] = {"postgres": 5, "valkey": 5, "mongo": 3}
PGQUEUER_BATCH, PROCRASTINATE_CONCURRENCY = 100, 10
TIMES_PGQUEUER, TIMES_PROCRASTINATE, TIMES_HUEY = 1.3, 10, 3
MONGO_GOAL = 2_500
# Counting finished runs is work for the server: done seldom while many are left, for each library.
SHORTEST, LONGEST = 0.05, 0.5

PGQUEUER, PROCRASTINATE = f"pgqueuer, batch {PGQUEUER_BATCH}", "procrastinate"
OURS = {"def": "Evenbeat, def", "async def": "Evenbeat, async def"}
HUEY, HUEY_KEPT = "huey, not durable", "huey, not durable, results kept"
PLOT = ROOT / "bench" / "results" / "servers-execution.svg"

Rates = Mapping[str, list[float]]


def run() -> list[Row]:
    rows: list[Row] = []
    drawn: list[tuple[str, list[tuple[str, float]]]] = []
    for name in databases.present():
        rates = _rates(name)
        rows += _rows(name, rates)
        drawn.append((TITLES[name], [(OURS.get(who, who), median(found)) for who, found in rates.items()]))
    if drawn:
        title = "No-op runs, from enqueue to recorded success, one worker"
        PLOT.parent.mkdir(exist_ok=True)
        PLOT.write_text(bars(drawn, title=title, unit="runs/s"))
    return rows


def _rates(name: Database) -> Rates:
    contestants: dict[str, Callable[[], float]] = {
        "def": partial(_ours, name, "def"),
        "async def": partial(_ours, name, "async def"),
    }
    with ExitStack() as stack:
        if name == "postgres":
            contestants[PGQUEUER] = lambda: asyncio.run(_pgqueuer())
            contestants[PROCRASTINATE] = lambda: asyncio.run(_procrastinate())
        elif name == "valkey":
            forgetful = Valkey({"appendonly": "no"})
            stack.callback(forgetful.stop)
            forgetful.start()
            contestants[HUEY] = partial(_huey, forgetful, keep=False)
            contestants[HUEY_KEPT] = partial(_huey, forgetful, keep=True)
        rates: dict[str, list[float]] = {who: [] for who in contestants}
        for _ in range(ROUNDS[name]):
            for who, measure in contestants.items():
                rates[who].append(measure())
    return rates


def _rows(name: Database, rates: Rates) -> list[Row]:
    peers = {who: median(found) for who, found in rates.items() if who not in OURS}
    rows = []
    for kind in OURS:
        ours, title = median(rates[kind]), f"{TITLES[name]}: {RUNS[name]:,} `{kind}` no-ops"
        row = partial(Row, "servers_execution", title, "runs/s", ours, peers)
        rows.append(row(f"≥ {MONGO_GOAL:,}", ours >= MONGO_GOAL) if name == "mongo" else row())
    if name == "postgres":
        # pgqueuer and procrastinate execute coroutines, huey plain functions.
        rows.append(_times(name, rates, "async def", [PGQUEUER], TIMES_PGQUEUER))
        rows.append(_times(name, rates, "async def", [PROCRASTINATE], TIMES_PROCRASTINATE))
    elif name == "valkey":
        rows.append(_times(name, rates, "def", [HUEY, HUEY_KEPT], TIMES_HUEY))
    return rows


def _times(name: Database, rates: Rates, kind: str, peers: list[str], goal: float) -> Row:
    """Compare with the fastest peer, round by round: a slow minute affects all."""
    best = [max(found) for found in zip(*(rates[peer] for peer in peers), strict=True)]
    times = median([ours / theirs for ours, theirs in zip(rates[kind], best, strict=True)])
    title = f"{TITLES[name]}: `{kind}`, times {peers[0].partition(',')[0]}"
    return Row("servers_execution", title, "x", times, goal=f"≥ {goal}x", met=times >= goal)


def _ours(name: Database, kind: apps.Kind) -> float:
    with databases.place(name) as url, scratch() as folder:
        app = apps.make(kind, url)
        task = app.tasks.get("noop")
        assert task is not None

        async def enqueue(count: int) -> None:
            app.enqueue_many(task.bind() for _ in range(count))

        async def succeeded() -> int:
            return app.runs.count().get("succeeded", 0)

        with apps.node(kind, url, folder / "bench.starts"):
            rate = asyncio.run(_rate(RUNS[name], enqueue, succeeded, warmed=lambda: databases.analyze(url)))
        assert list(app.runs.count()) == ["succeeded"]
        app.close()
    return rate


async def _pgqueuer() -> float:
    with databases.place("postgres") as url:
        async with pgqueuer_app.connected(url) as queue:
            await queue.install()
            with pgqueuer_app.worker(url, PGQUEUER_BATCH):
                # No ANALYZE, to its advantage: after one of the empty queue, it did 400 to 3,800 a second.
                return await _rate(
                    RUNS["postgres"],
                    partial(pgqueuer_app.enqueue, queue),
                    partial(pgqueuer_app.succeeded, queue),
                )


async def _procrastinate() -> float:
    with databases.place("postgres") as url:
        app = procrastinate_app.make(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            with procrastinate_app.worker(url, PROCRASTINATE_CONCURRENCY):
                return await _rate(
                    PROCRASTINATE_RUNS,
                    partial(procrastinate_app.enqueue, app),
                    partial(procrastinate_app.succeeded, app),
                    warmed=lambda: databases.analyze(url),
                )


async def _rate(
    count: int,
    enqueue: Callable[[int], Awaitable[None]],
    succeeded: Callable[[], Awaitable[int]],
    warmed: Callable[[], None] = lambda: None,
) -> float:
    before = int(count * WARM)
    await enqueue(before)
    await _until(succeeded, before)
    warmed()
    begin = time.perf_counter()
    await enqueue(count)
    await _until(succeeded, before + count)
    return count / (time.perf_counter() - begin)


async def _until(succeeded: Callable[[], Awaitable[int]], count: int) -> None:
    """Sleep for half of the time that the rest will take, at the rate since the last look."""
    found, looked = await succeeded(), time.perf_counter()
    async with asyncio.timeout(120):
        pause = SHORTEST
        while found < count:
            await asyncio.sleep(pause)
            last, since = found, looked
            found, looked = await succeeded(), time.perf_counter()
            rate = (found - last) / (looked - since)
            pause = min(max((count - found) / rate / 2, SHORTEST), LONGEST) if rate else SHORTEST
    assert found == count


def _huey(server: Valkey, keep: bool) -> float:
    with scratch() as folder:
        huey = huey_app.make(server.url, keep)
        huey.storage.flush_all()
        before = int(HUEY_RUNS * WARM)
        with huey_app.consumer(server.url, keep, folder / "bench.starts"):
            for _ in range(before):
                huey.noop()
            until(lambda: huey.pending_count() == 0)
            time.sleep(0.05)
            begin = time.perf_counter()
            for _ in range(HUEY_RUNS):
                huey.noop()
            if keep:
                until(lambda: huey.result_count() == before + HUEY_RUNS, every=SHORTEST)
            else:
                # It records no results, so the last tasks may still be running: an advantage for it.
                until(lambda: huey.pending_count() == 0, every=SHORTEST)
            taken = time.perf_counter() - begin
        assert len(apps.read_starts(Path(folder / "bench.starts"))) == before + HUEY_RUNS
    return HUEY_RUNS / taken
