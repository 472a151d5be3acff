"""Limits: what they cost a claim, a thousand keys, and an unlimited run behind many limited ones.

Claims are measured through the store alone, a batch at a time, with and without limits in turn. The unlimited
runs are one-shots of an app with one node in another process, as in ``servers_punctuality``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from bench import apps, databases
from bench.databases import StoreName, store_place
from bench.measure import Row, median, percentile
from bench.processes import scratch, until
from evenbeat.core.records import RunRecord
from evenbeat.rules import attempts
from evenbeat.rules.limits import Limit, limit_record
from evenbeat.stores.base import Claim, Store
from evenbeat.stores.urls import open_url

ROUNDS = 3
RUNS, BATCH = 10_000, 100
KEYS, KEYED = 1_000, 20_000
WAITING = 50_000
FREE = 100
GOAL = 50
_ADDED = 1_000

KINDS: dict[str, tuple[Limit, ...]] = {
    "no limit": (),
    "a limit of another task": (Limit(task="other", concurrency=5),),
    "a limit that admits all": (Limit(task="work", concurrency=RUNS),),
}


def run() -> list[Row]:
    rows: list[Row] = []
    for name in databases.stores():
        rows += [*_claims(name), _keys(name)]
        if name != "memory":
            rows.append(_behind(name))
    return rows


@contextmanager
def _opened(name: StoreName, limits: tuple[Limit, ...], runs: list[RunRecord]) -> Iterator[Store]:
    with store_place(name) as url:
        store = open_url(url)
        store.open()
        try:
            for limit in limits:
                assert store.put_record(limit_record(limit))
            for at in range(0, len(runs), _ADDED):
                store.add_runs(runs[at : at + _ADDED])
            databases.analyze(url)
            yield store
        finally:
            store.close()


def _drain(store: Store, count: int) -> tuple[float, list[float]]:
    """Claim and end runs until ``count`` have ended; return the seconds in all, and those of each claim."""
    begin, done, claims = time.perf_counter(), 0, []
    while done < count:
        now, before = store.now(), time.perf_counter()
        claim = Claim(worker="bench", token=uuid4().hex, limit=BATCH, now=now, lease=60_000)
        held = store.claim_runs(claim).runs
        claims.append(time.perf_counter() - before)
        assert held, f"{done} of {count} runs ended, and none can be claimed"
        ends = [attempts.succeeded(run, "null", store.now(), uuid4().hex) for run in held]
        assert all(store.settle_runs(ends))
        done += len(held)
    return time.perf_counter() - begin, claims


def _claims(name: StoreName) -> list[Row]:
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind, limits in KINDS.items():
            runs = [RunRecord(id=f"{at:06}", task="work", run_at=1 + at) for at in range(RUNS)]
            with _opened(name, limits, runs) as store:
                _, claims = _drain(store, RUNS)
                found[kind].append(RUNS / sum(claims))
    free, *limited = (median(found[kind]) for kind in KINDS)
    return [
        Row("limits", f"{name}: runs claimed, {kind}", "runs/s", value, {"no limit": free})
        for kind, value in zip(list(KINDS)[1:], limited, strict=True)
    ]


def _keys(name: StoreName) -> Row:
    limit = Limit(task="work", key="customer", concurrency=1)
    figures = []
    for _ in range(ROUNDS if name in ("memory", "SQLite") else 1):
        runs = [
            RunRecord(id=f"{at:06}", task="work", run_at=1 + at, payload=f'{{"customer":{at % KEYS}}}')
            for at in range(KEYED)
        ]
        with _opened(name, (limit,), runs) as store:
            seconds, _ = _drain(store, KEYED)
            figures.append(KEYED / seconds)
    return Row(
        "limits", f"{name}: {KEYS:,} keys, one run each, {KEYED:,} runs ended", "runs/s", median(figures)
    )


def _behind(name: StoreName) -> Row:
    """Measure how late unlimited runs start while 50,000 runs wait for a limit ahead of them."""
    with store_place(name) as url, scratch() as folder:
        noted = folder / "bench.starts"
        app = apps.make("behind", url)
        app.limits.set(task="limited", concurrency=1)
        with apps.node("behind", url, noted):
            app.enqueue("limited")  # occupies the only slot
            until(lambda: app.runs.count().get("running") == 1, every=0.1)
            for _ in range(WAITING // _ADDED):
                app.enqueue_many([("limited", {})] * _ADDED)
            databases.analyze(url)
            assert app.runs.join(app.enqueue("stamp", {"due": 0}).id, "60s").state == "succeeded"
            for _ in range(FREE):
                app.enqueue("stamp", {"due": time.time()})
                time.sleep(0.05)
            until(lambda: app.runs.count().get("succeeded") == FREE + 1, every=0.2)
        app.close()
        late = sorted((began - due) * 1000 for due, began in apps.read_starts(noted) if due)
    p50, p95, p99 = (percentile(late, share) for share in (0.5, 0.95, 0.99))
    title = f"{name}: an unlimited run behind {WAITING:,} limited ones, half of them"
    return Row("limits", title, "ms", p50, {}, f"p99 < {GOAL} ms", p99 < GOAL, p95, p99)
