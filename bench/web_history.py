"""The REST API beside a long history in PostgreSQL: every endpoint that a page refreshes, p50 and p99.

``python -m bench.web_history [RUNS] [--explain]`` fills an empty database with that many finished runs, 10
million by default, and prints a table. ``--explain`` also prints the plan of each search for runs.
"""

from __future__ import annotations

import http.client
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from tests.servers import stop_shared

from bench.databases import place, present
from bench.measure import Row, percentile
from bench.processes import scratch
from bench.web import get, serving
from evenbeat import Scheduler
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode_policy
from evenbeat.core.records import Execution, Record
from evenbeat.rules import rollups
from evenbeat.stores.base import RunQuery, Store
from evenbeat.stores.postgres import history
from evenbeat.stores.urls import open_url
from evenbeat.web import run_changes
from evenbeat.web.catalogue import Catalogue

RUNS = 10_000_000
CALLS = 100
GOAL = 100
DAYS = 30
SCHEDULES = 1_000
NODES = 3

_DAY = 86_400_000
# Values that few runs have. A search for them must not read the whole history.
RARE = 100

# Run n of N; the newest has the number N. Nine tenants and a hundred tasks share the runs. The values that
# begin with "rare" belong to RARE runs, spread over the whole time: a hundred runs are "failed" with an error
# of their own, and so on. 2 % fail, 0.5 % of the first half were cancelled.
_FILL = """
INSERT INTO evenbeat.runs (
    id, tenant, schedule, generation, tick, cause, coalesced, task, kind, payload, queue, priority, execution,
    state, scheduled_at, run_at, attempt, failures, crashes, worker, cancel_requested, created_at, started_at,
    finished_at, result, error, fired_by, format
)
SELECT
    'history-' || n,
    CASE WHEN n %% {rare} = 7 THEN 'rare' WHEN n %% 10 < 6 THEN 'default' ELSE 'tenant-' || n %% 10 END,
    CASE WHEN n %% {rare} = 7 THEN 'rare' WHEN n %% 20 = 0 THEN NULL ELSE 'schedule-' || n %% {schedules} END,
    1, NULL, 'enqueue', 0,
    CASE WHEN n %% {rare} = 8 THEN 'rare' ELSE 'task-' || n %% 97 END,
    'task', '{{"customer": 4711, "report": "monthly"}}',
    CASE WHEN n %% {rare} = 9 THEN 'rare' ELSE 'default' END,
    5, %(execution)s,
    CASE WHEN n %% 50 = 3 THEN 'failed' WHEN n < {count} / 2 AND n %% 200 = 5 THEN 'cancelled'
         ELSE 'succeeded' END,
    at, at, 1, CASE WHEN n %% 50 = 3 THEN 1 ELSE 0 END, 0,
    CASE WHEN n %% {rare} = 9 THEN 'rare' ELSE 'node-' || n %% {nodes} END,
    FALSE, at, at + 20, at + 20 + n %% 3000,
    CASE WHEN n %% 50 = 3 THEN NULL ELSE '{{"rows": 12}}' END,
    CASE WHEN n %% 50 = 3 THEN 'Traceback (most recent call last):' || chr(10) || 'ValueError: customer '
         || n || ' is unknown to service ' || n %% 7 END,
    'node-' || n %% {nodes}, 1
FROM (SELECT n, %(now)s - CAST(({count} - n) * {span}::numeric / {count} AS bigint) - 5000 AS at
      FROM generate_series(CAST(%(first)s AS bigint), CAST(%(last)s AS bigint)) AS n) AS run
"""
_STATISTICS = """
INSERT INTO evenbeat.statistics
SELECT tenant, schedule, count(*), count(*) FILTER (WHERE state = 'succeeded'),
    count(*) FILTER (WHERE state = 'failed'), max(finished_at),
    max(finished_at) FILTER (WHERE state = 'succeeded'), max(finished_at) FILTER (WHERE state = 'failed'),
    max(error)
FROM evenbeat.runs WHERE schedule IS NOT NULL GROUP BY tenant, schedule
"""
_PART = 500_000


class Look(NamedTuple):
    """Something that is measured: a name, and a call."""

    name: str
    call: Callable[[], object]


def run(count: int = RUNS, *, explain: bool = False) -> list[Row]:
    rows: list[Row] = []
    for name in present("postgres"):
        with scratch() as folder, place(name) as url:
            app = Scheduler(url)
            fill(app, url, count)
            if explain:
                _explain(app.store, url)
            secret = app.tokens.create("bench").secret
            with serving("bench.web_events", url, folder) as port:
                rows += [
                    _measured(count, look) for look in [*_requests(port, secret, count), *_watching(url)]
                ]
            app.close()
    return rows


def fill(app: Scheduler, url: str, count: int) -> None:
    """Add schedules, finished runs, their statistics and the figures of nodes, without the usual writes."""
    for number in range(0, SCHEDULES, 10):
        # One of ten: the others were deleted since. Their runs stay.
        app.schedules.add(f"schedule-{number}", "every 1h", f"task-{number % 97}", {"customer": 4711})
    for number in range(100):
        app.schedules.pause(f"schedule-{number * 10}", f"maintenance {number}")
        app.schedules.resume(f"schedule-{number * 10}")
    now = app.store.now()
    text = _FILL.format(
        count=count, span=DAYS * _DAY, rare=max(count // RARE, 100), schedules=SCHEDULES, nodes=NODES
    )
    execution = encode_policy(Execution())
    begin = time.perf_counter()
    with psycopg.connect(url, autocommit=True) as connection, _without_indexes(connection):
        for first in range(1, count + 1, _PART):
            last = min(first + _PART - 1, count)
            values = {"now": now, "first": first, "last": last, "execution": execution}
            connection.execute(text, values)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_STATISTICS)
        _add_figures(app.store, now)
        connection.execute("VACUUM (ANALYZE)")
    print(f"{count:,} runs were added in {time.perf_counter() - begin:.0f} s", file=sys.stderr)


@contextmanager
def _without_indexes(connection: psycopg.Connection) -> Iterator[None]:
    """Drop the indexes of runs, and make them again, which is faster than to update them."""
    query = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'evenbeat' AND tablename = 'runs'"
    found = [row for row in connection.execute(query).fetchall() if row[0] != "runs_pkey"]
    connection.execute("SET maintenance_work_mem = '512MB'")
    connection.execute("ALTER TABLE evenbeat.runs DROP CONSTRAINT runs_pkey")
    for name, _ in found:
        connection.execute(f"DROP INDEX evenbeat.{name}")
    yield
    connection.execute("ALTER TABLE evenbeat.runs ADD PRIMARY KEY (id)")
    for _, definition in found:
        connection.execute(definition)


def _add_figures(store: Store, now: Instant) -> None:
    """Write what nodes write: 10 million runs in 30 days are 77 a minute on each of three nodes."""
    periods: list[tuple[rollups.By, int, int]] = [("minute", 180, 77), ("hour", 48, 1_000)]
    for by, many, names in periods:
        body = _figures(names, now)
        for back in range(many):
            start = rollups.start_of(by, now) - back * rollups.LENGTH[by]
            for node in range(NODES):
                key = rollups.rollup_key(by, start, f"node-{node}")
                store.put_record(Record(kind="rollup", tenant="default", key=key, body=body, version=1))


def _figures(names: int, now: Instant) -> str:
    tallies: dict[rollups.Name, rollups.Tally] = {}
    for number in range(names):
        tally = rollups.new_tally()
        tally[rollups.STARTED] = tally[rollups.SUCCEEDED] = tally[rollups.FIRED] = 1 + number % 5
        tally[rollups.TOOK + number % 12] = tally[rollups.LATE + number % 5] = 1 + number % 5
        tallies[f"tenant-{number % 10}", f"schedule-{number // 10}", f"task-{number % 97}"] = tally
    return rollups.write_rollup(rollups.make_rollup(tallies, written_at=now))


def _requests(port: int, secret: str, count: int) -> list[Look]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    every = "all_tenants=true"
    run_id, failed_id = f"history-{count // 2}", f"history-{count // 2 // 50 * 50 + 3}"
    paths = [
        "/schedules",
        f"/schedules?{every}&failing=true",
        "/schedules/schedule-10",
        "/schedules/schedule-10/ticks",
        "/schedules/schedule-10/skipped",
        "/schedules/schedule-10/stats",
        "/schedules/schedule-10/history",
        "/schedules/schedule-10/why",
        "/schedules/schedule-10/why?at=2h",
        "/schedules/schedule-10/account",
        "/runs",
        f"/runs?{every}",
        "/runs?limit=500",
        *(f"/runs?{every}&state={state}" for state in ("queued", "running", "retrying")),
        *(f"/runs?{every}&state={state}" for state in ("succeeded", "failed", "cancelled")),
        *(f"/runs?state={state}" for state in ("queued", "running", "succeeded", "failed", "cancelled")),
        "/runs?schedule=schedule-10",
        "/runs?schedule=schedule-10&state=failed",
        "/runs?schedule=schedule-10&state=cancelled",
        "/runs?schedule=schedule-11&since=1d",
        "/runs?task=task-5",
        "/runs?task=task-5&state=failed",
        "/runs?task=none",
        "/runs?task=rare",
        f"/runs?{every}&task=rare",
        "/runs?queue=default",
        "/runs?queue=rare",
        "/runs?worker=node-1",
        "/runs?worker=rare",
        "/runs?tenant=rare",
        "/runs?tenant=rare&state=failed",
        "/runs?tenant=none",
        "/runs?since=10m",
        "/runs?since=1h",
        "/runs?since=1d",
        "/runs?since=7d&state=failed",
        "/runs?since=2d&until=1d",
        f"/runs?{every}&since=1d",
        f"/runs/{run_id}",
        f"/runs/{run_id}/logs",
        f"/runs/{run_id}/history",
        f"/runs/{run_id}/why",
        f"/runs/{failed_id}/why",
        f"/statistics?{every}",
        f"/statistics?{every}&since=2d",
        f"/statistics?{every}&top=10",
        "/statistics?tenant=tenant-1&top=10",
        "/statistics?tenant=tenant-1&schedule=schedule-3",
        "/failures",
        f"/failures?{every}",
        "/failures?tenant=rare&since=30d",
        "/failures?task=rare&since=30d",
        "/failures?schedule=schedule-10&since=30d",
        "/nodes",
        "/queues",
        "/tenants",
        "/quarantine",
        "/audit",
        f"/audit?{every}&actor=nobody",
        "/audit?subject=schedule-10",
        "/forecast",
    ]

    def ask(path: str) -> Callable[[], object]:
        return lambda: get(connection, f"/api/v1{path}", secret)

    return [Look(f"GET {path}", ask(path)) for path in paths]


def _watching(url: str) -> list[Look]:
    """Return what the web process reads for the event stream and the catalogue, once a second."""
    store = open_url(url)
    store.open()
    catalogue = Catalogue()
    catalogue.refresh(store)
    return [
        Look("a poll for changed runs", lambda: run_changes.read(store, None, store.now() - 6_000)),
        Look("the same for one tenant", lambda: run_changes.read(store, "default", store.now() - 6_000)),
        Look("a refresh of the catalogue", lambda: catalogue.refresh(store)),
    ]


def _measured(count: int, look: Look) -> Row:
    times: list[float] = []
    try:
        for _ in range(CALLS):
            begin = time.perf_counter()
            look.call()
            times.append((time.perf_counter() - begin) * 1000)
            if sum(times) > 10_000:
                break  # far too slow: a few calls say it
    except AssertionError as error:
        print(f"{look.name}: {error}", file=sys.stderr)
        times.append(float("inf"))
    ordered = sorted(times)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    name = f"{look.name}, beside {count:,} runs"
    return Row("web", name, "ms", p50, {}, f"p99 < {GOAL} ms", p99 < GOAL, p95, p99)


def _explain(store: Store, url: str) -> None:
    now = store.now()
    queries = {
        "tenant=rare": RunQuery(tenant="rare", limit=21),
        "task=rare": RunQuery(tenant="default", task="rare", limit=21),
        "cancelled": RunQuery(tenant="default", states=("cancelled",), limit=21),
        "failed": RunQuery(tenant="default", states=("failed",), limit=21),
        "since 1d": RunQuery(tenant="default", since=now - _DAY, limit=21),
        "failures of 1d": RunQuery(tenant="default", states=("failed",), since=now - _DAY, limit=500),
        "failures of 30d": RunQuery(states=("failed",), since=now - 30 * _DAY, limit=500),
    }
    with psycopg.connect(url) as connection:
        for name, query in queries.items():
            for which, (text, values) in {
                "newest": history.newest_statement(query),
                "all": history.search_statement(query, limit=query.limit),
            }.items():
                plan = connection.execute(
                    f"EXPLAIN (ANALYZE, BUFFERS) {text} LIMIT %s", [*values, query.limit]
                )
                print(f"\n-- {name}: {which}", *(line for (line,) in plan), sep="\n", file=sys.stderr)


def table(rows: list[Row]) -> str:
    width = max(len(row.name) for row in rows)
    lines = [f"{'endpoint':{width}}  {'p50 ms':>9}  {'p99 ms':>9}"]
    for row in rows:
        mark = "" if row.met else "  <-- more than the goal"
        lines.append(f"{row.name:{width}}  {row.ours:9.1f}  {row.p99 or 0:9.1f}{mark}")
    return "\n".join(lines)


if __name__ == "__main__":
    numbers = [int(word.replace("_", "")) for word in sys.argv[1:] if not word.startswith("-")]
    try:
        print(table(run(*numbers, explain="--explain" in sys.argv)))
    finally:
        stop_shared()
