"""Backfills on every database: idempotence, the bound, threads that advance at once, and cancelling."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from evenbeat import Scheduler, cron
from evenbeat.core.records import RunRecord
from evenbeat.node.backfills import advance
from evenbeat.rules import attempts
from evenbeat.rules.backfills import KINDS
from evenbeat.stores.base import Claim, RunQuery
from tests.lengths import some

RANGE = ("2026-01-01T00:00Z", "2026-01-02T00:00Z")
TICKS = 24
THREADS = 4


# Dies after it has reserved ticks, and before or after it has written their runs.
DYING = """
import os, sys
from evenbeat import Scheduler
from evenbeat.stores.urls import open_url
store = open_url(sys.argv[1])
app = Scheduler(store)
app.runs.count()  # opens the store
write = store.put_schedules
def put_schedules(writes):
    if sys.argv[2] == "after":
        write(writes)
    os._exit(9)
store.put_schedules = put_schedules
app.schedules.backfill("yearly", "2026-01-01T00:00Z", "2026-01-02T00:00Z", max_concurrent=5, id="b")
"""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/evenbeat.db"
    return "memory://" if request.param == "memory" else str(request.getfixturevalue(request.param))


@pytest.fixture
def app(url: str) -> Iterator[Scheduler]:
    app = Scheduler(url)
    # Its own ticks are years away, and those before it existed are many.
    app.schedules.add("yearly", cron("0 * * * *"), "work", start_at="2100-01-01T00:00Z")
    yield app
    app.close()


EVERY_STORE = pytest.mark.parametrize(
    "url", ["memory", "sqlite", "postgres", "valkey", "mongo"], indirect=True
)


def runs_of(app: Scheduler, *states: str) -> list[RunRecord]:
    found = app.store.find_runs(RunQuery(schedule="yearly", tenant="default", limit=500)).items
    return [run for run in found if run.cause == "backfill" and (not states or run.state in states)]


def claim(app: Scheduler, limit: int = 10) -> list[RunRecord]:
    wanted = Claim(worker="w", token=uuid4().hex, limit=limit, now=app.store.now(), lease=60_000)
    return list(app.store.claim_runs(wanted).runs)


def end(app: Scheduler, run: RunRecord) -> None:
    assert app.store.settle_runs([attempts.succeeded(run, None, app.store.now(), uuid4().hex)]) == [True]


def leftovers(app: Scheduler) -> list[str]:
    return [record.key for kind in KINDS[1:] for record in app.store.find_records(kind)]


@EVERY_STORE
def test_it_goes_through_its_range_and_repeating_it_adds_nothing(app: Scheduler) -> None:
    made = app.schedules.backfill("yearly", *RANGE, max_concurrent=5)
    executed: Counter[int] = Counter()
    for _ in range(TICKS):
        assert app.schedules.backfill("yearly", *RANGE).id == made.id
        assert len(runs_of(app, "queued", "running")) <= 5
        for run in claim(app):
            assert run.tick is not None
            executed[run.tick] += 1
            end(app, run)
        advance(app.store, "default", made.id, app.store.now())
    over = app.backfills.get(made.id)
    assert (over.state, over.succeeded, over.left) == ("done", TICKS, 0)
    assert sorted(executed.values()) == [1] * TICKS
    assert len(runs_of(app)) == TICKS
    assert leftovers(app) == []


@EVERY_STORE
def test_threads_that_advance_it_at_once_never_add_too_many(app: Scheduler) -> None:
    made = app.schedules.backfill("yearly", *RANGE, max_concurrent=3)
    executed: list[RunRecord] = []
    for _ in range(6):
        for run in claim(app):
            executed.append(run)
            end(app, run)
        threads = [
            threading.Thread(target=advance, args=(app.store, "default", made.id, app.store.now()))
            for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(runs_of(app, "queued", "running")) <= 3
    assert len({run.id for run in executed}) == len(executed) >= 6
    assert len(runs_of(app)) <= len(executed) + 3


@EVERY_STORE
def test_a_cancellation_ends_it(app: Scheduler) -> None:
    made = app.schedules.backfill("yearly", *RANGE, max_concurrent=4)
    (held,) = claim(app, limit=1)
    found = app.backfills.cancel(made.id)
    assert (found.state, found.cancelled, found.active) == ("cancelling", 3, 1)
    (running,) = runs_of(app, "running")
    assert running.cancel_requested
    assert app.store.settle_runs([attempts.cancelled(held, app.store.now(), "t")]) == [True]
    advance(app.store, "default", made.id, app.store.now())
    over = app.backfills.get(made.id)
    assert (over.state, over.cancelled, over.left) == ("cancelled", 4, 20)
    assert leftovers(app) == []
    assert runs_of(app, "queued", "running") == []


@EVERY_STORE
def test_a_schedule_that_bounds_its_runs_is_obeyed(app: Scheduler) -> None:
    app.schedules.update("yearly", overlap="queue")
    made = app.schedules.backfill("yearly", *RANGE, max_concurrent=4)
    for _ in range(3):
        (run,) = claim(app)
        advance(app.store, "default", made.id, app.store.now())
        assert len(runs_of(app, "queued", "running")) == 1
        end(app, run)
        advance(app.store, "default", made.id, app.store.now())


@EVERY_STORE
def test_a_pause_holds_it(app: Scheduler) -> None:
    app.schedules.pause("yearly")
    made = app.schedules.backfill("yearly", *RANGE)
    assert (made.active, made.waits_for) == (0, "the schedule is paused")
    app.schedules.resume("yearly")
    advance(app.store, "default", made.id, app.store.now())
    assert app.backfills.get(made.id).active == 1


@EVERY_STORE
def test_a_dry_run_reads_and_writes_nothing(app: Scheduler) -> None:
    found = app.schedules.backfill("yearly", *RANGE, missing_only=True, dry_run=True)
    assert found.plan is not None
    assert (found.total, found.plan.states) == (TICKS, {"none": TICKS})
    assert (app.backfills.list(), leftovers(app), runs_of(app)) == ([], [], [])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "url", some(("sqlite", "postgres", "valkey", "mongo"), "sqlite", "postgres"), indirect=True
)
def test_a_process_that_dies_around_its_write_loses_and_doubles_nothing(
    app: Scheduler, url: str, when: str
) -> None:
    died = subprocess.run([sys.executable, "-c", DYING, url, when], check=False, timeout=120)
    assert died.returncode == 9
    found = app.backfills.get("b")
    assert (found.active, len(runs_of(app))) == (5, 0 if when == "before" else 5)
    executed: Counter[int] = Counter()
    for _ in range(TICKS):
        advance(app.store, "default", "b", app.store.now())
        assert len(runs_of(app, "queued", "running")) <= 5
        for run in claim(app):
            executed[run.tick or 0] += 1
            end(app, run)
    assert (app.backfills.get("b").succeeded, sorted(executed.values())) == (TICKS, [1] * TICKS)
    assert leftovers(app) == []
