"""Bulk changes of schedules: dry runs check what they would do, progress, and refusals with names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evenbeat import BulkResult, InvalidValue, Scheduler, after, every, on_success_of
from evenbeat.app import bulk
from evenbeat.cli import progress
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from tests.unit.cli_store import app as stored_app
from tests.unit.cli_store import clock, failed, printed, run

__all__ = ["clock", "stored_app"]


@pytest.fixture
def app() -> Scheduler:
    app = Scheduler(MemoryStore(VirtualClock()))

    @app.task
    def work(n: int = 0) -> None: ...

    for name in ("a", "b", "load"):
        app.schedules.add(name, every("1h"), "work")
    return app


def reasons(result: BulkResult[Any]) -> dict[str, str]:
    return {each.id: each.why for each in result.refused}


# -- dry runs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"catch_up_limit": 5}, {"b", "load"}),
        ({"payload": {"m": 1}}, {"a", "b", "load"}),
        ({"trigger": "0 9 * * * skip=nowhere"}, {"a", "b", "load"}),
        ({"after": "nowhere within 1h"}, {"a", "b", "load"}),
        ({"trigger": "on success of load"}, {"load"}),
        ({"after": after("load", within="1h")}, {"load"}),
        ({"template": "nowhere"}, {"a", "b", "load"}),
        ({"inherit": ["retries"]}, {"a", "b", "load"}),
    ],
)
def test_a_dry_run_refuses_what_the_change_refuses(app: Scheduler, changes: Any, refused: set[str]) -> None:
    app.schedules.update("a", catch_up="all")
    before = app.schedules.list()
    dry = app.schedules.update_all(changes, dry_run=True)
    assert (dry.matched, dry.done, dry.changed, set(reasons(dry))) == (3, 0, (), refused)
    assert app.schedules.list() == before
    done = app.schedules.update_all(changes)
    assert {name: why.partition(";")[0] for name, why in reasons(done).items()} == {
        name: why.partition(";")[0] for name, why in reasons(dry).items()
    }


def test_a_dry_run_checks_room_and_quota_and_counts_nothing(app: Scheduler) -> None:
    app.schedules.update("b", overlap="skip")
    app.schedules.run_now("b")
    assert "leave no room" in reasons(app.schedules.run_all(dry_run=True))["b"]
    app.tenants.set_quota("default", queued_runs=2)
    for _ in range(3):
        dry = app.schedules.run_all(dry_run=True)
        assert set(reasons(dry)) == {"b", "load"}
    assert set(reasons(app.schedules.run_all())) == {"b", "load"}


def test_a_dry_run_of_a_template_refuses_what_its_change_refuses(app: Scheduler) -> None:
    app.templates.set("t", retries=1)
    for name in ("a", "load"):
        app.schedules.update(name, template="t")
    dry = app.templates.set("t", after="load within 1h", dry_run=True)
    assert (dry.changed, [each.id for each in dry.refused]) == (1, ["load"])
    done = app.templates.set("t", after="load within 1h")
    assert (done.changed, [each.id for each in done.refused]) == (1, ["load"])


# -- templates that no schedule could use --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"trigger": "0 9 * * * skip=nowhere"}, "skip"),
        ({"trigger": on_success_of("nowhere")}, "trigger"),
        ({"after": "nowhere within 1h"}, "after"),
        ({"trigger": "on success of load", "after": "a within 1h"}, "after"),
        ({"catch_up": "latest", "catch_up_rate": "10/m"}, "catch_up_rate"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_template_that_no_schedule_could_use_is_refused(
    app: Scheduler, options: Any, field: str, dry_run: bool
) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.templates.set("t", **options, dry_run=dry_run)
    assert refused.value.field == field
    assert all(each.built_in for each in app.templates.list())


def test_a_template_may_name_any_schedule_that_exists(app: Scheduler) -> None:
    app.schedules.add("template", every("1h"), "work")
    app.templates.set("t", trigger="on success of template")
    assert app.schedules.add("c", "@t", "work").trigger == "on success of template"


# -- progress ------------------------------------------------------------------------------------------------


def test_bulk_changes_tell_their_progress(app: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_BATCH", 2)
    seen: list[tuple[int, int]] = []

    def note(result: BulkResult[Any]) -> None:
        seen.append((result.matched, result.done))

    schedules = app.schedules
    schedules.update_all({"retries": 1}, progress=note)
    schedules.update_all({"retries": 2}, progress=note, dry_run=True)
    assert seen == [(2, 2), (3, 3), (2, 0), (3, 0)]
    for call in (schedules.pause_all, schedules.resume_all, schedules.run_all, schedules.delete_all):
        seen.clear()
        call(progress=note)
        assert seen == [(2, 2), (3, 3)], call
    seen.clear()
    app.runs.cancel_all(progress=note)
    app.runs.retry_all(state="cancelled", progress=note)
    app.runs.move("work", "other", progress=note)
    assert seen == [(3, 3)] * 3
    app.schedules.add("a", every("1h"), "work", template=app.templates.set("t", retries=1).template.name)
    seen.clear()
    app.templates.set("t", retries=2, progress=note)
    asyncio.run(schedules.aupdate_all({"retries": 3}, progress=note))
    assert seen == [(1, 1), (1, 1)]


# -- the terminal --------------------------------------------------------------------------------------------


def test_refusals_have_the_name_and_the_reason(stored_app: Scheduler) -> None:
    for name in ("x", "y", "load"):
        stored_app.schedules.add(name, "every 1h", "t")
    stored_app.schedules.add("x", "every 1h", "t", tenant="acme", catch_up="all")
    stored_app.schedules.update("y", catch_up="all")
    change = ("schedules", "update", "--all", "--catch-up-limit", "5")
    dry = printed(*change, "--dry-run", code=1).splitlines()
    assert dry[-4:-2] == ["would update 1 schedule; nothing was done", "would leave 2 schedules alone:"]
    assert dry[-2].startswith('  load: catch_up_limit 5 has no effect with catch_up="latest"')
    assert "3 schedules match, and 2 would be left alone" in failed(*change)
    done = printed(*change, "--yes", code=1).splitlines()
    assert done[:2] == ["updated 1 schedule", "left 2 schedules alone:"]
    assert [line.partition(":")[0] for line in done[2:]] == ["  load", "  x"]
    stored_app.schedules.add("y", "every 1h", "t", tenant="acme")
    everywhere = printed(*change, "--all-tenants", "--yes", code=1).splitlines()
    assert [line.partition(":")[0] for line in everywhere[2:]] == [
        "  acme/y",
        "  default/load",
        "  default/x",
    ]
    assert "--dry-run goes with --all" in failed(
        "schedules", "update", "x", "--retries", "1", "--dry-run", code=2
    )


def test_a_change_that_all_refuse_asks_nothing(stored_app: Scheduler) -> None:
    stored_app.schedules.add("x", "every 1h", "t")
    lines = printed("schedules", "update", "--all", "--catch-up-limit", "5", code=1).splitlines()
    assert lines[:2] == ["updated 0 schedules", "left 1 schedule alone:"]


def test_a_template_names_the_schedules_that_refuse_it(stored_app: Scheduler) -> None:
    stored_app.templates.set("t", retries=1)
    for name in ("x", "load"):
        stored_app.schedules.add(name, "every 1h", "t", template="t")
    change = ("templates", "set", "t", "--after", "load within 1h")
    dry = printed(*change, "--dry-run", code=1).splitlines()
    assert dry[1] == "2 schedules inherit from it, 1 would change"
    assert dry[-2] == "would leave 1 schedule alone:"
    assert dry[-1].startswith('  load: after "load within 1h" would make load wait for itself')
    done = printed(*change, code=1).splitlines()
    assert done[-2] == "left 1 schedule alone:"
    assert done[-1].startswith('  load: after "load within 1h" would make load wait for itself')


def test_a_bulk_change_in_a_terminal_shows_a_bar(
    stored_app: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x", "y", "z"):
        stored_app.schedules.add(name, "every 1h", "t")
    monkeypatch.setattr(bulk, "_BATCH", 2)

    class Terminal:
        """The module sys, as it is in a terminal."""

        class stderr:  # noqa: N801  # the name in sys
            isatty = staticmethod(lambda: True)

        class stdin:  # noqa: N801  # the name in sys
            isatty = staticmethod(lambda: True)

    monkeypatch.setattr(progress, "sys", Terminal)
    counted = run("schedules", "update", "--all", "--retries", "1", "--yes").stderr
    assert counted == "\r2 schedules so far\r3 schedules so far\r"
    monkeypatch.setattr("evenbeat.cli.bulk.sys", Terminal)
    asked = run("schedules", "update", "--all", "--retries", "2", answers="y\n").stderr
    assert asked.endswith(f"\r[{'#' * 20}{'.' * 10}] 2 of 3 schedules\r[{'#' * 30}] 3 of 3 schedules\r")
