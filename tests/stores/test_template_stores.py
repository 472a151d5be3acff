"""Templates, patterns of names and catching-up resumes on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evenbeat import Scheduler, TemplateInUse
from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import Write


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


def test_a_template_changes_its_schedules(app: Scheduler) -> None:
    app.templates.set("nightly", trigger="0 3 * * *", retries=3)
    for name in ("report-a", "report-b", "other"):
        app.schedules.add(name, task="work", template="nightly")
    app.schedules.update("other", retries=1)
    done = app.templates.set("nightly", trigger="0 4 * * *", retries=5, queue="batch")
    assert (done.schedules, done.changed, done.refused) == (3, 3, ())
    found = {each.name: (each.trigger, each.retries, each.queue) for each in app.schedules.list()}
    assert found == {
        "other": ("0 4 * * *", 1, "batch"),
        "report-a": ("0 4 * * *", 5, "batch"),
        "report-b": ("0 4 * * *", 5, "batch"),
    }
    again = app.templates.set("nightly", trigger="0 4 * * *", retries=5, queue="batch")
    assert (again.schedules, again.changed, again.template.revision) == (3, 0, 2)
    with pytest.raises(TemplateInUse):
        app.templates.delete("nightly")
    assert app.schedules.update_all({"template": None}, template="nightly").done == 3
    app.templates.delete("nightly")
    assert all(each.built_in for each in app.templates.list())


def test_a_pattern_finds_the_same_on_every_store(app: Scheduler) -> None:
    for name in ("a", "report", "report-1", "report-2", "reporu", "Report-3", "z"):
        app.schedules.add(name, "every 1h", "work")
    app.schedules.add("report-9", "every 1h", "work", tenant="acme")
    for pattern, names in (
        ("report-*", ["report-1", "report-2"]),
        ("report*", ["report", "report-1", "report-2"]),
        ("[Rr]eport-?", ["Report-3", "report-1", "report-2"]),
        ("report", ["report"]),
        ("*u", ["reporu"]),
        ("zz*", []),
    ):
        assert [each.name for each in app.schedules.list(name=pattern)] == names, pattern
    everywhere = app.schedules.list(name="report-*", all_tenants=True)
    assert [(each.tenant, each.name) for each in everywhere] == [
        ("acme", "report-9"),
        ("default", "report-1"),
        ("default", "report-2"),
    ]


def test_a_resume_catches_up_in_one_step(app: Scheduler) -> None:
    now = app.store.now()
    row = changes.create(
        ScheduleRecord(name="a", task="work", trigger="every 1m", state="paused"), now - 600_000
    )
    assert app.store.put_schedules([Write(row, None)])[0].accepted
    app.schedules.resume("a", catch_up=True)
    (run,) = app.runs.list(schedule="a")
    assert run.coalesced == 9
    (skipped,) = app.schedules.skipped("a")
    assert (skipped.count, skipped.reason) == (9, "coalesced")
