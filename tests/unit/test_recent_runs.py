"""The last runs of a schedule in brief, and its trigger in words."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from evenbeat import InvalidValue, ScheduleNotFound, every
from evenbeat.core.records import RunRecord
from evenbeat.observe.trigger_explanations import trigger_words
from evenbeat.observe.views import recent_view, run_view
from evenbeat.testing import VirtualScheduler

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    scheduler.task(name="work")(lambda: None)

    @scheduler.task(name="breaks")
    def breaks() -> None:
        raise ValueError("no")

    return scheduler


def test_the_last_runs_come_the_oldest_first(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("1m"), "work")
    app.travel("70m")
    found = app.schedules.recent("beat")
    assert [run.scheduled_at for run in found] == [NOON + at * MINUTE for at in range(11, 71)]
    assert {run.state for run in found} == {"succeeded"}
    assert (found[-1].duration, found[-1].lateness) == (timedelta(0), timedelta(0))
    assert found[-3:] == app.schedules.recent("beat", 3) == asyncio.run(app.schedules.arecent("beat", 3))


def test_a_list_of_schedules_returns_a_list_in_its_order(app: VirtualScheduler) -> None:
    app.schedules.add("good", every("1m"), "work")
    app.schedules.add("bad", every("1m"), "breaks")
    app.schedules.add("new", every("1d"), "work")
    app.schedules.add("good", every("1m"), "work", tenant="other")
    app.travel("2m")
    names = app.schedules.recent(["bad", "new", "good"])
    assert [[run.state for run in runs] for runs in names] == [["failed"] * 2, [], ["succeeded"] * 2]
    found = app.schedules.list(all_tenants=True)
    ids = [[run.id.split("/")[:2] for run in runs] for runs in app.schedules.recent(found, 1)]
    assert ids == [[["default", "bad"]], [["default", "good"]], [], [["other", "good"]]]


def test_a_schedule_that_never_existed_has_no_runs(app: VirtualScheduler) -> None:
    with pytest.raises(ScheduleNotFound):
        app.schedules.recent("beat")
    app.schedules.add("beat", every("1m"), "work")
    assert app.schedules.recent("beat") == []
    app.travel("1m")
    app.schedules.delete("beat")
    assert len(app.schedules.recent("beat")) == 1
    for limit in (0, 61):
        with pytest.raises(InvalidValue, match="is not a whole number of 1 to 60"):
            app.schedules.recent("beat", limit)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "queued"},
        {"state": "running", "started_at": 1_500, "attempt": 1, "worker": "w"},
        {"state": "succeeded", "started_at": 1_500, "finished_at": 4_000, "attempt": 1, "worker": "w"},
        {"state": "failed", "started_at": 9_500, "finished_at": 9_750, "attempt": 2, "worker": "w"},
        # Cancelled while it waited for a retry.
        {"state": "cancelled", "started_at": 9_500, "finished_at": 9_750, "attempt": 1, "worker": None},
    ],
)
def test_duration_and_lateness_are_those_of_the_run(fields: dict[str, object]) -> None:
    record = RunRecord(id="r", task="t", scheduled_at=1_000, **fields)  # type: ignore[arg-type]
    whole, brief = run_view(record), recent_view(record)
    assert (brief.duration, brief.lateness) == (whole.duration, whole.lateness)
    assert (brief.id, brief.state, brief.scheduled_at) == (whole.id, whole.state, whole.scheduled_at)


def test_words_are_those_of_the_schedule(app: VirtualScheduler) -> None:
    app.schedules.add("nightly-report", "H 3 * * *", "work")
    app.schedules.add("other-report", "H 3 * * *", "work")
    app.schedules.add("beat", every("10m"), "work")
    words = {each.name: each.words for each in app.schedules.list()}
    assert words["nightly-report"] == "at 03:18 every day (UTC)"
    assert words["other-report"] != words["nightly-report"]
    assert words["beat"] == "every 10 minutes"


def test_the_words_of_a_trigger_that_cannot_be_read_say_why() -> None:
    assert "61" in trigger_words("61 * * * *", "beat")
