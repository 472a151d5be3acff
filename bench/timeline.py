"""The timeline: the figures that its specification asks for, from arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measure import Row, median, percentile, samples
from evenbeat import cron
from evenbeat.timeline import RebuildPolicy, Snapshot, Timeline

START = 1_772_452_800_000
SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
BUILD_GOALS = {10_000: 1.0, 100_000: 4.0, 1_000_000: 25.0}
RECORD_GOALS = {10_000: 5.0, 100_000: 30.0, 1_000_000: 150.0}
WINDOWS = {"1 min": 60_000, "1 h": 3_600_000, "1 day": 86_400_000}
RESULTS = (10, 100, 1_000, 10_000)


def run() -> list[Row]:
    return [
        *_builds(),
        *_records(),
        *_memory(),
        *_windows(),
        *_results(),
        *_peeks(),
        *_compared(),
        *_realistic(minutes=60),
        *_realistic(minutes=100),
    ]


def _random(size: int, span: int = 3_600) -> Snapshot[int]:
    """Return unsorted ticks at whole seconds within ``span`` seconds, each of another schedule."""
    random = np.random.default_rng(7)
    times = START + random.integers(0, span, size) * 1000
    return Snapshot(times, random.permutation(size), range(size))


def _builds() -> list[Row]:
    rows = []
    random = np.random.default_rng(7)
    for size in SIZES:
        times = START + random.integers(0, 3_600, size) * 1000
        owners = random.permutation(size).astype(np.uint32)
        taken = samples(partial(Snapshot, times, owners, range(size)), 30 if size < 10**6 else 15)
        goal = BUILD_GOALS.get(size)
        rows.append(_timed(f"build from {size:,} unsorted ticks", "ms", taken, goal))
    index = _random(1_000_000)
    each = index.nbytes / len(index)
    rows.append(Row("timeline", "memory of a tick", "bytes", each, goal="≤ 16", met=each <= 16))
    return rows


def _pairs(size: int) -> list[tuple[int, str]]:
    """Return (tick, id) of at most 10,000 jobs, grouped by job, as a scheduler would pass them."""
    jobs = min(size, 10_000)
    random = np.random.default_rng(7)
    ticks = (START + random.integers(0, 6_000, size) * 1000).tolist()
    return [(tick, f"job-{at * jobs // size:05}") for at, tick in enumerate(ticks)]


def _records() -> list[Row]:
    """Build as the specification describes it: from single records, sorted by (time, id)."""
    rows = []
    for size, goal in RECORD_GOALS.items():
        taken = samples(partial(Snapshot.of, _pairs(size)), 30 if size < 10**6 else 9)
        rows.append(_timed(f"build from {size:,} (tick, id) records, unsorted", "ms", taken, goal))
    return rows


def _memory() -> list[Row]:
    """Return the bytes of a snapshot: ticks, owners and the table of ids, without its source records."""
    import tracemalloc

    pairs = _pairs(1_000_000)
    tracemalloc.start()
    index = Snapshot.of(pairs)
    held, peak = (figure / 1e6 for figure in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    assert len(index) == len(pairs)
    size = "1,000,000 ticks of 10,000 schedules"
    return [
        Row("timeline", f"memory of a snapshot, {size}", "MB", held, goal="< 100 MB", met=held < 100),
        Row("timeline", f"memory while it is built from records, {size}", "MB", peak),
    ]


def _windows() -> list[Row]:
    rows = []
    for size in (1_000, 10_000, 100_000, 1_000_000):
        index = _random(size, span=86_400)
        for name, length in WINDOWS.items():
            middle = START + (86_400_000 - length) // 2
            found = index.count(middle, middle + length)
            taken = samples(_query(index, middle, middle + length), 100 if found < 100_000 else 5)
            rows.append(_timed(f"query of {name} out of {size:,}: {found:,} ticks", "us", taken, None))
    return rows


def _results() -> list[Row]:
    rows = []
    for size in (1_000, 10_000, 100_000, 1_000_000):
        index = Snapshot(START + np.arange(size), np.arange(size), range(size), in_order=True)
        for wanted in RESULTS:
            if wanted > size:
                continue
            middle = START + (size - wanted) // 2
            taken = samples(_query(index, middle, middle + wanted), 300)
            goal = 50.0 if (size, wanted) == (1_000_000, 100) else None
            rows.append(_timed(f"query of {wanted:,} ticks out of {size:,}", "us", taken, goal))
    return rows


def _peeks() -> list[Row]:
    rows = []
    for size in SIZES:
        peek = _random(size).peek

        def thousand(peek: Callable[[], object] = peek) -> None:
            for _ in range(1000):
                peek()

        # A thousand at a time: a single query is shorter than reading the clock.
        taken = [seconds / 1000 for seconds in samples(thousand, 30)]
        rows.append(_timed(f"peek, {size:,} ticks", "us", taken, 1.0))
    return rows


def _compared() -> list[Row]:
    """Measure what a Python program would use instead: a sorted list of tuples, a SortedList."""
    from bisect import bisect_left

    from sortedcontainers import SortedList

    random = np.random.default_rng(7)
    size = 1_000_000
    times = START + random.integers(0, 3_600, size) * 1000
    owners = random.permutation(size)
    pairs = list(zip(times.tolist(), owners.tolist(), strict=True))
    index, ordered = Snapshot(times, owners, range(size)), sorted(pairs)
    low, high = START + 1_800_000, START + 1_860_000

    def bisected() -> object:
        return ordered[bisect_left(ordered, (low,)) : bisect_left(ordered, (high,))]

    builds = {
        "evenbeat": samples(lambda: Snapshot(times, owners, range(size)), 5),
        "sorted list of tuples": samples(lambda: sorted(pairs), 3),
        "SortedList": samples(lambda: SortedList(pairs), 3),
    }
    queries = {
        "evenbeat": samples(_query(index, low, high), 20),
        "sorted list of tuples": samples(bisected, 20),
    }
    rows = []
    for name, unit, factor, taken in (("build", "ms", 1e3, builds), ("query of 1 min", "us", 1e6, queries)):
        figures = {who: median(seconds) * factor for who, seconds in taken.items()}
        rows.append(
            Row("timeline", f"{name}, 1,000,000 ticks, against lists", unit, figures.pop("evenbeat"), figures)
        )
    return rows


def _realistic(minutes: int) -> list[Row]:
    """Plan 10,000 schedules that tick each minute, and use the plan for 10 minutes.

    A rebuild every 30 s, and a query of 30 s each second.
    """
    timeline: Timeline[int] = Timeline(RebuildPolicy(lookahead=minutes * 60_000))
    timeline.schedule((at, cron("* * * * *")) for at in range(10_000))
    rebuilds, queries, peeks = [], [], []
    for second in range(600):
        now = START + second * 1000
        if second % 30 == 0:
            rebuilds.append(_once(partial(timeline.step, now)))
        queries.append(_once(partial(timeline.query, now, now + 30_000)))
        peeks.append(_once(timeline.peek))
    loop = f"the loop, {minutes * 10_000:,} ticks"
    return [
        _timed(f"{loop}: rebuild", "ms", sorted(rebuilds), None),
        _timed(f"{loop}: query of the next 30 s (0 or 10,000 ticks)", "us", sorted(queries), None),
        _timed(f"{loop}: peek", "us", sorted(peeks), None),
    ]


def _once(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _query(index: Snapshot[int], start: int, end: int) -> Callable[[], object]:
    return lambda: index.query(start, end)


def _timed(name: str, unit: str, seconds: list[float], goal: float | None) -> Row:
    factor = {"ms": 1e3, "us": 1e6}[unit]
    ordered = sorted(seconds)
    middle = percentile(ordered, 0.5) * factor
    return Row(
        "timeline",
        name,
        unit,
        middle,
        goal="" if goal is None else f"< {goal:g} {unit}",
        met=None if goal is None else middle < goal,
        p95=percentile(ordered, 0.95) * factor,
        p99=percentile(ordered, 0.99) * factor,
    )
