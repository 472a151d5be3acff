"""What workers note beside a run, on every database: its progress, and a late result that was refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evenbeat import Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.records import RunRecord
from evenbeat.node.progress import keep_progress, store_progress
from evenbeat.observe.run_logs import refusal
from evenbeat.observe.run_progress import KIND, ReportedProgress
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim


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


def claimed(app: Scheduler, worker: str) -> RunRecord:
    claim = Claim(worker=worker, token=worker, limit=1, now=app.store.now(), lease=60_000, tasks=None)
    (run,) = app.store.claim_runs(claim).runs
    return run


def made_again(app: Scheduler, ended: RunRecord) -> RunRecord:
    """End and purge a run; return a later one of the same id, as it was claimed."""
    assert app.store.settle_runs([attempts.succeeded(ended, "null", app.store.now(), "end")]) == [True]
    while app.store.purge(app.store.now() + 120_000, 100).deleted:
        pass
    while app.store.now() == ended.created_at:
        pass  # on a store in memory, all this takes less than a millisecond
    app.enqueue("work", id=ended.id)
    return claimed(app, "w2")


def test_a_run_does_not_show_the_progress_of_an_earlier_run_of_its_id(app: Scheduler) -> None:
    store = app.store
    app.enqueue("work", id="x")
    earlier = claimed(app, "w1")
    old = ReportedProgress(earlier)
    old.report(9, "old run", 10)
    store_progress(store, old, store.now())
    keep_progress(store, old, store.now(), 86_400_000)
    later = made_again(app, earlier)
    assert app.runs.get("x").progress is None
    own = ReportedProgress(later)
    own.report(1, "new run", 10)
    store_progress(store, own, store.now())
    old.report(10, "old run", 10)  # its function ends long after another node took the run over
    store_progress(store, old, store.now())
    keep_progress(store, old, store.now(), 86_400_000)
    shown = app.runs.get("x").progress
    assert shown is not None
    assert (shown.done, shown.note) == (1, "new run")


def test_the_progress_of_a_run_is_kept_though_an_earlier_run_of_its_id_had_more_attempts(
    app: Scheduler,
) -> None:
    store = app.store
    app.enqueue("work", id="x")
    lost = attempts.crashed(claimed(app, "w1"), store.now(), "reaper")
    assert store.settle_runs([replace(lost, lease_ended=False)]) == [True]
    earlier = claimed(app, "w3")
    old = ReportedProgress(earlier)
    old.report(9, "old run", 10)
    keep_progress(store, old, store.now(), 86_400_000)
    later = made_again(app, earlier)
    assert later.attempt < earlier.attempt
    own = ReportedProgress(later)
    own.report(1, "new run", 10)
    store_progress(store, own, store.now())
    shown = app.runs.get("x").progress
    assert shown is not None
    assert shown.note == "new run"


def test_two_attempts_and_what_the_first_worker_notes_late(app: Scheduler) -> None:
    store = app.store
    run_id = app.enqueue("work", id="€-" + "x" * 300).id
    first = claimed(app, "w1")
    early = ReportedProgress(first)
    early.report(1, 'a "note" 😀', 9_007_199_254_740_992)
    store_progress(store, early, store.now())
    found = app.runs.get(run_id).progress
    assert found is not None
    assert (found.done, found.total, found.note) == (1, 9_007_199_254_740_992, 'a "note" 😀')
    ended = replace(attempts.crashed(first, store.now(), "reaper"), lease_ended=False)
    assert store.settle_runs([ended]) == [True]
    second = claimed(app, "w2")
    assert app.runs.get(run_id).progress is None
    late = ReportedProgress(second)
    for done in (0.25, 0.5):
        late.report(done, "", None)
        store_progress(store, late, store.now())
    early.report(2, "late", None)
    store_progress(store, early, store.now())
    keep_progress(store, early, store.now(), 86_400_000)
    found = app.runs.get(run_id).progress
    assert found is not None
    assert (found.done, found.total, found.note) == (0.5, None, "")
    at = store.now()
    store.append_log([refusal(first, at)])
    store.append_log([refusal(first, at + 5)])
    assert [each.refused_at for each in app.runs.get(run_id).attempts] == [from_ms(at)]
    assert store.settle_runs([attempts.succeeded(second, "null", at, "end")]) == [True]
    late.report(1, "done", None)
    keep_progress(store, late, store.now(), 60_000)
    kept = app.runs.get(run_id).progress
    assert kept is not None
    assert (kept.done, kept.note) == (1, "done")
    (record,) = store.find_records(KIND)
    assert record.expires is not None
    assert record.expires <= store.now() + 60_000
    assert [each.refused_at for each in app.runs.get(run_id).attempts] == [from_ms(at), None]
    while store.purge(store.now() + 120_000, 100).deleted:
        pass
    assert store.read_log(run_id) == []
