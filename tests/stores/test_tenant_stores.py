"""Tenants on every store: counts, quotas, purges, and one tenant's failures beside the work of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from evenbeat import Quota, QuotaExceeded, RunContext, Scheduler
from evenbeat.core.records import RunRecord, ScheduleRecord
from evenbeat.rules import attempts
from evenbeat.rules.firing import Planned
from evenbeat.stores.base import Claim, RunQuery, ScheduleQuery, Write
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.mongo import tenants as mongo_tenants
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.postgres import tenants as postgres_tenants
from evenbeat.stores.sqlite import SqliteStore
from evenbeat.stores.sqlite import tenants as sqlite_tenants
from tests.lengths import some


@pytest.fixture(params=["memory", "sqlite", "postgres", "valkey", "mongo"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scheduler]:
    if request.param == "memory":
        url = "memory://"
    elif request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/evenbeat.db"
    else:
        url = request.getfixturevalue(request.param)
    app = Scheduler(url)
    yield app
    app.close()


def claim(app: Scheduler, limit: int, queue: str = "default") -> list[RunRecord]:
    now = app.store.now()
    wanted = Claim(worker="w", token=uuid4().hex, limit=limit, now=now, lease=60_000, queues=(queue,))
    return list(app.store.claim_runs(wanted).runs)


def end(app: Scheduler, runs: list[RunRecord]) -> None:
    now = app.store.now()
    ends = [attempts.succeeded(run, "null", now, uuid4().hex) for run in runs]
    assert all(app.store.settle_runs(ends))


def fill(app: Scheduler, tenant: str) -> None:
    """Add 3 schedules, 200 ended runs, 2 running ones, 600 queued ones, a lock and a quota."""
    for name in ("one", "two", "three"):
        app.schedules.add(name, "every 1h", "work", tenant=tenant)
    app.schedules.pause("three", tenant=tenant)
    app.enqueue_many(["work"] * 802, tenant=tenant, queue=tenant)
    held = claim(app, 202, tenant)
    assert len(held) == 202
    end(app, held[:200])
    assert app.lock("export", "1h", tenant=tenant).try_acquire()
    app.tenants.set_quota(tenant, schedules=5)


def test_a_tenant_is_counted_and_purged_beside_another(app: Scheduler) -> None:
    for tenant in ("acme", "acme-2"):
        fill(app, tenant)
    listed = {tenant.name: tenant for tenant in app.tenants.list()}
    assert list(listed) == ["acme", "acme-2"]
    acme = listed["acme"]
    assert (acme.schedules, acme.active_schedules, acme.paused_schedules) == (3, 2, 1)
    assert (acme.due, acme.later, acme.running, acme.quota) == (600, 0, 2, Quota(schedules=5))
    shown = app.tenants.get("acme")
    assert shown.ended == {"cancelled": 0, "failed": 0, "succeeded": 200}
    assert shown.oldest_due is not None
    assert shown.next_fire == app.schedules.get("one", tenant="acme").next_run
    others = app.tenants.get("acme-2")

    counted = app.tenants.purge("acme", dry_run=True)
    assert (counted.schedules, counted.cancelled, counted.stopping) == (3, 600, 2)
    assert (counted.runs, counted.records) == (800, 2)
    done = app.tenants.purge("acme")
    assert (done.schedules, done.cancelled, done.stopping, done.runs) == (3, 600, 2, 800)
    assert not done.is_complete
    running = list(app.store.find_runs(RunQuery(tenant="acme")).items)
    assert [(run.state, run.cancel_requested) for run in running] == [("running", True)] * 2
    end(app, running)
    done = app.tenants.purge("acme")
    assert (done.is_complete, done.runs) == (True, 2)
    assert [tenant.name for tenant in app.tenants.list()] == ["acme-2"]
    assert app.runs.count(tenant="acme") == {}
    tombstones = app.store.find_schedules(ScheduleQuery(tenant="acme", states=("deleted",))).items
    assert [(row.wake_at, row.next_tick) for row in tombstones] == [(None, None)] * 3
    assert app.lock("export", tenant="acme").try_acquire()
    assert not app.lock("export", tenant="acme-2").try_acquire()
    assert app.tenants.get("acme-2") == others


def test_quotas_are_counted_in_the_store(app: Scheduler) -> None:
    app.schedules.add("one", "every 1h", "work", tenant="acme")
    app.enqueue_many(["work"] * 3, tenant="acme")
    app.enqueue("work", tenant="acme", delay="1h")
    app.tenants.set_quota("acme", schedules=1, queued_runs=4)
    with pytest.raises(QuotaExceeded) as refused:
        app.schedules.add("two", "every 1h", "work", tenant="acme")
    assert (refused.value.what, refused.value.used) == ("schedules", 1)
    with pytest.raises(QuotaExceeded) as refused:
        app.enqueue("work", tenant="acme")
    assert (refused.value.what, refused.value.used) == ("queued_runs", 4)
    app.enqueue("work", tenant="other")
    # Another process finds the quota, and counts for itself.
    other = Scheduler(app.store)
    with pytest.raises(QuotaExceeded):
        other.enqueue_many(["work"], tenant="acme")
    end(app, [run for run in claim(app, 10) if run.tenant == "acme"])
    app.tenants.set_quota("acme", queued_runs=5)  # counts again
    app.enqueue_many(["work"] * 4, tenant="acme")


# Nodes do the same on every store, and the contract has the quarantine of each.
@pytest.mark.parametrize("app", some(("memory", "sqlite"), "sqlite"), indirect=True)
def test_the_failures_of_one_tenant_do_not_stop_the_others(app: Scheduler) -> None:
    """R45, R46: a row that can't be planned, and tasks that raise or hang, beside another tenant's tasks."""
    ran = threading.Semaphore(0)
    is_over = threading.Event()

    @app.task
    def good() -> None:
        ran.release()

    @app.task
    def raises() -> None:
        raise ValueError("acme")

    @app.task
    def exits() -> None:
        raise SystemExit(3)

    @app.task
    def hangs(run: RunContext) -> None:
        is_over.wait(60)

    for task in (raises, exits, hangs):
        app.schedules.add(task.name, "every 1s", task, tenant="acme", overlap="skip")
    # No node can plan it: its trigger can't be read.
    app.schedules.add("broken", "every 1s", good, tenant="acme")
    (row,) = app.store.find_schedules(ScheduleQuery(tenant="acme", name="broken")).items
    damage(app, row)
    app.schedules.add("beat", "every 1s", good, tenant="globex")
    try:
        with app:
            for _ in range(3):
                assert ran.acquire(timeout=60)
            # Adding and deleting schedules of either tenant does not wait for what hangs.
            app.schedules.add("late", "every 1s", good, tenant="acme")
            app.schedules.delete("beat", tenant="globex")
            while ran.acquire(blocking=False):
                pass
            assert ran.acquire(timeout=60), "acme's own good schedule fires"
            is_over.set()
    finally:
        is_over.set()
    states = app.runs.count(tenant="globex")
    assert set(states) == {"succeeded"}
    assert app.runs.count(tenant="acme")["failed"] >= 2


def damage(app: Scheduler, row: ScheduleRecord) -> None:
    """Store a trigger that can't be read."""
    damaged = replace(row, trigger="every nonsense", revision=row.revision + 1)
    assert app.store.put_schedules([Write(Planned(damaged), row.version)])[0].accepted


def test_tenants_of_ended_runs_are_found_by_an_index(app: Scheduler) -> None:
    """The history is not read: from each tenant, the index leads to the next one."""
    store = cast(object, app.store)
    for tenant in ("a", "b"):
        app.enqueue_many(["work"] * 300, tenant=tenant, queue=tenant)
        end(app, claim(app, 300, tenant))
    if isinstance(store, SqliteStore):
        with store._connections.read() as session:
            for text, values in ((sqlite_tenants.SELECT_TENANTS, ()), (sqlite_tenants.SELECT_TENANT, ("a",))):
                steps = [row[3] for row in session.rows("explain", f"EXPLAIN QUERY PLAN {text}", values)]
                reads = [step for step in steps if "evenbeat_runs" in step]
                assert reads
                assert all("USING COVERING INDEX evenbeat_runs_ended" in step for step in reads), steps
                assert sum(step.startswith("SCAN") for step in reads) == 0, steps
    elif isinstance(store, PostgresStore):
        with store._connections.read() as session:
            session.rows("settings", "SET LOCAL enable_seqscan = off")
            for text in (postgres_tenants.SELECT_TENANTS, postgres_tenants.SELECT_TENANT):
                rows = session.rows("explain", f"EXPLAIN {text}", {"tenant": "a"})
                plan = "\n".join(row[0] for row in rows)
                assert "Seq Scan on runs" not in plan, plan
                assert "runs_of_tenant" in plan or "runs_ended" in plan, plan
    elif isinstance(store, MongoStore):
        found = store._session.run(
            "explain",
            {
                "explain": {
                    "find": "runs",
                    "filter": {"state": {"$in": mongo_tenants._FINAL}, "tenant": {"$gt": "a"}},
                    "sort": {"tenant": 1},
                    "limit": 1,
                },
                "verbosity": "executionStats",
            },
        )
        assert found["executionStats"]["totalDocsExamined"] <= 1, found["queryPlanner"]["winningPlan"]
    assert [tenant.name for tenant in app.tenants.list()] == ["a", "b"]
