"""Calendars, dependencies, templates, deploys and modes together: each must know what the others need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, Scheduler, after, cron, every, on_success_of
from evenbeat.core.records import ScheduleRecord
from evenbeat.node.fallback import Fallback
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.rules.backfills import touched
from evenbeat.rules.dependencies import needs_facts
from evenbeat.rules.fallback import remember
from evenbeat.rules.firing import plan
from evenbeat.stores.base import ScheduleQuery
from evenbeat.testing import VirtualScheduler, virtual

NOW = "2026-03-02T12:00:00Z"  # a Monday


@pytest.fixture
def app() -> Iterator[VirtualScheduler]:
    with virtual(now=NOW) as made:

        @made.task
        def work() -> None: ...

        yield made


def row(app: VirtualScheduler, name: str) -> ScheduleRecord:
    (found,) = [each for each in _rows(app) if each.name == name]
    return found


def _rows(app: VirtualScheduler) -> list[ScheduleRecord]:
    return list(app.store.find_schedules(ScheduleQuery(limit=100)).items)


def next_days(app: VirtualScheduler, name: str, count: int = 3) -> list[str]:
    return [f"{tick:%a %d}" for tick in app.schedules.preview(name, count)]


LOAD = {"trigger": "0 9 * * *", "task": "work"}
REPORT = {"trigger": "0 10 * * *", "task": "work", "after": "load within 2h"}
PUBLISH = {"trigger": "on success of report", "task": "work"}


class TestDeploys:
    @pytest.mark.parametrize("names", [("publish", "report", "load"), ("load", "report", "publish")])
    def test_schedules_that_wait_for_each_other_are_written_in_order(
        self, app: VirtualScheduler, names: tuple[str, ...]
    ) -> None:
        every_one = {"load": LOAD, "report": REPORT, "publish": PUBLISH}
        done = app.apply(schedules={name: every_one[name] for name in names}, source="shop")
        assert sorted(entry.name for entry in done.done) == ["load", "publish", "report"]
        assert done.refused == ()
        assert (row(app, "load").followers, row(app, "report").followers) == ("report", "publish")
        again = app.apply(schedules={name: every_one[name] for name in names}, source="shop")
        assert (again.done, again.unchanged) == ((), 3)
        app.travel("1d")
        assert sorted(run.schedule or "" for run in app.finished) == ["load", "publish", "report"]

    def test_one_that_waits_for_nothing_known_is_refused_alone(self, app: VirtualScheduler) -> None:
        done = app.apply(schedules={"report": REPORT, "other": LOAD}, source="shop")
        assert [entry.name for entry in done.done] == ["other"]
        assert [(each.name, "does not exist" in each.why) for each in done.refused] == [("report", True)]

    def test_a_cycle_is_refused(self, app: VirtualScheduler) -> None:
        one = {**LOAD, "after": "report within 1h"}
        done = app.apply(schedules={"load": one, "report": REPORT}, source="shop")
        assert done.done == ()
        assert len(done.refused) == 2

    def test_a_deploy_copies_calendars(self, app: VirtualScheduler) -> None:
        app.calendars.set("closed", days=["2026-03-03"])
        declared = {"daily": {"trigger": "0 9 * * * skip=closed", "task": "work"}}
        app.apply(schedules=declared, source="shop")
        assert next_days(app, "daily") == ["Wed 04", "Thu 05", "Fri 06"]
        app.calendars.set("closed", days=["2026-03-04"])
        assert next_days(app, "daily") == ["Tue 03", "Thu 05", "Fri 06"]
        assert app.apply(schedules=declared, source="shop").unchanged == 1

    def test_code_may_wait_for_what_app_declare_declares(self) -> None:
        made = Scheduler("memory://")
        made.task(name="report", schedule=on_success_of("load"))(_nothing)
        made.declare("load", every("1h"), "report")
        with virtual(made, now=NOW) as app:
            app.travel("1h1m")
            assert sorted(run.schedule or "" for run in app.finished) == ["load", "report"]


class TestBulk:
    def test_a_bulk_update_links_predecessors(self, app: VirtualScheduler) -> None:
        app.schedules.add("load", every("1h"), "work")
        for name in ("report-a", "report-b"):
            app.schedules.add(name, every("1h"), "work")
        done = app.schedules.update_all({"after": after("load", within="1h")}, name="report-*")
        assert len(done.changed) == 2
        assert row(app, "load").followers == "report-a report-b"

    def test_a_bulk_update_copies_calendars(self, app: VirtualScheduler) -> None:
        app.calendars.set("closed", days=["2026-03-03"])
        app.schedules.add("daily", cron("0 9 * * *"), "work")
        app.schedules.update_all({"trigger": cron("0 9 * * *", skip="closed")}, name="daily")
        assert next_days(app, "daily") == ["Wed 04", "Thu 05", "Fri 06"]


class TestTemplates:
    def test_a_template_has_a_trigger_with_a_calendar(self, app: VirtualScheduler) -> None:
        app.calendars.set("closed", days=["2026-03-03"])
        app.calendars.set("open", days=["2026-03-05..2026-03-09"])
        app.templates.set("mornings", trigger="0 9 * * * skip=closed")
        app.schedules.add("mail", task="work", template="mornings")
        assert next_days(app, "mail") == ["Wed 04", "Thu 05", "Fri 06"]
        app.templates.set("mornings", trigger="0 9 * * * only=open")
        assert next_days(app, "mail") == ["Thu 05", "Fri 06", "Sat 07"]
        app.calendars.set("open", days=["2026-03-06..2026-03-09"])
        assert next_days(app, "mail", 2) == ["Fri 06", "Sat 07"]

    def test_a_template_has_a_dependency(self, app: VirtualScheduler) -> None:
        app.schedules.add("load", every("1h"), "work")
        app.schedules.add("other", every("1h"), "work")
        app.templates.set("late", trigger="0 * * * *", after="load within 1h")
        app.schedules.add("mail", task="work", template="late")
        assert (row(app, "mail").after, row(app, "load").followers) == ("load within 1h", "mail")
        app.templates.set("late", trigger="0 * * * *", after="other within 1h")
        assert (row(app, "mail").after, row(app, "other").followers) == ("other within 1h", "mail")
        app.templates.set("late", trigger="0 * * * *")
        assert row(app, "mail").after == ""


def test_a_reset_copies_the_calendars_of_the_declared_trigger(app: VirtualScheduler) -> None:
    app.calendars.set("closed", days=["2026-03-03"])
    app.schedules.declare("daily", cron("0 9 * * *", skip="closed"), "work")
    app.schedules.update("daily", trigger="0 10 * * *")
    assert next_days(app, "daily") == ["Tue 03", "Wed 04", "Thu 05"]
    app.schedules.reset("daily")
    assert next_days(app, "daily") == ["Wed 04", "Thu 05", "Fri 06"]


def test_a_start_has_no_meaning_for_a_schedule_without_ticks(app: VirtualScheduler) -> None:
    app.schedules.add("load", every("1h"), "work")
    with pytest.raises(InvalidValue, match=r"start_at .* has no effect on a schedule that fires on success"):
        app.schedules.add("report", on_success_of("load"), "work", start_at="2026-04-01T00:00Z")


class TestBackfills:
    def test_an_interval_with_a_calendar_has_ticks_before_it_existed(self, app: VirtualScheduler) -> None:
        app.calendars.set("closed", days=["2026-03-03"])
        app.schedules.add("hourly", every("1h", skip="closed"), "work")
        app.down_for("5h")
        assert app.schedules.backfill("hourly", "10h", "0s", dry_run=True).total == 10
        app.calendars.set("closed", days=["2026-03-04"])
        assert app.schedules.backfill("hourly", "10h", "0s", dry_run=True).total == 10

    def test_another_content_of_a_calendar_is_other_work(self, app: VirtualScheduler) -> None:
        app.calendars.set("closed", days=["2026-02-25"])
        app.schedules.add("daily", cron("0 9 * * *", skip="closed"), "work")
        first = app.schedules.backfill("daily", "2026-02-20T00:00Z", "2026-03-01T00:00Z", max_concurrent=50)
        app.calendars.set("closed", days=["2026-02-26"])
        second = app.schedules.backfill("daily", "2026-02-20T00:00Z", "2026-03-01T00:00Z", max_concurrent=50)
        assert first.id != second.id
        app.run_pending()
        days = {run.tick.day for run in app.finished if run.tick is not None}
        assert days == {20, 21, 22, 23, 24, 25, 26, 27, 28}

    def test_a_write_of_a_backfill_leaves_a_success_awake(self, app: VirtualScheduler) -> None:
        app.schedules.add("load", every("1h"), "work")
        app.schedules.add("report", on_success_of("load"), "work")
        found = row(app, "report")
        now = app.store.now()
        assert touched(found, now).wake_at == now


def test_runs_between_removed_ticks_are_not_taken_for_duplicates(app: VirtualScheduler) -> None:
    app.schedules.add("six", every("6h", skip="weekends"), "work", catch_up="all")
    app.travel("1h")
    app.down_for("15d")
    Ticker(app.store, Events()).step(app.store.now())
    assert len(app.runs.list(state="queued", limit=100)) > 20
    app.repair(dry_run=False)
    assert app.runs.list(state="cancelled") == []


class TestModes:
    @pytest.mark.parametrize(
        ("trigger", "message"),
        [
            (cron("0 9 * * *", skip="closed"), "calendars of schedule job may change"),
            (on_success_of("load"), "fires on successes"),
        ],
    )
    def test_a_schedule_in_the_code_only_can_have_nothing_that_changes_elsewhere(
        self, trigger: Any, message: str
    ) -> None:
        with pytest.raises(InvalidValue, match=message):
            Scheduler("memory://").task(name="job", schedule=trigger, durable=False)
        made = Scheduler("memory://", schedule_mode="code")
        made.task(name="job", schedule=trigger)(_nothing)
        with pytest.raises(InvalidValue, match=message), virtual(made):
            pass

    def test_built_in_calendars_are_known_to_all_nodes(self) -> None:
        made = Scheduler("memory://")
        made.task(name="job", schedule=cron("0 9 * * *", only="business-days"), durable=False)(_nothing)
        with virtual(made, now="2026-03-08T08:00:00Z") as app:  # a Sunday
            app.travel("26h")
            assert [f"{run.tick:%a}" for run in app.finished if run.tick] == ["Mon"]

    def test_a_fallback_leaves_schedules_that_wait_for_others_to_their_rows(
        self, app: VirtualScheduler
    ) -> None:
        app.schedules.add("load", every("1h"), "work")
        app.schedules.add("report", every("1h"), "work", after=after("load", within="1h"))
        app.schedules.add("publish", on_success_of("report"), "work")
        keys = [("default", name) for name in ("load", "report", "publish")]
        fallback = Fallback(app.store, Events(), keys)
        fallback.step(app.store.now())
        assert [each.name for each in fallback.rows()] == ["load"]
        assert not needs_facts(replace(row(app, "report"), after=""))

    @pytest.mark.parametrize("move", ["skip", "next"])
    def test_ticks_that_a_calendar_removed_during_a_fallback_are_recorded_after_it(
        self, app: VirtualScheduler, move: str
    ) -> None:
        app.calendars.set("closed", days=["2026-03-04"])
        app.schedules.add("daily", f"0 9 * * * skip=closed move={move}", "work")
        app.down_for("3d1h")  # Thursday
        found = row(app, "daily")
        fallback = Fallback(app.store, Events(), [found.key])
        ticks = [found.next_tick or 0, (found.next_tick or 0) + 2 * 86_400_000]
        remembered = remember(found, 0)
        for tick in ticks:
            planned = plan(remembered.row, tick)
            assert [run.tick for run in planned.runs] == [tick]
            remembered = remembered.after(planned)
        fallback.remembered[found.key] = remembered
        Ticker(app.store, Events(), fallback=fallback).step(app.store.now())
        (gone,) = app.schedules.skipped("daily")
        assert (gone.reason, gone.count, f"{gone.first:%a %d}") == ("calendar", 1, "Wed 04")
        assert gone.run == (f"default/daily/1/{ticks[1]}" if move == "next" else None)


def _nothing() -> None: ...


class TestWrongValues:
    @pytest.mark.parametrize("name", [None, 5, [], {}])
    def test_what_is_not_a_name_is_refused_by_every_call(self, app: VirtualScheduler, name: Any) -> None:
        app.schedules.add("payroll", every("1h"), "work")
        calls: list[Any] = [
            partial(app.schedules.backfill, name, "5h", "1h"),
            partial(app.schedules.get, name),
            partial(app.schedules.why, name),
            partial(app.schedules.account, name),
            partial(app.schedules.dependencies, name),
            partial(app.schedules.calendars, name),
            partial(app.schedules.preview_resume, name),
        ]
        for call in calls:
            with pytest.raises(InvalidValue, match=r"name .* is not"):
                call()

    @pytest.mark.parametrize("value", [1, "yes", None, "\ud800"])
    def test_what_is_not_true_or_false_is_refused(self, app: VirtualScheduler, value: Any) -> None:
        app.schedules.add("payroll", every("1h"), "work")
        for field in ("missing_only", "dry_run"):
            with pytest.raises(InvalidValue, match=rf"{field} .* is not True or False"):
                app.schedules.backfill("payroll", "5h", "1h", **{field: value})
        with pytest.raises(InvalidValue, match=r"catch_up .* is not True or False"):
            app.schedules.resume("payroll", catch_up=value)
        assert app.backfills.list() == []
