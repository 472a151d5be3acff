"""The page of the plan, and moving the runs of a task that no node has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from evenbeat import Scheduler
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened
from tests.browser.test_login import REFUSED, log_in


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """A server of an app that declares schedules under a label."""
    made = Dashboard(None, Scheduler(f"sqlite:///{tmp_path}/plan.db", source="shop"))
    made.app.task(name="work")(lambda: None)
    made.serve()
    yield made
    made.close()


def test_the_plan_is_shown_and_applied(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    before = Scheduler(app.store, source="shop")
    before.task(name="work")(lambda: None)
    for name, trigger in (("change-me", "@hourly"), ("edited", "@daily"), ("gone", "@weekly")):
        before.declare(name, trigger, "work")
    before.apply()
    app.schedules.update("edited", retries=4)
    app.schedules.add("by-hand", "@daily", "work")
    for name, trigger in (("new-one", "@daily"), ("change-me", "every 2h"), ("edited", "@daily")):
        app.declare(name, trigger, "work")
    app.declare("by-hand", "@daily", "work")

    page.goto(dashboard.link("plan"))
    expect(page.get_by_text("1 to add, 1 to change, 0 to remove")).to_be_visible()
    changed = page.get_by_role("article", name="change-me")
    expect(changed.get_by_role("row", name="trigger 0 * * * * every 2h")).to_be_visible()
    expect(changed.get_by_role("list", name="The next ticks of change-me")).to_contain_text("removed")
    expect(page.get_by_role("article", name="edited")).to_contain_text("evenbeat schedules reset edited")
    expect(page.get_by_role("article", name="by-hand")).to_contain_text("It was made by hand.")
    expect(page.get_by_role("heading", name="Not declared any more")).to_be_visible()
    assert_accessible(page)

    page.get_by_label("Remove what is not declared any more").check()
    expect(page.get_by_text("1 to add, 1 to change, 1 to remove")).to_be_visible()
    page.get_by_role("button", name="Apply …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 to add, 1 to change, 1 to remove, in one step.")
    expect(dialog).to_contain_text("To be removed: gone.")
    assert_accessible(page)
    app.schedules.update("change-me", queue="slow")  # somebody is faster
    dialog.get_by_role("button", name="Apply 3 changes").click()
    notice = page.locator(".notices")
    expect(notice.get_by_text("Applied 2 changes. 1 schedule refused")).to_be_visible()
    refused = page.get_by_role("region", name="Refused")
    expect(refused).to_contain_text("change-me: the schedule, or its declaration, has changed since the plan")
    expect(page.get_by_text("0 to add, 1 to change, 0 to remove")).to_be_visible()
    assert {each.name for each in app.schedules.list()} == {"by-hand", "change-me", "edited", "new-one"}

    page.get_by_label("Take over what was made by hand").check()
    expect(page.get_by_text("0 to add, 2 to change, 0 to remove")).to_be_visible()
    page.get_by_role("button", name="Apply …").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply 2 changes").click()
    expect(notice.get_by_text("Applied 2 changes.", exact=True)).to_be_visible()
    expect(page.get_by_text("nothing to apply")).to_be_visible()
    assert app.schedules.get("by-hand").managed_by == "code"


def test_a_server_without_declarations_says_so(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("plan"))
    expect(page.get_by_text("This server declares no schedules")).to_be_visible()
    expect(page.get_by_role("button", name="Apply …")).to_be_disabled()
    assert_accessible(page)


def test_viewers_see_the_plan_and_no_button(tmp_path: Path, browser: Browser, complaints: Complaints) -> None:
    app = Scheduler(f"sqlite:///{tmp_path}/plan.db", source="shop")
    app.task(name="work")(lambda: None)
    app.declare("nightly", "@daily", "work")
    guarded = Dashboard(None, app, needs_token=True)
    guarded.serve()
    complaints.allow(REFUSED)
    try:
        with opened(browser, guarded, complaints) as context:
            page = context.new_page()
            log_in(page, guarded, guarded.token("viewer"), "plan")
            expect(page.get_by_role("article", name="nightly")).to_be_visible()
            expect(page.get_by_role("button", name="Apply …")).to_have_count(0)
    finally:
        guarded.close()


def test_runs_of_a_task_that_no_node_has_are_counted_and_moved(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    ids = [app.enqueue("old_name", at=app_time(app)).id for _ in range(2)]
    app.schedules.add("nightly", "@daily", "old_name")
    app.start(worker=True)
    page.goto(dashboard.link("nodes"))
    page.get_by_role("button", name="Move the runs of old_name").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To the task").fill("work")
    dialog.get_by_role("button", name="Count the runs").click()
    expect(dialog).to_contain_text("2 runs of old_name are queued.")
    expect(dialog).to_contain_text("evenbeat schedules update nightly --task work")
    assert_accessible(page)
    dialog.get_by_role("button", name="Move 2 runs").click()
    expect(page.locator(".notices").get_by_text("Moved 2 runs to work.")).to_be_visible()
    assert {app.runs.join(run, "60s").state for run in ids} == {"succeeded"}


def app_time(app: Scheduler) -> str:
    """Return a time so long ago that a run that waits since then needs somebody."""
    from evenbeat.core.instants import from_ms

    return (from_ms(app.store.now()) - timedelta(minutes=10)).isoformat()
