"""Single operations on servers: a pass over due schedules, locks, and reads and writes of schedules."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from bench import apscheduler_app, databases
from bench.claimers import make_due, opened
from bench.databases import TITLES, Database
from bench.measure import Row, interleaved, median, percentile
from evenbeat.app import locks
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.ticker import BATCH
from evenbeat.rules import changes
from evenbeat.rules.firing import plan
from evenbeat.stores.base import ScheduleQuery, Store, Write

PASSES, DUE = 30, 100
PASS_GOAL = 10
CALLS = 300
PEER_LOCK, PEER_JOBS = "redis-py lock", "APScheduler 3"
TTL = 60


def run() -> list[Row]:
    rows = []
    for name in databases.present():
        with databases.place(name) as url, opened(url) as store:
            rows.append(_passes(name, store))
            # A schedule to read and to write, among many.
            make_due(store, 1_000, "other")
            databases.analyze(url)
            rows += _singles(name, store)
    return rows


def _passes(name: Database, store: Store) -> Row:
    """Measure one pass of a ticker that finds 100 due schedules."""
    taken = []
    for number in range(PASSES):
        make_due(store, DUE, f"pass-{number}")
        now, begin = store.now(), time.perf_counter()
        fired = store.fire_due(now, BATCH, plan)
        taken.append((time.perf_counter() - begin) * 1000)
        assert len(fired.planned) == DUE
    ordered = sorted(taken)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    goal, met = (f"< {PASS_GOAL} ms", p50 < PASS_GOAL) if name == "valkey" else ("", None)
    return Row("operations", f"{TITLES[name]}: a pass over {DUE} due", "ms", p50, {}, goal, met, p95, p99)


def _singles(name: Database, store: Store) -> list[Row]:
    """Measure Evenbeat and the peers in turn: each round acquires, extends and releases a lock, and so on."""
    ours = {**_lock(store), **_schedule(store)}
    with _peers(name) as theirs:
        taken = interleaved(ours | {f"{peer}: {what}": call for (peer, what), call in theirs.items()}, CALLS)
    rows = []
    for what in ours:
        ordered = sorted(seconds * 1e6 for seconds in taken[what])
        peers = {peer: median(taken[f"{peer}: {of}"]) * 1e6 for peer, of in theirs if of == what}
        p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        rows.append(Row("operations", f"{TITLES[name]}: {what}", "us", p50, peers, "", None, p95, p99))
    return rows


def _lock(store: Store) -> dict[str, Callable[[], object]]:
    # In the order of the calls: each round acquires the lock, extends it and releases it.
    token = locks.new_token()

    def checked(act: Callable[..., bool], *words: str) -> Callable[[], None]:
        def call() -> None:
            assert act(store, "bench", *words)

        return call

    return {
        "lock, acquire": checked(locks.try_acquire, "1m", token),
        "lock, extend": checked(locks.extend, "1m", token),
        "lock, release": checked(locks.release, token),
    }


def _schedule(store: Store) -> dict[str, Callable[[], object]]:
    now = store.now()
    made = changes.create(ScheduleRecord(name="it", task="noop", trigger="0 0 1 1 *"), now)
    written = store.put_schedules([Write(made, None)])[0]
    assert written.current is not None
    present = [written.current]
    hours = itertools.cycle(range(1, 24))

    def read() -> None:
        assert store.find_schedules(ScheduleQuery(tenant="default", name="it", limit=1)).items

    def write() -> None:
        wanted = ScheduleRecord(name="it", task="noop", trigger=f"0 {next(hours)} 1 1 *")
        planned = changes.declare(wanted, store.now(), present[0])
        assert planned is not None
        answer = store.put_schedules([Write(planned, present[0].version)])[0]
        assert answer.accepted
        assert answer.current is not None
        present[0] = answer.current

    return {"schedule, read": read, "schedule, written": write}


@contextmanager
def _peers(name: Database) -> Iterator[dict[tuple[str, str], Callable[[], object]]]:
    """Return the same operations of peers: APScheduler's job stores and, on Valkey, the driver's lock."""
    with (
        databases.place(name) as url,
        apscheduler_app.job_store(url) as store,
        apscheduler_app.scheduler(store, 1) as scheduler,
    ):
        job: Any = scheduler.get_job("0")
        calls: dict[tuple[str, str], Callable[[], object]] = {
            (PEER_JOBS, "schedule, read"): lambda: store.lookup_job("0"),
            (PEER_JOBS, "schedule, written"): lambda: store.update_job(job),
        }
        if name != "valkey":
            yield calls
            return
        with redis.Redis.from_url(databases.url_of(name)) as client:
            lock = client.lock("bench-lock", timeout=TTL)
            yield calls | {
                (PEER_LOCK, "lock, acquire"): lambda: lock.acquire(blocking=False),
                (PEER_LOCK, "lock, extend"): lambda: lock.extend(TTL, replace_ttl=True),
                (PEER_LOCK, "lock, release"): lock.release,
            }
