"""Firing on servers: several nodes turn due schedules into runs, and no two fire the same tick."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench import apscheduler_app, databases
from bench.claimers import Work, fire, make_due, opened
from bench.databases import TITLES, Database
from bench.measure import Row, median, percentile
from evenbeat.node.ticker import BATCH

SCHEDULES = 10_000
NODES = 2
ROUNDS = 3
GOALS: dict[Database, int] = {"postgres": 15_000, "valkey": 20_000, "mongo": 6_000}
PEER = "APScheduler 3, one process"
# APScheduler fires job by job, hundreds of them at the same rate as ten thousand.
PEER_JOBS = 500

# 50 in 4 processes.
CLAIMERS = (13, 13, 12, 12)
CLAIMED = 50_000
# The batch of a node, and a smaller one for 50 claimers: while all of them fire, a call lasts as long as 50
# batches do.
CLAIMER_LIMITS = (BATCH, 20, 10)
CLAIMER_GOAL, CLAIMER_P99 = 8_000, 150
# The goals of the specification, which names no machine.
FIRST_GOAL, FIRST_P99 = 10_000, 100


def run() -> list[Row]:
    names = databases.present()
    rows = [_nodes(name) for name in names]
    return rows + (_claimers() if "postgres" in names else [])


def _nodes(name: Database) -> Row:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(_rate(_fired(name, SCHEDULES, [1] * NODES, BATCH)))
        with databases.place(name) as url:
            theirs.append(apscheduler_app.fire(url, PEER_JOBS))
    rate, goal = median(ours), GOALS[name]
    title = f"{TITLES[name]}: {SCHEDULES:,} due schedules, {NODES} nodes, batches of {BATCH}"
    return Row("firing", title, "ticks/s", rate, {PEER: median(theirs)}, f"≥ {goal:,}", rate >= goal)


def _claimers() -> list[Row]:
    """Return a row per batch size; the goals stand at the one with the shortest p99 that is fast enough."""
    measured = {}
    for limit in CLAIMER_LIMITS:
        works = _fired("postgres", CLAIMED, CLAIMERS, limit)
        calls = sorted(seconds * 1000 for work in works for seconds, _ in work.calls)
        measured[limit] = (_rate(works), calls)
    enough = [limit for limit, (rate, _) in measured.items() if rate >= CLAIMER_GOAL]
    best = min(enough or measured, key=lambda limit: percentile(measured[limit][1], 0.99))
    rows = []
    for limit, (rate, calls) in measured.items():
        title = f"PostgreSQL: {CLAIMED:,} due schedules, {sum(CLAIMERS)} claimers, batches of {limit}"
        row = partial(Row, "firing", title, "ticks/s", rate, {})
        rows.append(row(f"≥ {CLAIMER_GOAL:,}", rate >= CLAIMER_GOAL) if limit == best else row())
        rows.append(_call(f"{title}: one call", calls, limit == best))
    rate, calls = measured[best]
    p99 = percentile(calls, 0.99)
    rows.append(
        Row(
            "firing",
            f"… batches of {best}, times what was first asked for: ticks a second",
            "x",
            rate / FIRST_GOAL,
            goal=f"1x = {FIRST_GOAL:,}/s",
        )
    )
    rows.append(
        Row(
            "firing",
            f"… batches of {best}, times what was first asked for: p99",
            "x",
            p99 / FIRST_P99,
            goal=f"1x = {FIRST_P99} ms",
        )
    )
    return rows


def _call(title: str, calls: list[float], has_goal: bool) -> Row:
    p50, p95, p99 = (percentile(calls, share) for share in (0.5, 0.95, 0.99))
    goal, met = (f"p99 < {CLAIMER_P99} ms", p99 < CLAIMER_P99) if has_goal else ("", None)
    return Row("firing", title, "ms", p50, {}, goal, met, p95, p99)


def _fired(name: Database, schedules: int, claimers: Sequence[int], limit: int) -> list[Work]:
    """Fire with a process for each entry of ``claimers``, and check that each tick was fired once."""
    with databases.place(name) as url, opened(url) as store:
        make_due(store, schedules)
        databases.analyze(url)
        works = fire(url, claimers, limit)
        assert sum(ticks for work in works for _, ticks in work.calls) == schedules
        assert store.count_runs() == {"queued": schedules}
    return works


def _rate(works: list[Work]) -> float:
    ticks = sum(ticks for work in works for _, ticks in work.calls)
    return ticks / (max(work.end for work in works) - min(work.begin for work in works))
