"""``runs.move``: queued runs of a task that was renamed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evenbeat import InvalidValue, Scheduler, acting_as
from evenbeat.app.unique_runs import UniqueRuns
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


@pytest.fixture
def app(store: MemoryStore) -> Scheduler:
    app = Scheduler(store)

    @app.task
    def new(n: int = 0) -> None: ...

    return app


def claim(app: Scheduler, *tasks: str, token: str = "c1", limit: int = 100) -> list[str]:
    wanted = Claim(
        worker="w", token=token, limit=limit, now=app.store.now(), lease=30_000, tasks=frozenset(tasks)
    )
    return [run.id for run in app.store.claim_runs(wanted).runs]


def test_queued_runs_become_runs_of_the_new_task(app: Scheduler) -> None:
    ids = {app.enqueue("old", {"n": number}).id for number in range(3)}
    other = app.enqueue("other").id
    result = app.runs.move("old", "new")
    assert (result.matched, result.done, result.refused, result.more) == (3, 3, (), False)
    assert {each.id for each in result.changed} == ids
    assert {run.id: run.task for run in app.runs.list()} == {**dict.fromkeys(ids, "new"), other: "other"}
    assert set(claim(app, "new")) == ids
    assert app.runs.move("old", "new").matched == 0


def test_workers_are_woken_if_a_run_was_moved_and_only_then(
    app: Scheduler, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.enqueue("old", unique="k")
    hints: list[None] = []
    monkeypatch.setattr(store, "hint", lambda: hints.append(None))
    app.runs.move("old", "new")
    assert len(hints) == 1
    app.runs.move("old", "new")
    assert len(hints) == 1


def test_a_dry_run_only_counts(app: Scheduler) -> None:
    app.enqueue("old")
    result = app.runs.move("old", "new", dry_run=True)
    assert (result.matched, result.done, len(result.sample)) == (1, 0, 1)
    assert app.runs.list()[0].task == "old"


def test_running_and_ended_runs_stay(app: Scheduler) -> None:
    held = app.enqueue("old").id
    assert claim(app, "old") == [held]
    done = app.enqueue("old").id
    app.runs.cancel(done)
    assert app.runs.move("old", "new").matched == 0
    assert {run.task for run in app.runs.list()} == {"old"}


def test_a_run_that_is_claimed_meanwhile_is_refused_with_the_reason(
    app: Scheduler, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (app.enqueue("old").id for _ in range(2))
    settle = store.settle_runs

    def overtaken(transitions: Any) -> list[bool]:
        monkeypatch.undo()
        assert claim(app, "old", limit=1) == [first]
        return settle(transitions)

    monkeypatch.setattr(store, "settle_runs", overtaken)
    result = app.runs.move("old", "new")
    assert [each.id for each in result.changed] == [second]
    (refused,) = result.refused
    assert (refused.id, refused.why) == (first, f"run {first} is not queued any more")


def test_only_runs_of_the_queue_and_tenant_are_moved(app: Scheduler) -> None:
    mail = app.enqueue("old", queue="mail").id
    theirs = app.enqueue("old", tenant="acme").id
    app.enqueue("old")
    assert [each.id for each in app.runs.move("old", "new", queue="mail").changed] == [mail]
    assert [each.id for each in app.runs.move("old", "new", tenant="acme").changed] == [theirs]
    assert app.runs.move("old", "new", all_tenants=True).done == 1


def test_a_limit_bounds_the_number(app: Scheduler) -> None:
    for _ in range(3):
        app.enqueue("old")
    result = app.runs.move("old", "new", limit=2)
    assert (result.done, result.more) == (2, True)
    assert app.runs.move("old", "new").done == 1


def test_schedules_of_the_old_task_are_named_with_the_command(app: Scheduler) -> None:
    app.schedules.add("nightly", "@daily", "old")
    app.schedules.add("theirs", "@daily", "old", tenant="acme")
    (mine,) = app.runs.move("old", "new").schedules
    assert mine.command == "evenbeat schedules update nightly --task new"
    both = app.runs.move("old", "new", all_tenants=True).schedules
    assert both[0].command == "evenbeat schedules update theirs --task new --tenant acme"


def test_payloads_that_do_not_fit_the_new_task_are_a_warning(app: Scheduler) -> None:
    app.enqueue("old", {"n": 1})
    app.enqueue("old", {"m": 1})
    app.enqueue("old", {"n": "many"})
    (warning,) = app.runs.move("old", "new", dry_run=True).warnings
    assert warning.problem.startswith("2 payloads do not fit task new, the first one that of run ")


def test_a_new_task_that_nothing_has_is_a_warning(app: Scheduler) -> None:
    app.enqueue("old")
    (warning,) = app.runs.move("old", "nwe").warnings
    assert warning.problem.startswith("the app does not have the task nwe")
    assert warning.hint == "did you mean new?"


@pytest.mark.parametrize(
    ("task", "to", "problem"),
    [
        ("old", "old", 'to "old" is the task that the runs have'),
        ("", "new", 'task "" is not'),
        ("old", "a b", 'to "a b" is not'),
        ("old", 7, "to 7 is not"),
    ],
)
def test_wrong_names_are_refused(app: Scheduler, task: Any, to: Any, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        app.runs.move(task, to)


def test_the_audit_names_who_moved_a_run(app: Scheduler) -> None:
    run = app.enqueue("old")
    with acting_as("ann", "cli"):
        app.runs.move("old", "new")
    entry = app.runs.history(run.id)[0]
    assert (entry.actor, entry.action, entry.before, entry.after) == (
        "ann",
        "move",
        {"task": "old"},
        {"task": "new"},
    )


def test_the_async_twin_does_the_same(app: Scheduler) -> None:
    app.enqueue("old")
    assert asyncio.run(app.runs.amove("old", "new")).done == 1


# -- unique runs ---------------------------------------------------------------------------------------------


def test_a_unique_run_holds_the_key_of_its_new_task_and_frees_that_of_the_old(app: Scheduler) -> None:
    run = app.enqueue("old", unique="k")
    assert app.runs.move("old", "new").done == 1
    assert app.enqueue("new", unique="k").id == run.id
    again = app.enqueue("old", unique="k")
    assert again.id != run.id
    assert app.enqueue("old", unique="k").id == again.id


def test_a_unique_run_is_not_moved_to_a_key_that_another_run_holds(app: Scheduler) -> None:
    old, present = app.enqueue("old", unique="k"), app.enqueue("new", unique="k")
    result = app.runs.move("old", "new")
    (refused,) = result.refused
    assert refused.why == (
        f"run {old.id} is unique (k), and run {present.id} of task new with the same key is active; "
        "wait for its end, or cancel it"
    )
    app.runs.cancel(present.id)
    assert app.runs.move("old", "new").done == 1


def test_a_mover_that_dies_before_the_move_is_finished_by_who_needs_the_key(
    app: Scheduler, store: MemoryStore
) -> None:
    run = app.enqueue("old", unique="k")
    (record,) = store.find_runs(_by_id(run.id)).items
    UniqueRuns(store).take_for_move(record, "new")  # and dies
    assert app.enqueue("new", unique="k").id == run.id
    assert app.runs.get(run.id).task == "new"
    assert app.runs.move("old", "new").matched == 0


def test_a_mover_that_dies_and_repeats_moves_once(app: Scheduler, store: MemoryStore) -> None:
    run = app.enqueue("old", unique="k")
    (record,) = store.find_runs(_by_id(run.id)).items
    UniqueRuns(store).take_for_move(record, "new")
    assert app.runs.move("old", "new").done == 1
    assert claim(app, "new") == [run.id]


def test_a_key_that_was_taken_for_a_move_is_free_once_a_worker_claims_the_run(
    app: Scheduler, store: MemoryStore
) -> None:
    run = app.enqueue("old", unique="k")
    (record,) = store.find_runs(_by_id(run.id)).items
    UniqueRuns(store).take_for_move(record, "new")
    assert claim(app, "old") == [run.id]
    assert app.enqueue("new", unique="k").id != run.id
    assert app.enqueue("old", unique="k").id == run.id


def test_a_moved_unique_run_can_be_retried(app: Scheduler, store: MemoryStore) -> None:
    run = app.enqueue("old", unique="k")
    app.runs.move("old", "new")
    wanted = Claim(worker="w", token="c", limit=1, now=store.now(), lease=1000)
    (held,) = store.claim_runs(wanted).runs
    assert store.settle_runs([attempts.failed(held, "boom", store.now(), "t")]) == [True]
    assert app.runs.retry(run.id).state == "queued"
    assert app.enqueue("new", unique="k").id == run.id


def _by_id(run: str) -> RunQuery:
    return RunQuery(ids=(run,))
