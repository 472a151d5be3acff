"""The dialog that backfills a schedule, the progress on its page, and the page of all backfills."""

from __future__ import annotations

import threading

from playwright.sync_api import Browser, Page, expect

from evenbeat import RunContext, cron
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened


def _add_schedule(dashboard: Dashboard) -> None:
    dashboard.app.schedules.add("reports", cron("0 * * * *"), "report")


def test_look_first_then_backfill_and_follow_the_progress(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    begun, ends = threading.Semaphore(0), threading.Event()
    seen: list[str] = []

    @app.task
    def report(run: RunContext) -> None:
        assert run.tick is not None
        seen.append(f"{run.tick:%H:%M} {run.cause}")
        begun.release()
        ends.wait()
        if run.tick.hour == 1:
            raise RuntimeError("no data")

    _add_schedule(dashboard)
    page.goto(dashboard.link("schedules", "default", "reports", tz="utc"))
    page.get_by_role("button", name="Backfill").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From").fill("2026-03-01T00:00")
    dialog.get_by_label("To").fill("2026-03-01T03:00")
    dialog.get_by_label("At once").fill("2")
    assert_accessible(page)
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("status")).to_contain_text(
        "3 ticks: 3 without a record. 3 runs would be added."
    )
    expect(dialog.get_by_role("row")).to_have_count(4)
    assert app.backfills.list() == []
    # Another range needs another look.
    dialog.get_by_label("Order").select_option("newest")
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("row").nth(1)).to_contain_text("02:00")
    assert_accessible(page)
    dialog.get_by_role("button", name="Add 3 runs").click()
    expect(page.locator(".notices").get_by_text("adds 3 runs of reports")).to_be_visible()
    section = page.get_by_role("region", name="Backfills")
    expect(section).to_contain_text("0 of 3 runs ended, 2 active")
    app.start()
    try:
        for _ in range(2):
            assert begun.acquire(timeout=60)
        assert sorted(seen) == ["01:00 backfill", "02:00 backfill"]
        ends.set()
        expect(section).to_contain_text("3 of 3 runs ended, 1 failed")
    finally:
        ends.set()
    section.get_by_role("link", name="The last failed run of the backfill").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    (over,) = app.backfills.list()
    assert (over.state, over.succeeded, over.failed, over.order) == ("done", 2, 1, "newest")
    page.goto(dashboard.link("schedules", "default", "reports", tz="utc"))
    page.get_by_role("button", name="Backfill").click()
    dialog.get_by_label("From").fill("2026-03-01T00:00")
    dialog.get_by_label("To").fill("2026-03-01T03:00")
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("status")).to_contain_text(f"The same backfill {over.id} exists since")
    expect(dialog.get_by_role("button", name="Add 0 runs")).to_be_disabled()
    assert_accessible(page)
    dialog.get_by_label("Leave out ticks that have a succeeded run").check()
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("status")).to_contain_text("1 run would be added")
    expect(dialog.get_by_role("button", name="Add 1 run")).to_be_enabled()


def test_what_the_server_refuses_is_shown_at_the_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422")
    complaints.allow("400")
    _add_schedule(dashboard)
    page.goto(dashboard.link("schedules", "default", "reports", tz="utc"))
    page.get_by_role("button", name="Backfill").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To").fill("2099-01-01T00:00")
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is in the future")
    dialog.get_by_label("To").fill("2026-01-01T00:00")
    dialog.get_by_label("From").fill("2025-12-31T00:00")
    dialog.get_by_label("At once").fill("0")
    dialog.get_by_role("button", name="Look first").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    assert dashboard.app.backfills.list() == []


def test_cancel_a_backfill_on_the_page_of_all(dashboard: Dashboard, page: Page) -> None:
    _add_schedule(dashboard)
    page.goto(dashboard.link("backfills"))
    expect(page.get_by_text("evenbeat schedules backfill NAME")).to_be_visible()
    app = dashboard.app
    app.schedules.pause("reports")
    made = app.schedules.backfill("reports", "2026-03-01T00:00Z", "2026-03-02T00:00Z", id="march")
    page.reload()
    row = page.get_by_role("row").filter(has_text="march")
    expect(row).to_contain_text("0 of 24 runs ended")
    expect(row).to_contain_text("Waits: the schedule is paused.")
    expect(row.get_by_role("link", name="reports")).to_be_visible()
    assert_accessible(page)
    row.get_by_role("button", name="Cancel the backfill march").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("24 runs will not be added")
    dialog.get_by_role("button", name="Cancel the backfill").click()
    expect(row).to_contain_text("cancelled")
    expect(row.get_by_role("button")).to_have_count(0)
    assert app.backfills.get(made.id).state == "cancelled"


def test_a_viewer_sees_backfills_and_no_buttons(
    browser: Browser, guarded: Dashboard, complaints: Complaints
) -> None:
    _add_schedule(guarded)
    guarded.app.schedules.backfill("reports", "2026-03-01T00:00Z", "2026-03-02T00:00Z", id="march")
    with opened(browser, guarded, complaints) as context:
        page = context.new_page()
        complaints.allow("401")
        page.goto(guarded.link("backfills"))
        page.get_by_label("Token").fill(guarded.token("viewer"))
        page.get_by_role("button", name="Log in").click()
        row = page.get_by_role("row").filter(has_text="march")
        expect(row).to_contain_text("0 of 24 runs ended, 1 active")
        expect(row.get_by_role("button")).to_have_count(0)
        page.goto(guarded.link("schedules", "default", "reports"))
        expect(page.get_by_role("region", name="Backfills")).to_be_visible()
        expect(page.get_by_role("button", name="Backfill")).to_have_count(0)
