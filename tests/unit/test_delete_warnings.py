"""Deletes of schedules that others wait for: each way to delete one names those that are left waiting."""

from __future__ import annotations

import asyncio
import logging

import pytest

from evenbeat import Scheduler, every, on_success_of
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

WAITS = "mail, report wait for load, which does not succeed any more"
HINT = "change what they wait for, or add load again"


def declared(store: MemoryStore, *names: str) -> Scheduler:
    """Return an app whose code declares some of load, report and mail."""
    app = Scheduler(store, source="shop")
    app.task(name="work")(lambda: None)
    triggers = {"load": every("1h"), "report": on_success_of("load"), "mail": every("1d")}
    for name in names:
        app.declare(name, triggers[name], "work", after="load within 1h" if name == "mail" else None)
    return app


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(VirtualClock())


@pytest.fixture
def app(store: MemoryStore) -> Scheduler:
    app = declared(store, "load", "report", "mail")
    assert len(app.apply().done) == 3
    return app


def test_delete_names_the_schedules_that_wait(app: Scheduler) -> None:
    deleted = app.schedules.delete("load")
    assert (deleted.name, deleted.tenant) == ("load", "default")
    (warning,) = deleted.warnings
    assert (warning.problem, warning.hint) == (WAITS, HINT)
    assert asyncio.run(app.schedules.adelete("report")).warnings == ()


def test_one_schedule_that_waits_is_named_in_the_singular(app: Scheduler) -> None:
    app.schedules.update("mail", after=None)
    (warning,) = app.schedules.delete("load").warnings
    assert warning.problem == "report waits for load, which does not succeed any more"
    assert warning.hint == "change what it waits for, or add load again"


def test_a_bulk_delete_names_those_that_are_not_deleted_too(app: Scheduler) -> None:
    counted = app.schedules.delete_all(names=["load"], dry_run=True)
    assert [each.problem for each in counted.warnings] == [WAITS]
    both = app.schedules.delete_all(names=["load", "mail"])
    assert [each.problem for each in both.warnings] == [
        "report waits for load, which does not succeed any more"
    ]
    assert app.schedules.pause_all(names=["report"]).warnings == ()


def test_plan_and_apply_name_schedules_that_wait_for_a_pruned_one(app: Scheduler, store: MemoryStore) -> None:
    fewer = declared(store, "report", "mail")
    assert fewer.plan().warnings == ()
    plan = fewer.plan(prune=True)
    assert [each.problem for each in plan.warnings] == [WAITS]
    assert [each.problem for each in fewer.apply(plan, prune=True).warnings] == [WAITS]


def test_a_deploy_that_changes_those_that_wait_warns_of_nothing(app: Scheduler, store: MemoryStore) -> None:
    other = Scheduler(store, source="shop")
    other.task(name="work")(lambda: None)
    other.declare("report", every("1h"), "work")
    plan = other.plan(prune=True)
    assert {entry.name: entry.action for entry in plan.entries} == {
        "load": "remove",
        "mail": "remove",
        "report": "change",
    }
    assert plan.warnings == ()
    assert other.apply(plan, prune=True).warnings == ()


def test_a_schedule_that_moves_to_the_code_names_those_that_wait(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    app = Scheduler(store)
    app.task(name="load", schedule=every("1h"))(lambda: None)
    app.task(name="report", schedule=on_success_of("load"))(lambda: None)
    app.declare_tasks()
    then = Scheduler(store)
    then.task(name="load", schedule=every("1h"), durable=False)(lambda: None)
    with caplog.at_level(logging.WARNING):
        then.declare_tasks()
    assert "report waits for load, which does not succeed any more; durable=True" in caplog.text
